"""The measuring itself: results and their goals, watched processes, made data, and the baselines' answers."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from random import Random
from types import SimpleNamespace

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import (
    data_sets,
    feeds,
    growth_page,
    pages,
    processes,
    profilers,
    reference,
    results_file,
    state_comparison,
    table_changes,
    tpch,
    wide,
)
from benchmarks.context import Context
from benchmarks.feeds import Change
from benchmarks.results_file import Result
from benchmarks.rows import ROWS, follow_spark, freshness, many_records, module_of

MIB = 2**20


def context(folder: Path, size: float = 1, seed: int = 1) -> Context:
    return Context(Console(file=io.StringIO()), seed, folder, size=size)


# Results


def test_a_ratio_is_value_over_baseline_and_a_goal_is_about_one_of_them():
    slower = Result("time", 20, "s", "peer", 10, goal="ratio <= 2.5")
    assert (slower.ratio, slower.holds) == (2, True)
    assert Result("time", 30, "s", "peer", 10, goal="ratio <= 2.5").holds is False
    assert Result("rate", 5000, "tuples/s", goal="value >= 5000").holds is True


def test_a_metric_without_a_goal_neither_holds_nor_fails_and_a_missing_baseline_fails_its_goal():
    assert Result("memory", 3, "GB").holds is None
    assert Result("time", 1, "s", goal="ratio <= 2").holds is False


def test_a_row_that_runs_again_replaces_its_own_objects_only(tmp_path: Path):
    path = tmp_path / "latest.json"
    for row, value in (("one", 1), ("two", 2), ("one", 3)):
        results_file.store(row, results_file.as_objects(row, 7, [Result("m", value, "s")]), path)
    kept = results_file.load(path)
    assert [(one["row"], one["value"]) for one in kept] == [("two", 2), ("one", 3)]
    names = "row, metric, value, unit, baseline, baseline_value, ratio, goal, holds, seed, machine, versions"
    assert ", ".join(kept[0]) == names


def test_the_table_says_of_a_goal_that_does_not_hold_that_it_does_not():
    results = [Result("time", 30, "s", "peer", 10, "ratio <= 2.5"), Result("memory", 1.234, "GB", goal="value <= 2")]
    assert results_file.markdown_table(results_file.as_objects("row", 1, results)).splitlines() == [
        "| Row | Metric | Value | Beside it | Ratio | Goal | Holds |",
        "| --- | --- | ---: | --- | ---: | --- | --- |",
        "| `row` | time | 30 s | peer: 10 | 3 | ratio ≤ 2.5 | **no** |",
        "| `row` | memory | 1.23 GB |  |  | value ≤ 2 | yes |",
    ]


def test_an_exponent_is_that_of_the_power_law_the_sizes_lie_on():
    assert results_file.exponent([1, 4, 16], [3, 12, 48]) == pytest.approx(1)
    assert results_file.exponent([10, 1000], [5, 50]) == pytest.approx(0.5)


@pytest.fixture
def fake_row(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module = SimpleNamespace(SEED=7, run=lambda _: [Result("m", 1, "s", goal="value <= 2"), Result("n", 3, "s")])
    monkeypatch.setattr(command, "module_of", lambda _: module)
    return module


def test_the_command_keeps_what_it_measured(fake_row: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "latest.json"
    assert command.main(["--only", "freshness", "--results", str(path)]) == 0
    assert [(one["row"], one["seed"]) for one in results_file.load(path)] == 2 * [("freshness", 7)]
    assert "freshness (seed 7)" in capsys.readouterr().out
    assert command.main(["--table", "--results", str(path)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "freshness" in line] == [
        "| `freshness` | m | 1 s |  |  | value ≤ 2 | yes |"
    ]


def test_a_row_finds_its_work_folder_in_a_new_clone_too(
    fake_row: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    work = tmp_path / "work"
    monkeypatch.setattr(command, "WORK", work)
    fake_row.run = lambda context: [Result("folders", context.work == work and work.is_dir(), "")]
    path = tmp_path / "latest.json"
    assert command.main(["--only", "freshness", "--results", str(path)]) == 0
    assert [one["value"] for one in results_file.load(path)] == [True]


def test_a_trial_in_another_size_is_shown_and_not_kept(fake_row: SimpleNamespace, tmp_path: Path):
    path = tmp_path / "latest.json"
    assert command.main(["--only", "freshness", "--size", "0.5", "--results", str(path)]) == 0
    assert not path.exists()


def test_a_row_that_cannot_be_measured_costs_no_other_row(
    fake_row: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture
):
    path = tmp_path / "latest.json"

    def fail_on_its_seed(context: Context) -> list[Result]:
        fake_row.run = lambda _: [Result("m", 1, "s")]
        raise ValueError("no such thing")

    fake_row.run = fail_on_its_seed
    assert command.main(["--results", str(path)]) == 1
    first, *others = ROWS
    assert {one["row"] for one in results_file.load(path)} == set(others)
    captured = capsys.readouterr()
    assert "no such thing" in captured.err
    assert f"Not measured, see above: {first}" in captured.out


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_a_module_with_a_seed_and_a_run(row: str):
    module = module_of(row)
    assert isinstance(module.SEED, int)
    assert callable(module.run)


# Processes


HOLD = "held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); print('held', flush=True); input()"
HOLD_IN_A_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"


@contextmanager
def python(code: str, executable: Path = Path(sys.executable)) -> Iterator[subprocess.Popen[bytes]]:
    """Run code that holds memory until the block ends; give the process once it does."""
    with subprocess.Popen([executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.communicate(b"\n")


def test_memory_and_cpu_are_those_of_the_whole_process_tree():
    code = HOLD_IN_A_CHILD.format(code=HOLD.format(size=200 * MIB))
    with python(code) as parent, processes.watched({"": parent.pid}) as usages:
        pass  # One sample is always taken.
    assert 200 * MIB < usages[""].peak_bytes < 300 * MIB
    assert len(usages[""].cpu_by_process) == 2
    assert usages[""].cpu_seconds > 0


def test_what_stands_below_java_are_workers(tmp_path: Path):
    java = tmp_path / "java"
    java.symlink_to(Path(sys.executable).resolve())
    above = f"own = b'x' * {100 * MIB}; " + HOLD_IN_A_CHILD.format(code=HOLD.format(size=200 * MIB))
    with python(above, java) as parent, processes.watched({"": parent.pid}) as usages:
        pass
    assert 200 * MIB < usages[""].workers_peak_bytes < 250 * MIB
    assert 300 * MIB < usages[""].peak_bytes < 400 * MIB


def test_a_tree_watched_beside_a_command_is_counted_on_its_own(tmp_path: Path):
    with python(HOLD.format(size=100 * MIB)) as server:
        measured = processes.run(
            [sys.executable, "-c", "print('done')"], log=tmp_path / "log", beside={"server": server.pid}
        )
    assert measured.output == "done\n"
    assert measured.beside["server"].peak_bytes > 100 * MIB
    assert measured.usage.peak_bytes < 100 * MIB


def test_a_command_that_fails_is_told_with_the_end_of_what_it_said(tmp_path: Path):
    with pytest.raises(processes.CommandFailed, match=r"(?s)ended with code 3.*it broke here"):
        processes.run(
            [sys.executable, "-c", "import sys; print('it broke here', file=sys.stderr); sys.exit(3)"],
            log=tmp_path / "log",
        )
    with pytest.raises(processes.CommandFailed, match="not there"):
        processes.run([tmp_path / "nothing"], log=tmp_path / "log")


# The reference


columns = st.dictionaries(
    st.tuples(st.sampled_from(["a.csv", "b.csv"]), st.integers(0, 3)), st.sets(st.sampled_from("uvwxyz"), min_size=1)
)


@given(columns)
def test_the_reference_finds_what_the_definition_says(columns: dict[reference.Column, set[str]]):
    assert set(reference.find_inds(columns)) == {
        (a, b) for a, b in permutations(columns, 2) if columns[a] <= columns[b]
    }


def test_the_reference_hashes_the_sorted_lines_and_takes_the_empty_text_as_null(tmp_path: Path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "t.csv").write_text('x,y,z\r\na,a,""\r\n"b\n,",,\r\n', newline="")
    inds = list(reference.find_inds(reference.read_columns(tmp_path)))
    assert reference.ind_hash(inds) == (1, sha256(b"tables/t.csv\t1\ttables/t.csv\t0\n").hexdigest())


# Changes


def test_an_envelope_has_debeziums_shape():
    record = orjson.loads(feeds.envelope(Change("u", "t", ("1", None), ("1", "é")), "s", ["a", "b"], 5))
    assert record["before"] == {"a": "1", "b": None}
    assert record["after"] == {"a": "1", "b": "é"}
    assert (record["op"], record["source"]["schema"], record["source"]["table"]) == ("u", "s", "t")


cells = st.one_of(st.none(), st.sampled_from("xyz"))
row = st.tuples(cells, cells)
changes = st.lists(
    st.one_of(
        st.builds(Change, st.just("c"), st.just("t"), st.none(), row),
        st.builds(Change, st.just("d"), st.just("t"), row, st.none()),
        st.builds(Change, st.just("u"), st.just("t"), row, row),
    )
)


@given(changes)
def test_netting_is_the_difference_of_all_cells_after_and_before(changes: list[Change]):
    difference: Counter[tuple[str, int]] = Counter()
    for change in changes:
        for one, sign in ((change.before, -1), (change.after, 1)):
            for attribute_id, cell in zip((10, 20), one or (), strict=False):
                if cell is not None:
                    difference[(cell, attribute_id)] += sign
    netted = feeds.net(changes, {"t": (10, 20)})
    flat = {(value, a): delta for value, deltas in netted.items() for a, delta in deltas.items()}
    assert flat == {key: count for key, count in difference.items() if count}


def test_random_changes_lead_from_the_old_tables_to_the_new_ones(tmp_path: Path):
    old = table_changes.Tables(
        {"t": ["a", "b"], "one": ["x"], "empty": ["y"]}, {"t": [("1", None), ("2", "é")], "one": [(None,)], "empty": []}
    )
    new = table_changes.read_tables(table_changes.write_tables(old, tmp_path / "copied"))
    assert new == old
    made = table_changes.change_randomly(new, 300, Random(1))
    rows = {name: Counter(held) for name, held in old.rows.items()}
    for change in made:
        if change.before is not None:
            assert rows[change.table][change.before] > 0
            rows[change.table][change.before] -= 1
        if change.after is not None:
            rows[change.table][change.after] += 1
    assert {name: +held for name, held in rows.items()} == {name: Counter(held) for name, held in new.rows.items()}
    assert {change.operation for change in made} == {"c", "u", "d"}
    assert table_changes.read_tables(table_changes.write_tables(new, tmp_path / "changed")) == new


def test_states_are_compared_part_by_part_with_an_example():
    one = {"attributes": Counter(["a"]), "INDs": Counter([("a", "b")])}
    assert state_comparison.differences(one, one) == []
    other = {"attributes": Counter(["a"]), "INDs": Counter([("b", "a")])}
    assert state_comparison.differences(one, other) == [
        "INDs: 1 and 1 rows differ, such as ('a', 'b') but ('b', 'a')",
    ]


# Made data


def test_lineitem_changes_touch_each_row_once_and_are_the_same_for_the_same_seed(tmp_path: Path):
    folder = tpch.tables(tmp_path, 0.001)
    made = tpch.lineitem_changes(folder, 50, context(tmp_path))
    assert made == tpch.lineitem_changes(folder, 50, context(tmp_path))
    assert made != tpch.lineitem_changes(folder, 50, context(tmp_path, seed=2))
    existing = Counter(tpch.sample_lineitems(folder, 6005, context(tmp_path)))
    gone = Counter(change.before for kind in ("delete", "update") for change in made[kind])
    assert gone.total() == 100
    assert gone <= existing
    for change in made["update"]:
        differing = {
            n for n, b, a in zip(tpch.lineitem_columns(folder), change.before, change.after, strict=True) if b != a
        }
        assert differing <= {"l_quantity", "l_extendedprice", "l_discount", "l_comment"}


def test_tpch_in_the_form_of_the_published_counts_has_quantities_with_two_decimals(tmp_path: Path):
    folder = tpch.write_two_decimals(tpch.tables(tmp_path, 0.001), tmp_path / "decimals")
    place = tpch.lineitem_columns(folder).index("l_quantity")
    assert all(row[place].endswith(".00") for row in tpch.sample_lineitems(folder, 100, context(tmp_path)))


def test_the_wide_data_have_the_clusters_and_inds_that_they_promise(tmp_path: Path):
    data = wide.make(context(tmp_path, size=0.02))
    columns = reference.read_columns(wide.write(data, tmp_path / "wide"))
    holders: dict[str, set[reference.Column]] = {}
    for column, values in columns.items():
        for value in values:
            holders.setdefault(value, set()).add(column)
    assert len(columns) == 400
    assert len({frozenset(of) for of in holders.values()}) == data.clusters == 5_000
    assert len(list(reference.find_inds(columns))) == wide.FEW_TABLES.inds


def test_many_records_are_as_many_as_they_promise_and_change_once_each(tmp_path: Path):
    made = 8_000
    folder = many_records.write(tmp_path / "big", made)
    columns = reference.read_columns(folder)
    values = {value for cells in columns.values() for value in cells}
    assert len(values) == many_records.values_of(made)
    assert len(list(reference.find_inds(columns))) == many_records.INDS
    with (folder / "orders.csv").open() as lines:
        rows = {tuple(row) for row in list(csv.reader(lines))[1:]}
    changes = many_records.changes(context(tmp_path, size=0.01), made)
    before = [change.before for change in changes if change.before]
    after = [change.after for change in changes if change.after]
    assert len(before) == len(set(before)) == len(after) == 400
    assert set(before) <= rows
    kept = (rows - set(before)) | set(after)
    assert len(kept) == len({row[0] for row in kept}) == len({row[2] for row in kept}) == made


def test_wide_changes_can_be_applied_in_their_order(tmp_path: Path):
    data = wide.make(context(tmp_path, size=0.002))
    rows = {table: Counter(held) for table, held in data.rows.items()}
    for change in wide.changes(data, 300, context(tmp_path)):
        if change.before is not None:
            assert rows[change.table][change.before] > 0
            rows[change.table][change.before] -= 1
        if change.after is not None:
            rows[change.table][change.after] += 1


def test_data_sets_come_from_folders_and_archives_and_a_collection_has_a_part_for_each_database(tmp_path: Path):
    stats = {"unary_inds": 3, "ind_sha256": "ab"}
    described = {
        "lake": {"kind": "lake", **stats},
        "many": {"kind": "relational-collection", "per_db": {"one": stats, "two": stats}},
    }
    (tmp_path / "stats.json").write_text(json.dumps(described))
    (tmp_path / "many").mkdir()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("lake/manifest.jsonl", "lake/tables/t.csv"):
            archive.addfile(tarfile.TarInfo(name))
    (tmp_path / "lake.tar.zst").write_bytes(zstandard.compress(packed.getvalue()))
    lake, many = data_sets.published(tmp_path, tmp_path / "work")
    assert [(part.tables, part.prefix) for part in lake.parts] == [(tmp_path / "work/lake/tables", "tables/")]
    assert (tmp_path / "work/lake/tables/t.csv").exists()
    assert [(part.name, part.tables, part.prefix) for part in many.parts] == [
        ("one", tmp_path / "many/one", ""),
        ("two", tmp_path / "many/two", ""),
    ]


def test_a_folder_without_statistics_is_no_folder_of_data_sets(tmp_path: Path):
    with pytest.raises(data_sets.Unavailable, match=r"has no stats\.json"):
        list(data_sets.published(tmp_path, tmp_path))


# Freshness


def test_a_delay_ends_with_the_first_answer_whose_position_is_behind_the_record():
    seen = [(10.0, 0), (10.5, 2), (10.6, 2), (11.0, 3)]
    assert freshness.delays_of([10.0, 10.25, 10.75], seen) == [0.5, 0.25, 0.25]


def test_a_record_that_was_never_shown_is_an_error_not_a_delay():
    with pytest.raises(ValueError, match="reached offset 1 of 2"):
        freshness.delays_of([10.0, 10.1], [(10.5, 1)])


# Following on Spark


def test_shards_share_all_but_what_the_driver_and_the_largest_of_them_take():
    costs = follow_spark.Costs(net=30e-6, applied=20e-6, alone=1e-6, batch=0.25)
    assert costs.rate(1, skew=1) == pytest.approx(25_000 / (25_000 * 51e-6 + 0.25))
    assert costs.rate(16, skew=1.5) == pytest.approx(400_000 / (25_000 * 60e-6 + 0.4 + 0.25))


def test_a_value_that_all_tuples_have_is_one_cell_of_a_micro_batch():
    random = Random(5)
    changes = [Change("insert", "t", None, ("N", None, str(random.random()))) for _ in range(4000)]
    assert follow_spark.key_skew(changes, 4) < 1.1


def test_a_trial_without_a_batch_behind_the_warm_up_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow_spark, "versions", lambda *_: [(10.0, 60), (11.0, 40), (13.0, 100)])
    assert follow_spark.rate(None, "state", 90) == 50  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="state: all 3 batches are of the warm-up"):
        follow_spark.rate(None, "state", 150)  # type: ignore[arg-type]


def test_the_readme_shows_of_several_sizes_the_last_one_that_fails_or_else_the_last():
    def metric(name: str, value: float, goal: str | None = "value <= 3") -> Result:
        return Result(name, value, "s", goal=goal)

    measured = [
        metric("x1: CPU", 1), metric("x2: CPU", 4), metric("x8: CPU", 2), metric("x8, filters: CPU", 1),
        metric("65,536 tables, no filters: INDs", 2), metric("262,144 tables, no filters: INDs", 3),
        metric("x8: columns", 9, None),
    ]  # fmt: skip
    shown = [one["metric"] for one in results_file.goals_met(results_file.as_objects("row", 1, measured))]
    assert shown == ["x2: CPU", "x8, filters: CPU", "262,144 tables, no filters: INDs"]


def test_pages_show_the_results_that_are_kept():
    for name, text in pages.made(results_file.load()).items():
        shown = (pages.ROOT / name).read_text("utf-8").split(pages.BEGIN)[1].split(pages.END)[0]
        assert shown == text, f"{name} is not what `python -m benchmarks --pages` makes of the results"
    for name, svg in growth_page.plots(results_file.load()).items():
        assert (pages.ROOT / name).read_text("utf-8") == svg, name


def test_what_metanome_prints_is_counted_and_its_failure_is_no_zero():
    printed = "Running BINDER\n* in: [a.csv]\nResults:\n[a.csv.x][=[b.csv.y]\n[b.csv.y][=[a.csv.x]\n"
    assert profilers.count_of_metanome(printed) == 2
    with pytest.raises(ValueError, match="no results"):
        profilers.count_of_metanome("Running BINDER\nElapsed time: 0:00:00.001 (1 ms).\n")


def test_metanome_is_told_of_all_files_and_of_unary_inds(tmp_path: Path):
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).touch()
    command = profilers.metanome_command("java", "cli.jar:binder.jar", profilers.BINDER, tmp_path, "/buckets")
    assert command[command.index("--files") + 1 :] == [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert "DETECT_NARY:false" in command


def test_the_power_of_a_refresh_is_of_two_sizes_of_one_run_without_sparks_start():
    kept = results_file.load()
    refresh = f"262,144 tables, {growth_page.REFRESH}"
    other = {("many-growth", name) for name in (refresh, f"{refresh}, Spark's start apart")}
    other.add(("many-growth-whole", refresh))
    changed = [{**one, "value": 9} if (one["row"], one["metric"]) in other else one for one in kept]
    assert growth_page.table(changed) == growth_page.table(kept)
    small, large = (
        results_file.one(kept, "many-growth-whole", f"{tables:,} tables, {growth_page.REFRESH}, Spark's start apart")
        for tables in (262_144, 1_398_105)
    )
    own = math.log(large["value"] / small["value"]) / math.log(1_398_105 / 262_144)
    assert f"refresh: seconds, Spark's start apart | {own:.2f} |" in growth_page.table(kept)
