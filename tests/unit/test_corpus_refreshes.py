"""Refreshes of a corpus: what is read in steps equals what is read at once, and ids, changes, versions are right."""

from __future__ import annotations

import csv
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reference import ind_hash
from service.core.column_filters import Filters, exclude
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus import CorpusKind, CorpusSettings
from service.core.corpus_choices import Algorithm
from service.core.corpus_inds import find_inds
from service.core.errors import DamagedIndexError, SourceError, StateError
from spark_jobs import corpus_files, corpus_sources
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.corpus_sources import list_corpus, reading_settings
from spark_jobs.corpus_state import CorpusState
from tests.corpus_reading import (
    A_WHILE_AGO,
    Columns,
    Reading,
    changed_columns,
    column_names,
    fault_of,
    held,
    keys_of,
    put,
)
from tests.lakes import LAKES, unpack

Tables = dict[str, list[list[str]]]
"""The rows of tables by name, without headers."""

VALUES = st.sampled_from(["1", "2", "a", "b", "é", ""])
TABLE = st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=3))
CORPORA = st.lists(st.dictionaries(st.sampled_from("stuvwxyz"), TABLE, max_size=6), min_size=1, max_size=4)
OFTEN = st.sampled_from([[["1"]], [["a"], ["b"]], [["1", "2"]]])
LINES = st.lists(st.lists(OFTEN | TABLE.filter(bool), max_size=7), min_size=2, max_size=4)
"""Lines of which some stand there more than once."""
FACTS = ("distinct", "rows", "null_only", "integers_only")


def expected_columns(tables: Tables, ending: str) -> Columns:
    return keys_of(
        {
            (f"{name}{ending}", place): {row[place] for row in rows} - {""}
            for name, rows in tables.items()
            for place in range(len(rows[0]) if rows else 1)
        }
    )


def require_same_as_full(reading: Reading, state: CorpusState, folder: Path) -> None:
    """Compare a state with that of a reading from nothing: values, facts, sums, by names."""
    fresh = Reading(reading.location, reading.kind, CorpusIndex(str(folder)), reading.settings)
    full = fresh.refresh()
    assert held(reading.index, state.manifest) == held(fresh.index, full.manifest)

    def described(of: CorpusState) -> dict[tuple[str, int], tuple[object, ...]]:
        names = column_names(of.manifest)
        facts = [getattr(of.facts, name).tolist() for name in FACTS]
        rows = zip(of.column_ids.tolist(), *facts, of.sums.tolist(), strict=True)
        return {names[column]: tuple(more) for column, *more in rows}

    assert described(state) == described(full)
    assert np.all(np.diff(state.column_ids) > 0)


def require_right_step(
    before: CorpusState | None, after: CorpusState, held_before: Columns, held_after: Columns
) -> None:
    """Hold ids, changes and versions of two states that follow each other against their definition."""
    names = column_names(after.manifest)
    old_names = {} if before is None else column_names(before.manifest)
    old_rows = {} if before is None else dict(zip(before.column_ids.tolist(), before.facts.rows.tolist(), strict=True))
    rows = dict(zip(after.column_ids.tolist(), after.facts.rows.tolist(), strict=True))
    changed = {
        column for column, name in names.items()
        if column not in old_names
        or held_before[old_names[column]] != held_after[name] or old_rows[column] != rows[column]
    }  # fmt: skip
    assert set(after.column_ids[after.changed].tolist()) == changed
    assert set(after.gone_columns.tolist()) == old_names.keys() - names.keys()


@settings(max_examples=30)
@given(corpora=CORPORA, task_bytes=st.sampled_from([1, 32 << 20]))
def test_a_folder_read_in_steps_equals_one_read_at_once(
    corpora: list[Tables], task_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("steps")
    reading = Reading(folder / "lake", CorpusKind.CSV, CorpusIndex(str(folder / "index")), CorpusSettings(("",)))
    put(folder / "lake" / "always.csv", b"x\n1\n")
    before, held_before = None, {}
    written: dict[str, int] = {}
    for step, tables in enumerate(corpora):
        for path in (folder / "lake").glob("?.csv"):
            path.unlink()
        for name, rows in tables.items():
            width = len(rows[0]) if rows else 1
            lines = [
                ",".join(f"c{place}" for place in range(width)),
                *(",".join(f'"{cell}"' for cell in row) for row in rows),
            ]
            # A file that is as it was keeps its time of change.
            data = ("\n".join(lines) + "\n").encode()
            unchanged = step and corpora[step - 1].get(name) == rows
            written[name] = written[name] if unchanged else step
            put(folder / "lake" / f"{name}.csv", data, change=written[name])
        reading.task_bytes = task_bytes
        state = reading.refresh()
        assert reading.plan is not None
        kept = {n for n in tables if step and corpora[step - 1].get(n) == tables[n]}
        assert len(reading.plan.kept) == len(kept) + bool(step)
        found = held(reading.index, state.manifest)
        assert found == expected_columns(tables, ".csv") | {("always.csv", 0): found["always.csv", 0]}
        require_same_as_full(reading, state, folder / f"full-{step}")
        require_right_step(before, state, held_before, found)
        if before is not None:
            widths = {
                path: len(names)
                for path, names in zip(*(before.manifest.tables[n].to_pylist() for n in ("path", "names")), strict=True)
            }
            now = {name: column for column, name in column_names(state.manifest).items()}
            was = {name: column for column, name in column_names(before.manifest).items()}
            for (path, place), column in now.items():
                same_width = widths.get(path) == sum(1 for other, _ in now if other == path)
                assert (was.get((path, place)) == column) == same_width
        before, held_before = state, found


@settings(max_examples=30)
@given(versions=LINES, task_bytes=st.sampled_from([64, 32 << 20]))
def test_lines_read_in_steps_equal_lines_read_at_once(
    versions: list[list[list[list[str]]]], task_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("steps")
    reading = Reading(folder / "lake", CorpusKind.JSONL, CorpusIndex(str(folder / "index")), CorpusSettings(("",)))
    reading.task_bytes = task_bytes
    before, held_before = None, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_sources, "LEAST_TASK_BYTES", 1)
        for step, tables in enumerate(versions):
            lines = [json.dumps({"relation": [list(column) for column in zip(*rows, strict=True)]}) for rows in tables]
            put(folder / "lake" / "all.jsonl", "".join(line + "\n" for line in lines).encode(), change=step)
            put(folder / "lake" / "other.jsonl", lines[0].encode() if lines else b"", change=step)
            state = reading.refresh()
            found = held(reading.index, state.manifest)
            by_path = {f"all.jsonl#{n}": rows for n, rows in enumerate(tables, 1)}
            by_path |= {"other.jsonl#1": tables[0]} if tables else {}
            assert found == expected_columns(by_path, "")
            require_same_as_full(reading, state, folder / f"full-{step}")
            require_right_step(before, state, held_before, found)
            if step:
                read = sum(len(result.tables) for result in reading.results)
                known = {json.dumps(rows) for rows in versions[step - 1]}
                assert read == sum(json.dumps(rows) not in known for rows in tables) + (
                    bool(tables) and (not versions[step - 1] or tables[0] != versions[step - 1][0])
                )
            before, held_before = state, found


def test_a_line_put_before_others_moves_them_and_changes_no_column(tmp_path: Path) -> None:
    lines = [json.dumps({"relation": [[f"a{n}", "b"]]}) for n in range(5)]
    reading = Reading(tmp_path / "lake", CorpusKind.JSONL, CorpusIndex(str(tmp_path / "index")))
    put(tmp_path / "lake" / "all.jsonl", "\n".join(lines).encode())
    before = reading.refresh()
    put(tmp_path / "lake" / "all.jsonl", "\n".join([json.dumps({"relation": [["new"]]}), *lines]).encode(), change=1)
    after = reading.refresh()
    assert changed_columns(after) == {("all.jsonl#1", 0)}
    assert after.gone_columns.tolist() == []
    assert after.column_ids.tolist() == [*before.column_ids.tolist(), 5]
    versions = after.new_versions(exclude(after.facts, Filters()))
    assert versions.paths.to_pylist() == [f"all.jsonl#{n}" for n in (2, 3, 4, 5, 6, 1)]
    assert versions.first_columns.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_line_that_is_there_more_often_than_before_is_another_table_with_the_same_values(tmp_path: Path) -> None:
    once, other = (json.dumps({"relation": [[cell, "b"]]}) for cell in ("a", "c"))
    reading = Reading(tmp_path / "lake", CorpusKind.JSONL, CorpusIndex(str(tmp_path / "index")))
    for step, lines in enumerate([[once, other], [other, once, once, once], [once, once]]):
        put(tmp_path / "lake" / "all.jsonl", "\n".join(lines).encode(), change=step)
        state = reading.refresh()
        cells = {once: {"a", "b"}, other: {"c", "b"}}
        expected = {(f"all.jsonl#{n}", 0): cells[line] for n, line in enumerate(lines, 1)}
        assert held(reading.index, state.manifest) == keys_of(expected)
        assert sum(len(result.tables) for result in reading.results) == (2 if step == 0 else 0)
    assert state.column_ids.tolist() == [0, 2]
    assert not state.changed.any()
    assert state.gone_columns.tolist() == [1, 3]


def test_versions_are_written_of_tables_that_differ_in_anything_that_is_told_of_them(tmp_path: Path) -> None:
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    for name in ("same", "touched", "renamed", "longer", "other", "gone"):
        put(tmp_path / "lake" / f"{name}.csv", b"a,b\n1,2\n")
    reading.refresh()
    put(tmp_path / "lake" / "touched.csv", b"a,b\n1,2\n", change=1)
    put(tmp_path / "lake" / "renamed.csv", b"a,c\n1,2\n", change=1)
    put(tmp_path / "lake" / "longer.csv", b"a,b\n1,2\n1,2\n", change=1)
    put(tmp_path / "lake" / "other.csv", b"a,b\n1,3\n", change=1)
    (tmp_path / "lake" / "gone.csv").unlink()
    after = reading.refresh()
    versions = after.new_versions(exclude(after.facts, Filters()))
    assert sorted(versions.paths.to_pylist()) == ["longer.csv", "other.csv", "renamed.csv"]
    assert changed_columns(after) == {("longer.csv", 0), ("longer.csv", 1), ("other.csv", 1)}
    assert len(after.gone_columns) == 2
    assert len(after.gone_tables) == 1
    assert versions.names.to_pylist() == ["a", "b", "a", "b", "a", "c"]
    assert versions.rows.tolist() == [2, 1, 1]


@pytest.fixture(scope="module")
def web_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("webtables_2k", tmp_path_factory.mktemp("web"))


@pytest.mark.parametrize("kind", [CorpusKind.CSV, CorpusKind.PARQUET, CorpusKind.JSONL])
def test_web_tables_have_the_published_inds_whatever_they_are_packed_in(
    web_tables: Path, tmp_path: Path, kind: CorpusKind
) -> None:
    location = web_tables if kind is CorpusKind.CSV else tmp_path / "lake"
    names = pack(web_tables, location, kind)
    reading = Reading(location, kind, CorpusIndex(str(tmp_path / "index")), CorpusSettings(("",)))
    state = reading.refresh()
    assert not state.faults
    columns = {column: (names[path], place) for column, (path, place) in column_names(state.manifest).items()}
    assert len(columns) == 12_598
    ids, starts, keys = reading.index.columns(state.manifest.part_columns())
    sets = ColumnSets.of_keys(starts, keys)
    every = np.ones(len(ids), np.bool_)
    blocks = find_inds(group_columns(sets, every, every), sets.keys, Algorithm.RAREST_FIRST)
    found = [pair for block in blocks for pair in zip(block.dependent, block.referenced, strict=True)]
    assert ind_hash((columns[ids[one]], columns[ids[other]]) for one, other in found) == LAKES["webtables_2k"][1:]


def pack(tables: Path, location: Path, kind: CorpusKind) -> dict[str, str]:
    """Write tables as another kind; give the path that each had by the path that it has."""
    files = sorted(tables.rglob("*.csv"))
    was = [path.relative_to(tables).as_posix() for path in files]
    if kind is CorpusKind.CSV:
        return dict(zip(was, was, strict=True))
    location.mkdir()
    lines = []
    for path in files:
        with path.open(encoding="utf-8", newline="") as file:
            columns = [list(column) for column in zip(*csv.reader(file), strict=True)]
        lines.append(json.dumps({"relation": columns, "hasHeader": True}))
        if kind is CorpusKind.PARQUET:
            table = pa.table([pa.array(column[1:]) for column in columns], [column[0] for column in columns])
            pq.write_table(table, location / f"{path.stem}.parquet")
    if kind is CorpusKind.PARQUET:
        return {f"{path.stem}.parquet": name for path, name in zip(files, was, strict=True)}
    put(location / "all.jsonl", "\n".join(lines).encode())
    return {f"all.jsonl#{number}": name for number, name in enumerate(was, 1)}


def test_an_index_that_is_not_as_it_was_written_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "lake" / "a.csv", b"a\n1\n")
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    reading.refresh()
    wanted = reading_settings(reading.settings)
    reading.index.load(1, wanted)
    (part,) = (tmp_path / "index" / "parts").iterdir()
    whole = part.read_bytes()

    def refused(message: str, generation: int = 1, like: dict[str, object] = wanted) -> None:
        with pytest.raises(DamagedIndexError, match=message):
            reading.index.load(generation, like)

    refused("there is no index of generation 2", 2)
    refused("of other settings", like=wanted | {"null_tokens": ["-"]})
    part.write_bytes(whole[:-1])
    refused("not as it was written")
    part.write_bytes(bytes(len(whole)))
    with pytest.raises(DamagedIndexError, match="cannot be read"):
        reading.index.columns(reading.index.load(1, wanted).part_columns())
    part.unlink()
    refused("the part is gone")
    part.write_bytes(whole)
    reading.index.load(1, wanted)
    (tmp_path / "index" / "generation-1" / "tables.parquet").write_bytes(b"")
    refused("there is no index of generation 1")
    (tmp_path / "index" / "generation-1" / "manifest.json").unlink()
    refused("there is no index of generation 1")


def test_an_index_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    put(tmp_path / "lake" / "a.csv", b"a\n1\n")
    put(tmp_path / "index" / "parts", b"in the way")
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    with pytest.raises(StateError, match=r"the index of the corpus cannot be written: .* another folder"):
        reading.refresh()


def test_what_a_refresh_that_died_left_in_the_index_goes_and_what_is_served_stays(tmp_path: Path) -> None:
    put(tmp_path / "lake" / "a.csv", b"a\n1\n")
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    served = reading.refresh().manifest
    writer = reading.index.write(reading.settings.signed_by)
    writer.add(np.array([0, 0]), reading.index.columns([])[2])
    writer.close()
    reading.index.save(replace(served, generation=2))
    others = [tmp_path / "index" / name for name in ("parts/mine.parquet", "mine.txt", "generation-x/a")]
    for other in others:  # somebody may have named a folder that has more in it
        put(other, b"")
    reading.index.keep_only(served)
    for other in others:
        other.unlink()
    others[-1].parent.rmdir()
    assert {path.name for path in (tmp_path / "index").rglob("*")} == {
        "parts", f"{served.parts[0].name}.parquet", "generation-1", "manifest.json", "tables.parquet", "files.parquet",
    }  # fmt: skip
    reading.index.keep_only(None)
    assert not [*(tmp_path / "index" / "parts").iterdir()]


def test_parts_that_are_mostly_dead_or_many_and_small_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    monkeypatch.setattr(corpus_sources, "PARTS_KEPT", 4)
    for name in range(8):
        put(tmp_path / "lake" / f"{name}.csv", f"a,b\n{name},x\n".encode())
    parts = [{part.name for part in reading.refresh().manifest.parts}]
    for step in range(1, 8):
        put(tmp_path / "lake" / f"{step % 8}.csv", f"a,b\n{step}{step},y\n".encode(), change=step)
        state = reading.refresh()
        parts.append({part.name for part in state.manifest.parts})
        require_same_as_full(reading, state, tmp_path / f"full-{step}")
        assert len(changed_columns(state)) == 2
    assert not parts[-1] & parts[0]  # half of the first part had died
    assert max(map(len, parts)) <= 6


def test_a_part_most_of_which_is_dead_is_copied_when_nothing_else_changes(tmp_path: Path) -> None:
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    for name in range(8):
        put(tmp_path / "lake" / f"{name}.csv", f"a,b\n{name},x\n".encode())
    (first,) = reading.refresh().manifest.parts
    for name in range(5):
        put(tmp_path / "lake" / f"{name}.csv", f"a,b\n{name}{name},y\n".encode(), change=1)
    assert first in reading.refresh().manifest.parts
    state = reading.refresh()
    assert first not in state.manifest.parts
    assert sorted(part.cells for part in state.manifest.parts) == [6, 10]
    assert not state.changed.any()
    assert not state.is_new.any()
    require_same_as_full(reading, state, tmp_path / "full")


@pytest.mark.parametrize(("data", "change"), [(b"a\n2\n", 1), (b"a\n1\n2\n", 0)])
def test_a_file_of_another_size_or_time_is_read_again(tmp_path: Path, data: bytes, change: int) -> None:
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    put(tmp_path / "lake" / "a.csv", b"a\n1\n")
    put(tmp_path / "lake" / "b.csv", b"a\n1\n")
    reading.refresh()
    put(tmp_path / "lake" / "a.csv", data, change)
    assert changed_columns(reading.refresh()) == {("a.csv", 0)}


def test_what_is_too_fresh_to_be_told_from_a_later_change_is_read_again(tmp_path: Path) -> None:
    for name in ("old", "fresh"):
        put(tmp_path / "lake" / f"{name}.csv", b"a\n1\n")
    now = time.time_ns()
    os.utime(tmp_path / "lake" / "fresh.csv", ns=(now + 10**9, now + 10**9))
    reading = Reading(tmp_path / "lake", CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    reading.refresh()
    reading.refresh()
    assert reading.plan is not None
    assert reading.plan.read["path"].to_pylist() == ["fresh.csv"]


def test_listings(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name in ("b/c.CSV", "a.csv", "b/d.tsv", "e.parquet", ".f.csv", "_g/h.csv", "i.csv/j.csv", "名/k l.csv"):
        put(lake / name, b"a\n")
    settings = CorpusSettings()
    whole = list_corpus(str(lake), CorpusKind.CSV, settings)
    assert whole.paths == ["a.csv", "b/c.CSV", "b/d.tsv", "i.csv/j.csv", "名/k l.csv"]
    assert set(whole.sizes.tolist()) == {2}
    assert set(whole.modified.tolist()) == {A_WHILE_AGO}
    assert list_corpus(f"file://{lake}/", CorpusKind.CSV, settings).paths == whole.paths
    assert list_corpus(str(lake / "b" / "c.CSV"), CorpusKind.CSV, settings).paths == ["c.CSV"]
    with pytest.raises(SourceError, match="there is no table in it"):
        list_corpus(str(lake / "b"), CorpusKind.JSONL, settings)
    with pytest.raises(SourceError, match="no such file or folder"):
        list_corpus(str(tmp_path / "z"), CorpusKind.CSV, settings)


@pytest.mark.parametrize("kind", [CorpusKind.PARQUET, CorpusKind.JSONL])
@pytest.mark.parametrize("below", ["", "deep/index"])
def test_an_index_below_the_location_is_no_table_of_it(tmp_path: Path, kind: CorpusKind, below: str) -> None:
    lake = tmp_path / "lake"
    own = {"a.parquet", "parts/b.parquet", f"parts/{'0' * 32}.parquet", "generation-1/tables.parquet"}
    if kind is CorpusKind.JSONL:
        own = {"a.json", "generation-1/manifest.json", "generation-1/b.json"}
    for name in own:
        if kind is CorpusKind.JSONL:
            put(lake / "own" / name, b'{"relation": [["1"]]}\n')
        else:
            (lake / "own" / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"a": ["1"]}), lake / "own" / name)
    reading = Reading(lake, kind, CorpusIndex(str(lake / below)))
    reading.index.claim("database", 1, {})
    for _ in range(3):
        state = reading.refresh()
        assert set(state.manifest.files["path"].to_pylist()) == {f"own/{name}" for name in own}
        assert not state.faults


def test_what_is_no_file_or_cannot_be_listed_is_told_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    for name in ("a.csv", "barred/b.csv", "c/d.csv", "elsewhere/e.csv"):
        put(lake / name, b"a\n1\n")
    (lake / "elsewhere").rename(tmp_path / "elsewhere")
    os.mkfifo(lake / "pipe.csv")
    (lake / "nowhere.csv").symlink_to("gone")
    (lake / "c" / "loop").symlink_to("..")
    (lake / "linked").symlink_to(tmp_path / "elsewhere")
    (lake / "linked.csv").symlink_to("a.csv")
    os.close(os.open(os.fsencode(lake) + b"/\xff.csv", os.O_CREAT))
    real = corpus_files.list_folder

    def barred(folder: str) -> list[os.DirEntry[str]]:
        if folder.endswith("/barred"):  # tests run as root, whom no permission stops
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(corpus_files, "list_folder", barred)
    state = Reading(lake, CorpusKind.CSV, CorpusIndex(str(tmp_path / "index"))).refresh()
    assert fault_of(state) == {
        "barred": "unreadable: the folder cannot be listed: Permission denied",
        "c/loop": "unreadable: the folder is, by a link, one it is in",
        "nowhere.csv": "unreadable: it cannot be read: No such file or directory",
        "pipe.csv": "unreadable: it is no ordinary file",
        "\ufffd.csv": "unreadable: its name is no UTF-8: give it another",
    }
    assert state.manifest.tables["path"].to_pylist() == ["a.csv", "c/d.csv", "linked.csv", "linked/e.csv"]


def test_tables_that_were_served_and_are_in_a_folder_that_cannot_be_listed_are_faults_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One folder must not count as one table: the share of failures would let most of a corpus go."""
    lake = tmp_path / "lake"
    for name in ("a.csv", "gone.csv", "barred/b.csv", "barred/c/d.csv", "barred.csv"):
        put(lake / name, b"a\n1\n")
    reading = Reading(lake, CorpusKind.CSV, CorpusIndex(str(tmp_path / "index")))
    reading.refresh()
    (lake / "gone.csv").unlink()
    real = corpus_files.list_folder

    def barred(folder: str) -> list[os.DirEntry[str]]:
        if folder.endswith("/barred"):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(corpus_files, "list_folder", barred)
    state = reading.refresh()
    assert state.manifest.tables["path"].to_pylist() == ["a.csv", "barred.csv"]
    assert fault_of(state) == {
        "barred": "unreadable: the folder cannot be listed: Permission denied",
        "barred/b.csv": "unreadable: barred could not be read",
        "barred/c/d.csv": "unreadable: barred could not be read",
    }
    monkeypatch.undo()
    assert len(reading.refresh().manifest.tables) == 4
