"""A followed Postgres that dies, and a follower that is killed, at any moment: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from service.core.errors import FeedError
from service.store.embedded import EmbeddedPostgres
from service.stream import postgres_numbering
from tests import postgres_following as source
from tests import states
from tests.following import Watch
from tests.in_memory import IN_MEMORY
from tests.postgres_following import begin, follow, require_equal, run
from tests.waiting import BOUND_SECONDS, wait_for

TABLES = """
CREATE SCHEMA s;
CREATE TABLE s.items (id integer PRIMARY KEY, kind text);
ALTER TABLE s.items REPLICA IDENTITY FULL;
"""
SETTINGS = {"wal_level": "logical", "max_wal_senders": "10"}


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """Run a Postgres of this test alone, that it may end."""
    with EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="subsetd-mortal-", dir=IN_MEMORY)), True, SETTINGS) as server:
        yield server


def die(server: EmbeddedPostgres) -> None:
    """End a server at once, as `pg_ctl stop -m immediate` does: what it had open is recovered at its next start."""
    pid = int((server.cluster / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    wait_for(lambda: not (server.cluster / "postmaster.pid").exists())


def write(url: str, stop: threading.Event, rng: random.Random) -> None:
    """Make transactions until told to stop, over every failure of the server."""
    while not stop.is_set():
        try:
            with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    for _ in range(rng.choice([1, 3, 20])):
                        kind = rng.choice(["a", "b", "12", None])
                        cursor.execute(
                            "INSERT INTO s.items VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET kind = excluded.kind",
                            (rng.randint(1, 200), kind),
                        )
                        cursor.execute("DELETE FROM s.items WHERE id = %s", (rng.randint(1, 200),))
                    connection.commit()
        except psycopg2.Error:
            stop.wait(0.01)  # a server that is away is asked again soon, not without a pause


def test_a_source_that_dies_and_comes_back_is_followed_on(server: EmbeddedPostgres, database_url: str) -> None:
    url = server.url
    run(url, TABLES)
    begin(database_url, url)
    stop, watch = threading.Event(), Watch()
    writer = threading.Thread(target=write, args=(url, stop, random.Random(1)))
    consuming = source.consumer(database_url, url, watch=watch, retry_seconds=60.0)
    consumer = threading.Thread(target=consuming.run, args=(stop,))
    again = []
    writer.start()
    consumer.start()
    try:
        for _ in range(3):
            before = len(watch.reports)
            wait_for(lambda before=before: len(watch.reports) > before + 3)
            die(server)
            again.append(EmbeddedPostgres(server.data_dir, True, SETTINGS))
            again[-1].start()
        before = len(watch.reports)
        wait_for(lambda: len(watch.reports) > before + 3)
    finally:
        stop.set()
        writer.join()
        consumer.join()
    assert not watch.errors, "the feed connects again by itself"
    follow(database_url, url)
    require_equal(database_url, url)
    for one in again:
        one.stop()


def test_a_source_that_stays_away_ends_the_feed(server: EmbeddedPostgres, database_url: str) -> None:
    url = server.url
    run(url, TABLES)
    begin(database_url, url)
    watch, errors = Watch(), []

    def consume() -> None:
        try:
            source.consumer(database_url, url, watch=watch, retry_seconds=0.2).run(threading.Event())
        except FeedError as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    wait_for(lambda: watch.followed)
    die(server)
    consumer.join(BOUND_SECONDS)
    assert errors
    assert "Cannot reach the source database" in errors[0]


@pytest.mark.parametrize(("rows", "said"), [(1, "its log ends at"), (300, "another log stands where")])
def test_a_source_that_was_set_back_stops_the_feed(
    server: EmbeddedPostgres, database_url: str, monkeypatch: pytest.MonkeyPatch, rows: int, said: str
) -> None:
    """Its disk is that of before, slot and all; since then its log is still shorter, or has grown behind what was."""
    monkeypatch.setattr(postgres_numbering, "CLOCKS_DIFFER_MS", 0)
    url, kept = server.url, server.data_dir / "kept"
    run(url, TABLES)
    begin(database_url, url)
    die(server)
    subprocess.run(["cp", "-a", server.cluster, kept], check=True)
    with EmbeddedPostgres(server.data_dir, True, SETTINGS):
        run(url, *[f"INSERT INTO s.items VALUES ({number}, 'lost')" for number in range(50)])
        follow(database_url, url)
        die(server)
    shutil.rmtree(server.cluster)
    kept.rename(server.cluster)
    with EmbeddedPostgres(server.data_dir, True, SETTINGS):
        written = "SET synchronous_commit = on"
        run(url, written, *[f"INSERT INTO s.items VALUES ({1000 + number}, 'new')" for number in range(rows)])
        with pytest.raises(FeedError, match=f"was set back: {said}.*--replace"):
            follow(database_url, url)


CONSUMER = """
import sys, threading
from tests import postgres_following as source
source.consumer(sys.argv[1], sys.argv[2], records=int(sys.argv[3])).run(threading.Event())
"""


SESSIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
"""A killed follower's end their statement, and are the state's writer until then."""


def test_a_follower_that_is_killed_at_any_moment(followed_url: str, database_url: str) -> None:
    run(followed_url, TABLES)
    begin(database_url, followed_url)
    rng, stop = random.Random(1), threading.Event()
    writer = threading.Thread(target=write, args=(followed_url, stop, random.Random(2)))
    writer.start()
    try:
        for _ in range(2):
            command = [sys.executable, "-c", CONSUMER, database_url, followed_url, str(rng.choice([7, 200]))]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            version = states.query(database_url, "select max(version) from state_version")[0][0]
            wanted = version + rng.randint(1, 20)
            wait_for(
                lambda wanted=wanted: (
                    states.query(database_url, "select max(version) from state_version")[0][0] >= wanted
                )
            )
            process.kill()
            process.wait()
            wait_for(lambda: states.query(database_url, SESSIONS) == [(0,)])
    finally:
        stop.set()
        writer.join()
    follow(database_url, followed_url)
    require_equal(database_url, followed_url)
