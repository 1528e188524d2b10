"""Refreshes by the job itself, without Spark: changed settings, whose an index is, how much a broken file may be."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import pytest

from service.core.column_filters import Reason
from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import SourceError
from service.store.backup import back_up, restore
from service.store.embedded import EmbeddedPostgres
from service.usecases.corpora import ColumnFilter, NewCorpus, RefreshState
from tests import states
from tests.postgres import TEMPLATE, fresh_database
from tests.refreshing import Lake, expected_inds, write_tables
from tests.states import Tables


def no_spark() -> NoReturn:
    raise AssertionError("so little is read without Spark")


def lake_in(url: str, folder: Path, data_dir: Path, **settings: Any) -> Lake:
    """Register a corpus under a name that other databases have, too."""
    lake = Lake(url, folder, **settings)
    lake.corpora.remove(lake.name)
    lake.data_dir, lake.name = data_dir, "lake"
    lake.corpora.add(NewCorpus("lake", str(folder), CorpusKind.CSV, CorpusSettings.from_json(settings)))
    return lake


def test_corpora_of_one_name_in_two_databases_share_a_data_folder(
    postgres_server: EmbeddedPostgres, database_url: str, tmp_path: Path
) -> None:
    with fresh_database(postgres_server, TEMPLATE) as other_url:
        lakes = [lake_in(url, tmp_path / f"lake{n}", tmp_path) for n, url in enumerate((database_url, other_url))]
        assert len({lake.corpora.database() for lake in lakes}) == 2
        for step in range(2):
            for n, lake in enumerate(lakes):
                tables = {"a.csv": [["1", "2"]], "b.csv": [["1", "2", f"{n}{step}"]]}
                write_tables(lake.folder, tables)
                lake.refresh(no_spark)
                assert lake.inds() == expected_inds({(name, 0): set(cells) for name, (cells,) in tables.items()})
                assert lake.report["index"] == ("used" if step else "There was none: it is the first generation.")
        lakes[1].corpora._engine.dispose()


def test_an_index_that_is_named_is_refused_to_another_database(
    postgres_server: EmbeddedPostgres, database_url: str, tmp_path: Path
) -> None:
    write_tables(tmp_path / "lake", {"a.csv": [["1", "2"]], "b.csv": [["1"]]})
    index = str(tmp_path / "index")
    with fresh_database(postgres_server, TEMPLATE) as other_url:
        ours, theirs = (lake_in(url, tmp_path / "lake", tmp_path, index=index) for url in (database_url, other_url))
        ours.refresh(no_spark)
        kept = sorted(path.name for path in (tmp_path / "index").rglob("*"))
        with pytest.raises(SourceError, match=r"index is that of a corpus in another database .*--index"):
            theirs.refresh(no_spark)
        assert sorted(path.name for path in (tmp_path / "index").rglob("*")) == kept
        ours.refresh(no_spark)
        assert ours.report["index"] == "used"
        theirs.corpora._engine.dispose()


def test_an_index_is_that_of_one_corpus_however_its_folder_is_written(database_url: str, tmp_path: Path) -> None:
    write_tables(tmp_path / "lake", {"a.csv": [["1", "2"]], "b.csv": [["1"]]})
    write_tables(tmp_path / "sea", {"a.csv": [["3"]], "b.csv": [["1"]]})
    index = tmp_path / "index"
    ours = Lake(database_url, tmp_path / "lake", index=str(index))
    other = Lake(database_url, tmp_path / "sea", index=f"file://{index}")
    ours.refresh(no_spark)
    (index / "owner").write_text(ours.corpora.database())  # as earlier versions did
    ours.refresh(no_spark)
    assert ours.report["index"] == "used"
    with pytest.raises(SourceError, match=rf"index is that of the corpus {ours.name}\..*--index"):
        other.refresh(no_spark)
    other.corpora.end(other.last().refresh_id, RefreshState.FAILED, "as its runner would say")
    ours.refresh(no_spark)
    assert ours.report["index"] == "used"
    ours.corpora.remove(ours.name)
    other.refresh(no_spark)
    assert other.inds() == {}
    assert len(list(index.glob("generation-*"))) == 1, "what was another's is gone"


def test_an_index_of_the_history_before_a_restore_is_not_used(database_url: str, tmp_path: Path) -> None:
    states.store(database_url, Tables({"t": ["id"]}))
    lake = Lake(database_url, tmp_path / "lake")

    def refresh(*cells: str) -> None:
        tables = {"a.csv": [["1", "2"]], "b.csv": [list(cells)]}
        write_tables(lake.folder, tables)
        lake.refresh(no_spark)
        assert lake.inds() == expected_inds({(name, 0): set(found) for name, (found,) in tables.items()})

    def restored(name: str) -> None:
        lake.corpora._engine.dispose()
        restore(database_url, tmp_path / name, replace=True, telling=lambda _: None)

    refresh("1")
    back_up(database_url, tmp_path / "first")
    refresh("1", "2")
    back_up(database_url, tmp_path / "second")
    restored("first")
    refresh("3")  # it is generation 2 as well
    restored("second")
    refresh("3")
    assert "the index is of another history" in lake.report["index"]
    refresh("3")
    assert lake.report["index"] == "used"


@pytest.mark.parametrize("torn", [0.3, 0.9])
def test_a_file_that_breaks_off_counts_as_the_tables_that_its_size_is_worth(
    database_url: str, tmp_path: Path, torn: float
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    for name in ("a", "b", "c"):
        lines = "".join(json.dumps({"relation": [[f"{name}{n}{k}" for k in range(9)]]}) + "\n" for n in range(200))
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(lines.encode()))
    whole = (folder / "c.json.gz").read_bytes()
    (folder / "c.json.gz").write_bytes(b"\0" * int(len(whole) * torn))
    # As much of 400 and what is lost as `torn` of 200: with one fault for the file it would be 1 of 401.
    share = Fraction(int(200 * torn), 400 + int(200 * torn))
    lake = Lake(database_url, folder, CorpusKind.JSONL, max_failed=str(share - Fraction(1, 50)))
    with pytest.raises(SourceError, match=r"tables of .* cannot be read \(\d+ by the sizes of files that break off\)"):
        lake.refresh(no_spark)
    lake.corpora.end(lake.last().refresh_id, RefreshState.FAILED, "as its runner would say")
    lake.change({"max_failed": str(share + Fraction(1, 50))})
    lake.refresh(no_spark)
    assert lake.report["tables"] == 400
    assert lake.report["files"]["faults"] == 1


def test_a_refresh_after_the_settings_were_changed_goes_by_them_alone(database_url: str, tmp_path: Path) -> None:
    tables = {"a.csv": [["1", "2", "-"]], "b.csv": [["1", "2"]], "c.csv": [["x"]], "d.csv": [["x", "y"]]}
    write_tables(tmp_path / "lake", tables)
    cells = {(name, 0): set(found) for name, (found,) in tables.items()}
    lake = Lake(database_url, tmp_path / "lake")
    lake.refresh(no_spark)
    assert lake.inds() == expected_inds(cells)

    lake.change({"null_tokens": ["-"]})
    lake.refresh(no_spark)
    cells["a.csv", 0] -= {"-"}
    assert lake.inds() == expected_inds(cells)
    assert "other settings" in lake.report["index"]

    lake.change({"integer_columns": True})
    with lake.corpora.snapshot(lake.name) as snapshot:  # found without the filter
        assert snapshot.pair(ColumnFilter("a.csv", 0), ColumnFilter("c.csv", 0)).examined
    lake.refresh(no_spark)
    assert lake.inds().keys() == {(("c.csv", 0), ("d.csv", 0))}
    for generation, reasons in ((3, Reason.INTEGER_COLUMN), (2, Reason(0))):
        with lake.corpora.snapshot(lake.name, generation) as snapshot:
            assert snapshot.pair(ColumnFilter("a.csv", 0), ColumnFilter("c.csv", 0)).reasons == reasons

    lake.refresh(no_spark)
    assert (lake.report["index"], lake.report["settings"]["integer_columns"]) == ("used", True)
