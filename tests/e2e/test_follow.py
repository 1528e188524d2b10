"""`subsetd follow` and `unfollow` as a person types them: a database is read, followed, and let go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import states
from tests.postgres_following import read_tables, run

TABLES = """
CREATE SCHEMA s;
CREATE TABLE s.customers (id integer PRIMARY KEY, name text);
CREATE TABLE s.orders (id bigint PRIMARY KEY, customer integer, note text,
  doubled bigint GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE s.left_out (secret text);
ALTER TABLE s.customers REPLICA IDENTITY FULL;
INSERT INTO s.customers SELECT i, 'customer ' || i FROM generate_series(1, 50) AS i;
INSERT INTO s.orders SELECT i, 1 + i % 50, repeat(md5(i::text), 200) FROM generate_series(1, 80) AS i;
"""


def subsetd(state_url: str, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUBSETD_")}
    environment = {**kept, **changed, "SUBSETD_DATABASE_URL": state_url, "SUBSETD_SPARK_MASTER": "local[2]"}
    command = [sys.executable, "-m", "service.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_database_is_read_and_followed_and_let_go(followed_url: str, database_url: str, tmp_path: Path) -> None:
    run(followed_url, TABLES)
    follow = ("follow", followed_url, "--name", "shop", "--until-end")
    refused = subsetd(database_url, *follow)
    assert refused.returncode == 1
    assert "ALTER TABLE s.left_out REPLICA IDENTITY FULL;" in refused.stderr

    chosen = ("--exclude", "s.left_out", "--key", "s.customers=id", "--row-images", "always")
    first = subsetd(database_url, *follow, *chosen, TMPDIR=str(tmp_path))
    assert first.returncode == 0, first.stderr
    left = [path.name for path in tmp_path.glob("subsetd-*") if not path.name.startswith("subsetd-kernels-")]
    assert left == [], "the job cleans up behind itself, but for kernels that the next one need not compile"
    kept = states.query(database_url, "select table_name, key_columns from tracked_table where row_images order by 1")
    assert kept == [("customers", ["id"]), ("orders", ["id"])], "although changes of customers are whole"
    run(
        followed_url,
        "UPDATE s.orders SET customer = 7 WHERE id < 9",
        "UPDATE s.orders SET id = 1000, note = NULL WHERE id = 10",
        "DELETE FROM s.customers WHERE id > 48",
        "INSERT INTO s.left_out VALUES ('not told')",
    )
    second = subsetd(database_url, *follow)
    assert second.returncode == 0, second.stderr
    assert "11 records" in second.stderr
    tables = read_tables(followed_url)
    del tables.columns["left_out"]
    assert states.read(database_url) == states.expected(tables)
    assert not states.query(database_url, "select from state_version where dead > 0 or skipped > 0")

    hidden = subsetd(database_url, *follow, "--mask", "s.customers.name")
    assert hidden.returncode == 1
    assert "subsetd attribute mask s.customers.name --keep none" in " ".join(hidden.stderr.split())

    run(followed_url, "ALTER PUBLICATION subsetd_shop DROP TABLE s.orders")
    lacking = subsetd(database_url, *follow)
    assert lacking.returncode == 1
    assert "ADD TABLE s.orders" in " ".join(lacking.stderr.split())

    gone = subsetd(database_url, "unfollow", "shop")
    assert gone.returncode == 0, gone.stderr
    assert states.query(followed_url, "select from pg_replication_slots where database = current_database()") == []
    assert states.query(followed_url, "select from pg_publication") == []
    assert states.query(database_url, "select from feed_position") == []
    assert states.read(database_url) == states.expected(tables)

    anew = subsetd(database_url, *follow, "--exclude", "s.left_out")
    assert anew.returncode == 1
    assert "--replace" in anew.stderr
    assert states.query(followed_url, "select from pg_publication") == [], "what was made for nothing is dropped"

    run(followed_url, "ALTER TABLE s.left_out REPLICA IDENTITY FULL")  # nothing else keeps it away
    replaced = subsetd(database_url, *follow, "--replace")
    assert replaced.returncode == 0, replaced.stderr
    assert "read as before, with --exclude=s.left_out; --forget-options" in " ".join(replaced.stderr.split())
    published = states.query(followed_url, "select tablename from pg_publication_tables order by 1")
    assert published == [("customers",), ("orders",)]
    assert states.read(database_url) == states.expected(tables)


def test_a_source_that_is_away_says_how_its_slot_is_dropped(database_url: str) -> None:
    run(
        database_url,
        "INSERT INTO feed (feed, address) VALUES ('postgres:shop', 'postgresql://me@127.0.0.1:1/shop?name=shop')",
    )
    away = subsetd(database_url, "unfollow", "shop")
    assert away.returncode == 1
    assert "SELECT pg_drop_replication_slot('subsetd_shop')" in " ".join(away.stderr.split())
    unknown = subsetd(database_url, "unfollow", "another")
    assert "No source 'another' is followed" in " ".join(unknown.stderr.split())
