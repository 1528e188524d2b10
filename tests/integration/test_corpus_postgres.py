"""A Postgres schema as a corpus: its tables as they were at one moment, with the canonical texts of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg2
import pytest

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import SourceError
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.corpus_sources import ReadingPlan, list_corpus, plan_reading
from tests.corpus_reading import Reading, changed_columns, held, keys_of

TABLES = r"""
CREATE SCHEMA "Läke";
CREATE TABLE "Läke".things (id int, price numeric(9, 2), "Sämt, all" jsonb, tags text[], born timestamptz, raw bytea);
INSERT INTO "Läke".things VALUES
    (1, 1.50, '{"b": 1.0, "a": null}', '{x,NULL}', '2020-01-02 03:04:05+02', '\x00ff'),
    (2, 2.00, '{"a": null, "b": 1}', NULL, NULL, NULL),
    (2, NULL, NULL, '{}', NULL, '');
CREATE TABLE "Läke".words AS SELECT 'w' || n % 700 AS word, '' AS nothing FROM generate_series(1, 20000) n;
CREATE TABLE "Läke".parted (n int) PARTITION BY RANGE (n);
CREATE TABLE "Läke".low PARTITION OF "Läke".parted FOR VALUES FROM (0) TO (10);
CREATE TABLE "Läke".high PARTITION OF "Läke".parted FOR VALUES FROM (10) TO (20);
INSERT INTO "Läke".parted VALUES (1), (11);
CREATE TABLE "Läke".empty (a int, b text);
CREATE TABLE public.other (n int);
"""

EXPECTED = {
    ("things", 0): {"1", "2"},
    ("things", 1): {"1.5", "2"},
    ("things", 2): {'{"a":null,"b":1}'},
    ("things", 3): {'["x",null]', "[]"},
    ("things", 4): {"2020-01-02T01:04:05.000000Z"},
    ("things", 5): {"00ff", ""},
    ("words", 0): {f"w{n}" for n in range(700)} - {"w5"},
    ("words", 1): {""},
    ("parted", 0): {"1", "11"},
    ("empty", 0): set(),
    ("empty", 1): set(),
}


def test_a_schema_is_read_under_one_snapshot(empty_database_url: str, tmp_path: Path) -> None:
    url = empty_database_url.replace("+psycopg2", "")
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(TABLES)
    reading = Reading(
        url, CorpusKind.POSTGRES, CorpusIndex(str(tmp_path / "index")), CorpusSettings(("w5",), db_schema="Läke")
    )
    state = reading.refresh()
    assert held(reading.index, state.manifest) == keys_of(EXPECTED)
    assert not state.faults
    described = {
        path: (names, rows)
        for path, names, rows in zip(
            *(state.manifest.tables[name].to_pylist() for name in ("path", "names", "rows")), strict=True
        )
    }
    assert described["things"] == (["id", "price", "Sämt, all", "tags", "born", "raw"], 3)
    assert described["words"] == (["word", "nothing"], 20_000)
    assert described["empty"] == (["a", "b"], 0)
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute('DROP TABLE "Läke".empty; UPDATE "Läke".parted SET n = 12 WHERE n = 11')
    after = reading.refresh()
    assert changed_columns(after) == {("parted", 0)}
    assert len(after.gone_columns) == 2


def test_a_schema_without_tables_is_no_corpus(empty_database_url: str) -> None:
    url = empty_database_url.replace("+psycopg2", "")
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE other (n int)")
    with pytest.raises(SourceError, match="has no table in its schema 'lake'"):
        list_corpus(url, CorpusKind.POSTGRES, CorpusSettings(db_schema="lake"))


def test_a_table_that_is_emptied_while_it_is_read_is_not_taken_for_empty(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = empty_database_url.replace("+psycopg2", "")
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE words AS SELECT 'a' AS word")
    reading = Reading(url, CorpusKind.POSTGRES, CorpusIndex(str(tmp_path / "index")))

    def emptied(*arguments: Any) -> ReadingPlan:
        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("TRUNCATE words")
        return plan_reading(*arguments)

    monkeypatch.setattr("tests.corpus_reading.plan_reading", emptied)
    with pytest.raises(SourceError, match="words"):
        reading.refresh()
