"""A table and a corpus in an HDFS, and the index of the corpus, too; a long proof alone: make endurance ONLY=hadoop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from service.store.embedded import EmbeddedPostgres
from spark_jobs.hadoop_files import HadoopSettings, file_system_of
from tests.endurance.anywhere import SHOP
from tests.endurance.hadoop import hdfs
from tests.endurance.spark_masters import Settings, run_job
from tests.postgres import TEMPLATE, fresh_database
from tests.refreshing import Lake, Tables, expected_inds, values_of, write_tables
from tests.spark.oracle import read_state
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="servers and a jar of their own: make endurance ONLY=hadoop")

MASTER = "local-cluster[2,1,1024]"
TABLES: Tables = {
    "orders.csv": [["1", "2", "3"], ["a", "b", "b"]],
    "deep/parts.csv": [["2", "3", "9"]],
    "x y.csv": [["b", "b"]],
    **{f"many/{number}.csv": [[str(n) for n in range(number, number + 3)]] for number in range(20)},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


def copy(folder: Path, address: str) -> None:
    """Make a folder of HDFS anew, as a local one is."""
    files, root = file_system_of(address, HadoopSettings())
    files.create_dir(root)
    files.delete_dir_contents(root)
    pafs.copy_files(str(folder), root, destination_filesystem=files)


def test_tasks_read_tables_of_an_hdfs(postgres_server: EmbeddedPostgres, address: str, tmp_path: Path) -> None:
    copy(SHOP, f"{address}/shop")
    states = []
    for source, master in ((str(SHOP), "local[2]"), (f"{address}/shop", MASTER)):
        with fresh_database(postgres_server, TEMPLATE) as url:
            environment = Settings(tmp_path / "settings").write({})
            done = run_job(master, "bootstrap", [source, "--name=shop", "--task-bytes=40000"], [url], environment)
            assert done.returncode == 0, done.stderr
            states.append(read_state(url))
    assert states[0] == states[1]
    assert len(states[0].records) > 1000


def test_a_corpus_of_an_hdfs_keeps_its_index_there(
    postgres_server: EmbeddedPostgres, address: str, tmp_path: Path
) -> None:
    """Two refreshes by tasks of Spark: all of it, and what has changed."""
    folder = tmp_path / "lake"
    folder.mkdir()
    with fresh_database(postgres_server, TEMPLATE) as url:
        lake = Lake(url, folder, address=f"{address}/lake", index=f"{address}/index")
        changed = {**TABLES, "deep/parts.csv": [["1", "2", "3", "4"]], "new.csv": [["9"]]}
        del changed["x y.csv"]
        for tables in (TABLES, changed):
            write_tables(folder, tables)
            copy(folder, f"{address}/lake")
            arguments = [f"--refresh-id={lake.queue()}", f"--data-dir={lake.data_dir}", "--on-spark"]
            done = run_job(MASTER, "many_refresh", arguments, [url], Settings(tmp_path / "settings").write({}))
            assert done.returncode == 0, done.stderr
            assert lake.report["spark"]
            assert lake.inds() == expected_inds(values_of(tables))
        assert lake.report["index"] == "used"
    files, root = file_system_of(f"{address}/index", HadoopSettings())
    stored = files.get_file_info(pafs.FileSelector(root, recursive=True))
    assert sum(info.size or 0 for info in stored) > 0
    assert not list(lake.data_dir.rglob("*.parquet"))
