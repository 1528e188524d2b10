"""A database that sends keys alone, from its bootstrap on: rows are kept by the job and go on with the feed."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from service import feed_wiring
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.command_line import parse_arguments
from spark_jobs.sources import Options
from tests import states
from tests.postgres_following import NAME, follow, run

TABLES = (
    "create schema s",
    "create table s.notes (id integer, kind text, n integer, doc jsonb, large text, primary key (kind, id))",
    "create table s.other (id integer primary key, name text)",
    "insert into s.notes select i, 'k' || i % 7, i, jsonb_build_object('n', i), "
    "(select string_agg(md5((i * j)::text), '') from generate_series(1, 300) j) from generate_series(1, 40) i",
    "insert into s.other select i, 'x' || i from generate_series(1, 30) i",
)
"""The key's columns stand in another order than the table's; `large` is stored out of line and mostly not sent."""


def changes(rng: random.Random, number: int) -> list[str]:
    """Make statements that change a few rows in every way: large values left alone, keys moved, rows exchanged."""
    statements = []
    for _ in range(number):
        i, j = rng.randrange(60), rng.randrange(60)
        statements.append(
            rng.choice(
                [
                    f"insert into s.notes values ({i}, 'k{i % 7}', {j}) on conflict (id, kind) do update set n = {j}",
                    f"update s.notes set n = {j} where id = {i}",
                    f"update s.notes set id = {j} where id = {i} and not exists (select from s.notes where id = {j})",
                    f"update s.notes set doc = '{{\"n\": {j}}}' where id = {i}",
                    f"delete from s.notes where id = {i}",
                    f"begin; delete from s.other where id < {j}; insert into s.other select {j}, 'x{i}' "
                    f"where not exists (select from s.other where id = {j}); commit",
                ]
            )
        )
    return statements


@pytest.mark.parametrize("null_tokens", [(), ("k3", "7", '{"n":9}')], ids=["as it is", "null tokens"])
def test_a_database_that_sends_keys_alone_is_followed(
    spark: SparkSession, followed_url: str, database_url: str, null_tokens: tuple[str, ...]
) -> None:
    """Texts that stand for NULL may be in its keys as well."""
    rng = random.Random(5)
    run(followed_url, *TABLES)
    with feed_wiring.new_postgres_feed(database_url, followed_url, NAME, (), replace=False) as told:
        given = parse_arguments([followed_url, "--name", NAME, "--database-url", database_url, *told])
        run(followed_url, *changes(rng, 20))  # behind the snapshot
        options = Options(
            followed_url, NAME, database_url, snapshot=given.snapshot, feed_start=given.feed_start, published=True,
            null_tokens=null_tokens,
        )  # fmt: skip
        summary = run_bootstrap(spark, options)
    assert summary.images == ["row images kept: s.notes (by kind, id), s.other (by id)"]
    assert states.query(database_url, "select count(*) from row_image") == [(70,)]
    for further in ((), ("truncate s.other",), ()):
        run(followed_url, *changes(rng, 60), *further)
        follow(database_url, followed_url, records=50)
    kept = states.query(database_url, "select count(*) from row_image")
    assert kept == states.query(followed_url, "select (select count(*) from s.notes) + (select count(*) from s.other)")
    assert run_bootstrap(spark, Options(followed_url, NAME, database_url, check=True)).differences == []
