"""File systems of Hadoop as Arrow's: a mount, a hand-made archive, schemes that need a jar, and what settings say."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from service.core.corpus import CorpusKind
from service.core.errors import SourceError
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.hadoop_files import HadoopSettings, file_system_of, hadoop_settings, require_scheme
from spark_jobs.sources import Options, open_source
from tests.corpus_reading import Reading, fault_of, held, keys_of, put

SITE = """<configuration>
  <property><name>fs.viewfs.mounttable.lakes.link./data</name><value>file://{folder}/data</value></property>
  <property><name>fs.viewfs.mounttable.lakes.link./index</name><value>file://{folder}/index</value></property>
</configuration>
"""
RELATION = b'{"relation": [["1", "2"], ["x", "y"]]}\n'


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let Hadoop's settings mount two folders as viewfs://lakes/data and .../index."""
    for name in ("data", "index", "conf"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "core-site.xml").write_text(SITE.format(folder=tmp_path))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    hadoop_settings.cache_clear()
    yield tmp_path
    hadoop_settings.cache_clear()


def test_files_are_listed_read_and_written_as_they_are(configured: Path) -> None:
    data = random.Random(7).randbytes(3_000_000)
    for name in ("a b.csv", "deep/er/ü#%20.bin", "deep/.hidden"):
        put(configured / "data" / name, data)
    filesystem, root = file_system_of("viewfs://lakes/data/", hadoop_settings())
    assert root == "/data"
    found = {info.path: info for info in filesystem.get_file_info(pafs.FileSelector(root, recursive=True))}
    names = ("a b.csv", "deep/er/ü#%20.bin", "deep/.hidden")
    assert found.keys() == {f"/data/{name}" for name in (*names, "deep", "deep/er")}
    for name in names:
        info, about = found[f"/data/{name}"], os.stat(configured / "data" / name)
        assert (info.size, info.mtime_ns) == (about.st_size, about.st_mtime_ns // 1_000_000 * 1_000_000)
        alone = filesystem.get_file_info(info.path)
        assert (alone.type, alone.size, alone.mtime_ns) == (info.type, info.size, info.mtime_ns)
    with filesystem.open_input_file("/data/deep/er/ü#%20.bin") as file:
        assert file.read() == data
        for place, size in ((5, 10), (2_999_990, 100), (0, 1)):
            file.seek(place)
            assert file.read(size) == data[place : place + size]
            assert file.tell() == min(place + size, len(data))
        assert file.size() == len(data)
    with filesystem.open_output_stream("/index/new/file") as stream:
        stream.write(data)
        stream.write(b"end")
    assert (configured / "index" / "new" / "file").read_bytes() == data + b"end"
    filesystem.delete_dir("/index/new")
    assert filesystem.get_file_info("/index/new").type is pafs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_stream("/data/gone")
    with pytest.raises(FileNotFoundError):
        filesystem.get_file_info(pafs.FileSelector("/data/gone"))


@pytest.mark.parametrize(
    ("kind", "name", "data"),
    [(CorpusKind.CSV, "deep/a.csv", b"n,m\n1,x\n2,y\n"), (CorpusKind.JSONL, "a.jsonl", RELATION)],
)
def test_a_corpus_and_its_index_can_be_on_a_file_system_of_hadoop(
    configured: Path, kind: CorpusKind, name: str, data: bytes
) -> None:
    put(configured / "data" / name, data)
    reading = Reading("viewfs://lakes/data", kind, CorpusIndex("viewfs://lakes/index"))
    table = f"{name}#1" if kind is CorpusKind.JSONL else name
    state = reading.refresh()
    assert held(reading.index, state.manifest) == keys_of({(table, 0): {"1", "2"}, (table, 1): {"x", "y"}})
    again = reading.refresh()
    assert reading.plan is not None
    assert (len(reading.plan.tasks), len(again.manifest.tables)) == (0, 1), "what has not changed is not read"
    put(configured / "data" / name, data.replace(b"1", b"3"), change=2_000_000)
    changed = reading.refresh()
    assert held(reading.index, changed.manifest)[(table, 0)] == keys_of({("", 0): {"3", "2"}})[("", 0)]
    assert not fault_of(changed)


def test_what_is_in_an_archive_is_read(configured: Path) -> None:
    archive = configured / "data" / "old.har"
    content = {"a.csv": b"n\n1\n", "b.csv": b"n\n2\n"}
    put(archive / "part-0", b"".join(content.values()))
    lines = [f"%2F dir 0+0+0+0 0 0 {' '.join(content)}"]
    for number, (name, data) in enumerate(content.items()):
        lines.append(f"%2F{name} file part-0 {number * 4} {len(data)} 1700000000000+420+me+me")
    index = "".join(f"{line} \n" for line in lines).encode()
    put(archive / "_index", index)
    put(archive / "_masterindex", f"3 \n0 2147483647 0 {len(index)} \n".encode())
    reading = Reading(f"har://{archive}", CorpusKind.CSV, CorpusIndex(str(configured / "index")))
    state = reading.refresh()
    assert not fault_of(state)
    assert held(reading.index, state.manifest) == keys_of({("a.csv", 0): {"1"}, ("b.csv", 0): {"2"}})


def test_a_scheme_that_nothing_reads_is_refused_with_the_way_out(configured: Path) -> None:
    for scheme in ("file", "s3", "gs", "viewfs", "hdfs", "har"):
        require_scheme(scheme, hadoop_settings())
    for scheme, reason in (("s3a", "S3AFileSystem not found"), ("nosuch", 'No FileSystem for scheme "nosuch"')):
        with pytest.raises(SourceError) as told:
            require_scheme(scheme, hadoop_settings())
        for part in (f"begin with {scheme}://", "spark.jars", "spark-defaults.conf", f"fs.{scheme}.impl", reason):
            assert part in str(told.value)
    asked = [sys.executable, "-m", "spark_jobs.hadoop_files", "--scheme", "s3a"]
    ended = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: Nothing reads addresses that begin with s3a://.")


def test_settings_are_those_of_spark_and_hadoop_and_go_along_to_tasks(configured: Path) -> None:
    (configured / "conf" / "spark-defaults.conf").write_text(
        "# ours\nspark.hadoop.fs.nosuch.impl  org.apache.hadoop.fs.LocalFileSystem\nspark.jars=/x/a.jar, file:///x/b.jar\n"
        "spark.driver.extraClassPath /y/*:/z\nspark.executor.memory 2g\n"
    )
    hadoop_settings.cache_clear()
    settings = hadoop_settings()
    assert settings.jars == ("/x/a.jar", "/x/b.jar", "/y/*", "/z")
    assert dict(settings.properties)["fs.nosuch.impl"] == "org.apache.hadoop.fs.LocalFileSystem"
    assert dict(settings.properties)["fs.viewfs.mounttable.lakes.link./data"] == f"file://{configured}/data"
    assert "LocalFileSystem" not in repr(settings), "keys are among them"
    require_scheme("nosuch", settings)
    index = CorpusIndex("viewfs://lakes/index")
    assert pickle.loads(pickle.dumps(index)) == index
    assert index.hadoop == settings
    named = HadoopSettings((("fs.s3.impl", "org.example.Ours"),))
    assert named.reads("s3"), "a class that is named goes before Arrow"
    assert not HadoopSettings().reads("s3")
    (configured / "conf" / "core-site.xml").write_text("<configuration>")
    hadoop_settings.cache_clear()
    with pytest.raises(SourceError, match="settings of Hadoop cannot be read"):
        hadoop_settings()


def test_tasks_read_tables_by_the_settings_of_the_driver(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the machine that a task runs on do not count."""
    put(configured / "data" / "of_csv" / "t.csv", b"n\n1\n2\n")
    (configured / "data" / "of_parquet").mkdir()
    pq.write_table(pa.table({"n": ["1", "2"]}), configured / "data" / "of_parquet" / "t.parquet")
    sources = [open_source(Options(f"viewfs://lakes/data/{name}", "s")) for name in ("of_csv", "of_parquet")]
    monkeypatch.delenv("HADOOP_CONF_DIR")
    hadoop_settings.cache_clear()
    for source in sources:
        reader = pickle.loads(pickle.dumps(source.reader()))
        (split,) = source.splits(1 << 20, lambda function, items: [function(item) for item in items])
        (table,) = reader.read(split)
        assert table.column(0).to_pylist() == ["1", "2"]
