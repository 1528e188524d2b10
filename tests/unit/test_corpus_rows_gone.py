"""A file of an indexed corpus that is gone since is told as gone, whatever the corpus is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.corpus import CorpusKind, CorpusSettings
from spark_jobs.corpus_rows import read_rows
from spark_jobs.corpus_tables import FaultKind, TableError


@pytest.mark.parametrize(("kind", "name"), [(CorpusKind.CSV, "t.csv"), (CorpusKind.PARQUET, "t.parquet")])
def test_a_file_that_is_gone_is_told_apart_from_an_empty_one(tmp_path: Path, kind: CorpusKind, name: str) -> None:
    def fault() -> FaultKind:
        ((path, found),) = read_rows(kind, str(tmp_path), CorpusSettings(), {name: [0]})
        assert path == name
        assert isinstance(found, TableError)
        return found.kind

    assert fault() is FaultKind.VANISHED
    (tmp_path / name).touch()
    assert fault() is FaultKind.EMPTY
