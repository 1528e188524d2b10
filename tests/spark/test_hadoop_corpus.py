"""A corpus on a file system of Hadoop, refreshed by Spark: tasks read it with the settings of the driver."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from spark_jobs.hadoop_files import HadoopSettings, file_system_of, hadoop_settings
from tests.refreshing import Lake, expected_inds, write_tables

TABLES = {
    "orders.csv": [["1", "2", "3"], ["a", "b", "b"]],
    "deep/parts.csv": [["2", "3", "9"]],
    "x y.csv": [["b", "b"]],
}


def test_a_refresh_reads_and_indexes_where_only_hadoop_can(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lake"
    for name in ("lake", "index", "conf"):
        (tmp_path / name).mkdir()
    mounts = "".join(
        f"<property><name>fs.viewfs.mounttable.lakes.link./{name}</name><value>file://{tmp_path}/{name}</value></property>"
        for name in ("lake", "index")
    )
    (tmp_path / "conf" / "core-site.xml").write_text(f"<configuration>{mounts}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    hadoop_settings.cache_clear()
    try:
        lake = Lake(database_url, folder, address="viewfs://lakes/lake", index="viewfs://lakes/index", max_failed=1)
        write_tables(folder, TABLES)
        lake.refresh(spark)
        assert lake.inds() == expected_inds(columns_of(TABLES))
        changed = TABLES | {"deep/parts.csv": [["1", "2", "3", "4"]]}
        write_tables(folder, changed)
        (folder / "torn.csv.gz").write_bytes(b"no gzip")
        lake.refresh(spark)
        assert lake.inds() == expected_inds(columns_of(changed))
        assert lake.report["index"] == "used"
        assert lake.report["files"]["faults"] == 1
        with lake.corpora.snapshot(lake.name) as snapshot:
            assert [fault.path for _, fault in snapshot.faults(limit=9)] == ["torn.csv.gz"]
    finally:
        hadoop_settings.cache_clear()


def test_what_is_not_there_is_told_alike_beside_spark(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    mount = ("fs.viewfs.mounttable.lakes.link./data", f"file://{tmp_path}")
    filesystem, root = file_system_of("viewfs://lakes/data", HadoopSettings((mount,)))
    # Errors have numbers in the Java that they come from; in Spark's the low ones are the session's own objects.
    for _ in range(300):
        assert filesystem.get_file_info(f"{root}/gone").type is pafs.FileType.NotFound


def columns_of(tables: dict[str, list[list[str]]]) -> dict[tuple[str, int], set[str]]:
    return {(name, place): set(cells) for name, columns in tables.items() for place, cells in enumerate(columns)}
