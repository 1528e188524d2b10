"""A corpus on a file system that is not this machine's: listed and read by Arrow's interface, the index beside it."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from service.core.corpus import CorpusKind
from spark_jobs import corpus_index, corpus_sources
from spark_jobs.corpus_index import CorpusIndex
from tests.corpus_reading import Reading, fault_of, held, keys_of

LINE = json.dumps({"relation": [["1", "2"]]}).encode()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> pafs.FileSystem:
    """Give an empty file system in memory, on which every address is."""
    memory = pafs._MockFileSystem()
    memory.create_dir("bucket")

    def found(location: str) -> tuple[pafs.FileSystem, str]:
        return memory, location.removeprefix("mock://")

    monkeypatch.setattr(corpus_sources, "find_file_system", found)
    monkeypatch.setattr(corpus_index.CorpusIndex, "_open", lambda index: found(index.folder))
    return memory


@pytest.mark.parametrize(
    ("kind", "path", "data"),
    [
        (CorpusKind.CSV, "deep/er/a.csv", b"n\n1\n2\n"),
        (CorpusKind.JSONL, "deep/a.jsonl", LINE + b"\n"),
        (CorpusKind.JSONL, "a.json.gz", gzip.compress(LINE)),
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
    with pytest.raises(corpus_sources.SourceError, match="there is no table in it"):
        reading.refresh()
