"""A corpus on a file system that is not this machine's: listed and read by Arrow's interface, the index beside it."""

from __future__ import annotations

import bz2
import gzip
import json

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from service.core.corpus import CorpusKind
from service.core.errors import SourceError
from spark_jobs import corpus_files, corpus_index
from spark_jobs.corpus_index import CorpusIndex
from tests.corpus_reading import Reading, fault_of, held, keys_of

LINE = json.dumps({"relation": [["1", "2"]]}).encode()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> pafs.FileSystem:
    """Give an empty file system in memory, on which every address is."""
    memory = pafs._MockFileSystem()
    memory.create_dir("bucket")

    def found(location: str, _: object = None) -> tuple[pafs.FileSystem, str]:
        return memory, location.removeprefix("mock://")

    monkeypatch.setattr(corpus_files, "find_file_system", found)
    monkeypatch.setattr(corpus_index.CorpusIndex, "_open", lambda index: found(index.folder))
    return memory


@pytest.mark.parametrize(
    ("kind", "path", "data"),
    [
        (CorpusKind.CSV, "deep/er/a.csv", b"n\n1\n2\n"),
        (CorpusKind.JSONL, "deep/a.jsonl", LINE + b"\n"),
        (CorpusKind.JSONL, "a.json.gz", gzip.compress(LINE, mtime=0)),
        (CorpusKind.JSONL, "a.json.bz2", bz2.compress(LINE)),
        (CorpusKind.JSONL, "a.ndjson.zst", pa.Codec("zstd").compress(LINE, asbytes=True)),
        (CorpusKind.PARQUET, "a.parquet", None),
    ],
)
def test_any_file_system_of_arrow_can_hold_a_corpus_and_its_index(
    bucket: pafs.FileSystem, kind: CorpusKind, path: str, data: bytes | None
) -> None:
    name = f"bucket/{path}"
    bucket.create_dir(name.rpartition("/")[0], recursive=True)
    if data is None:
        pq.write_table(pa.table({"n": ["1", "2"]}), name, filesystem=bucket)
    else:
        with bucket.open_output_stream(name, compression=None) as stream:
            stream.write(data)
    reading = Reading("mock://bucket", kind, CorpusIndex("mock://index"))
    state = reading.refresh()
    table = f"{path}#1" if kind is CorpusKind.JSONL else path
    assert held(reading.index, state.manifest) == keys_of({(table, 0): {"1", "2"}})
    assert not fault_of(state)
    bucket.delete_file(name)
    with pytest.raises(SourceError, match="there is no table in it"):
        reading.refresh()


class Barred:
    """Be a file system one of whose folders nobody may list."""

    def __init__(self, real: pafs.FileSystem) -> None:
        self.real = real

    def get_file_info(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        if selector.recursive or selector.base_dir == "bucket/barred":
            raise PermissionError(13, "Permission denied")
        return self.real.get_file_info(selector)  # type: ignore[no-any-return]


def test_a_folder_elsewhere_that_cannot_be_listed_hides_nothing_else(bucket: pafs.FileSystem) -> None:
    for path in ("a.csv", "barred/b.csv", "c/d.csv", "_e/f.csv", "g.txt"):
        bucket.create_dir(f"bucket/{path}".rpartition("/")[0], recursive=True)
        bucket.open_output_stream(f"bucket/{path}").close()
    found, faults = corpus_files._walk(Barred(bucket), "bucket", (".csv",))
    assert sorted(file.path for file in found) == ["a.csv", "c/d.csv"]
    assert [(fault.path, fault.message) for fault in faults] == [
        ("barred", "the folder cannot be listed: Permission denied")
    ]
    assert [file.path for file in corpus_files._walk(bucket, "bucket", (".csv",))[0]] == [
        "a.csv", "barred/b.csv", "c/d.csv",
    ]  # fmt: skip
