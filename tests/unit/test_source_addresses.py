"""What is told of a source that cannot be read: where it is, and never its password."""

from __future__ import annotations

import argparse
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from service.core.errors import FeedError, SourceError
from service.core.model import Attribute, AttributeName, Table
from service.usecases.track_keys import Wanted
from spark_jobs import backfill, bootstrap, follow, sketch_files, sketch_lake
from spark_jobs.progress import Quiet
from spark_jobs.sources import Options, SourceTable

ADDRESS = "postgresql://app:s3cret@db.internal/shop"
TABLE = SourceTable("public", "parted", (("a", "integer"),))


class Nothing:
    """Be a database whose one table is partitioned and has no partition yet."""

    kind = "postgres"
    location = "postgresql://app@db.internal/shop"
    snapshot = None
    warnings = ()

    def tables(self) -> list[SourceTable]:
        return [TABLE]

    def splits(self, *_: object) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def test_a_database_without_anything_to_read_is_told_of_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(ADDRESS, "shop", "postgresql://state", clusters_only=True, row_images="never")
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    for module in (bootstrap, sketch_lake, sketch_files):
        monkeypatch.setattr(module, "open_source", lambda _: Nothing())
    monkeypatch.setattr(sketch_lake, "require_current", lambda _: None)
    with pytest.raises(SourceError, match="there is no table to read") as of_bootstrap:
        bootstrap.run_bootstrap(lambda: spark, options)
    with pytest.raises(SourceError, match="there is no table to read") as of_lake:
        sketch_lake.sketch_lake(spark, options)
    with pytest.raises(SourceError, match="files of CSV or Parquet") as of_files:
        sketch_files.sketch_files(options)
    for told in (of_bootstrap, of_lake, of_files):
        assert str(told.value).startswith(f"{Nothing.location}: ")
        assert "s3cret" not in str(told.value)


def test_a_table_that_is_not_in_a_given_source_is_told_of_without_its_password() -> None:
    attributes = [
        Attribute(place, AttributeName("s", "gone", name), place, "string") for place, name in enumerate("ab")
    ]
    gone = Table("s", "gone", tuple(attributes), wire=("db", "s", "gone"))
    options, spark, source = Options(ADDRESS, "s"), SimpleNamespace(), Nothing()
    with pytest.raises(SourceError, match=r"there is no table s\.gone in it") as told:
        backfill._Reading(spark, source, [Wanted(3, gone, "ab")], options, Quiet(), {3: 0})  # type: ignore[arg-type]
    assert "s3cret" not in str(told.value)


def test_a_feed_that_is_not_followed_on_spark_is_told_of_without_its_password() -> None:
    with pytest.raises(FeedError, match="on Spark topics alone are followed") as told:
        follow.follow(lambda: pytest.fail("Spark is started"), argparse.Namespace(feed=ADDRESS), threading.Event())
    assert "s3cret" not in str(told.value)
