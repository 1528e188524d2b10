"""The index of joinable tables is built by Spark, and the commands build and ask it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from spark_jobs import corpus_sources, join_build
from spark_jobs.join_index import run_build
from tests.joinable import InMemory, ask, crowding, no_spark, told
from tests.refreshing import Lake, write_tables


def test_a_corpus_is_indexed_by_executors(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several tasks read it, and several write the buckets; again what changed, which is merged with the rest."""
    random = Random(9)
    tables = {
        f"t{n:02}.csv": [[str(random.randrange(6)) for _ in range(1 + 150 * n)] for _ in range(2 + n % 4)]
        for n in range(10)
    }
    write_tables(tmp_path / "tables", tables)
    lake = Lake(database_url, tmp_path / "tables")
    lake.refresh(no_spark)
    rows = [*zip(*tables["t05.csv"][:3], strict=True)]
    cells = sum(len(columns) * len(columns[0]) for columns in tables.values())
    counts = {"tables": 10, "rows": sum(1 + 150 * n for n in range(10)), "cells": cells, "left_out": 0, "read": 10}
    monkeypatch.setattr(corpus_sources, "LEAST_TASK_BYTES", 5000)
    monkeypatch.setattr(join_build, "RANGE_CELLS", 3000)
    built = run_build(spark, database_url, lake.name)
    assert counts.items() <= built.items()
    assert told(ask(database_url, lake.name, rows, 4)) == InMemory(tmp_path).top(rows, 4)
    tables |= {"t05.csv": tables["t05.csv"][1:], "t99.csv": tables["t09.csv"]}
    del tables["t08.csv"]
    write_tables(tmp_path / "tables", tables)
    lake.refresh(no_spark)
    monkeypatch.setattr(join_build, "wants_merging", bool)
    assert run_build(spark, database_url, lake.name).items() >= {"tables": 10, "merged": True, "segments": 1}.items()
    assert told(ask(database_url, lake.name, rows, 4)) == InMemory(tmp_path).top(rows, 4)


def test_executors_number_values_that_crowd_a_bucket(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = crowding(300, 3)
    write_tables(tmp_path / "tables", {"a.csv": [texts], "b.csv": [[texts[0], "x"]]})
    lake = Lake(database_url, tmp_path / "tables")
    lake.refresh(no_spark)
    monkeypatch.setattr(corpus_sources, "LEAST_TASK_BYTES", 5)
    assert run_build(spark, database_url, lake.name).items() >= {"tables": 2, "left_out": 0}.items()
    assert told(ask(database_url, lake.name, [(text,) for text in texts], 4)) == [("a", (0,), 300), ("b", (0,), 1)]
