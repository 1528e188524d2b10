"""What became slower between two files of results is named, and nothing that is noise or from another machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, results_file
from benchmarks.compare import Verdict
from benchmarks.results_file import Result

BOX = "2 cores of one kind, 24 GiB, Linux 6.1, load 0.1"
OTHER_BOX = "2 cores of another kind, 24 GiB, Linux 6.1, load 0.1"


def objects(*results: Result, row: str = "row", machine: str = BOX) -> list[dict[str, Any]]:
    return [{**one, "machine": machine} for one in results_file.as_objects(row, 0, results)]


def verdicts(new: list[dict[str, Any]], *old: list[dict[str, Any]]) -> list[tuple[str, Verdict]]:
    return [(one.metric, one.verdict) for one in compare.compare(new, old, noise=1.25)]


@pytest.mark.parametrize(
    ("unit", "worse", "better"),
    [
        ("s", 13, 7.9),
        ("tuples/s", 7.9, 13),
        ("GB", 13, 7.9),
        ("µs", 13, 7.9),
        ("µs/tuple", 13, 7.9),
        ("bytes", 13, 7.9),
    ],
)
def test_worse_is_what_its_unit_says(unit: str, worse: float, better: float):
    before = objects(Result("m", 10, unit))
    assert verdicts(objects(Result("m", worse, unit)), before) == [("m", Verdict.WORSE)]
    assert verdicts(objects(Result("m", better, unit)), before) == [("m", Verdict.BETTER)]
    assert verdicts(objects(Result("m", 10.9, unit)), before) == []


def test_of_a_unit_that_does_not_say_it_the_goal_does():
    def shared(value: float, goal: str | None) -> list[dict[str, Any]]:
        return objects(Result("m", value, "share", goal=goal))

    assert verdicts(shared(0.5, "value <= 0.6"), shared(0.3, "value <= 0.6")) == [("m", Verdict.WORSE)]
    assert verdicts(shared(0.3, "value >= 0.1"), shared(0.5, "value >= 0.1")) == [("m", Verdict.WORSE)]
    assert verdicts(shared(0.3, None), shared(0.5, None)) == []


@pytest.mark.parametrize(
    ("metric", "worse", "better"),
    [
        ("bootstrap: exponent", 1.3, 0.7),
        ("shards, simulated: exponent of tuples/s", 0.7, 1.3),
        ("false positives, XASH", 1.3, 0.7),
        ("TPC-H: F1, chen", 0.7, 1.3),
    ],
)
def test_of_a_figure_without_unit_and_goal_its_name_says_it(metric: str, worse: float, better: float):
    before = objects(Result(metric, 1, ""))
    assert verdicts(objects(Result(metric, worse, "")), before) == [(metric, Verdict.WORSE)]
    assert verdicts(objects(Result(metric, better, "")), before) == [(metric, Verdict.BETTER)]
    assert verdicts(objects(Result("INDs", 2, "")), objects(Result("INDs", 1, ""))) == []


def test_a_ratio_is_compared_on_any_machine_and_a_figure_of_its_own_on_the_same_alone():
    before = objects(Result("beside", 10, "s", "peer", 10), Result("alone", 10, "s"), machine=OTHER_BOX)
    now = objects(Result("beside", 20, "s", "peer", 10), Result("alone", 20, "s"))
    assert verdicts(now, before) == [("beside", Verdict.WORSE)]
    # A slower machine is slow for both.
    assert verdicts(objects(Result("beside", 20, "s", "peer", 20)), before) == []


def test_several_runs_of_before_widen_what_is_noise():
    runs = [objects(Result("m", value, "s")) for value in (10, 14)]
    assert verdicts(objects(Result("m", 17, "s")), *runs) == []
    assert verdicts(objects(Result("m", 18, "s")), *runs) == [("m", Verdict.WORSE)]


def test_a_goal_that_is_missed_is_told_however_little_is_lacking():
    before, now = (objects(Result("m", value, "s", goal="value <= 10")) for value in (9.9, 10.1))
    assert verdicts(now, before) == [("m", Verdict.MISSED)]
    assert verdicts(now, before, now) == [], "it was missed before"


def test_a_goal_on_a_ratio_is_missed_and_shown_where_there_is_nothing_beside_it_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for path, beside in ((old, 10), (new, 0)):
        path.write_text(json.dumps(objects(Result("m", 10, "s", "peer", beside, goal="ratio <= 2"))))
    assert compare.main([str(new), str(old)]) == 1
    assert "goal missed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("metric", "unit", "before", "now"),
    [
        ("errors", "", 0, 500),
        ("estimated", "mean |error|", 0, 0.2),
        ("F1, chen", "", 0.87, 0),
        ("growth of memory", "MB", -0.5, 4),
    ],
)
def test_what_comes_off_zero_or_through_it_is_worse_one_way_and_better_the_other(
    metric: str, unit: str, before: float, now: float
):
    first, second = objects(Result(metric, before, unit)), objects(Result(metric, now, unit))
    assert verdicts(second, first) == [(metric, Verdict.WORSE)]
    assert verdicts(first, second) == [(metric, Verdict.BETTER)]
    assert verdicts(second, first, second) == []
    assert verdicts(first, first) == []


def test_below_zero_nothing_is_worse_than_other_noise():
    assert verdicts(objects(Result("m", -0.4, "MB")), objects(Result("m", -4, "MB"))) == []


def test_a_goal_to_equal_something_leaves_it_to_the_name_which_way_is_better():
    before, now = (objects(Result("errors", value, "", goal="value = 0")) for value in (3, 30))
    assert verdicts(now, before) == [("errors", Verdict.WORSE)]


def test_a_figure_is_gone_that_each_older_file_with_its_row_has(tmp_path: Path, capsys: pytest.CaptureFixture):
    kept, rare, other = Result("m", 10, "s"), Result("p99", 1, "ms", goal="value <= 20"), Result("n", 1, "s")
    now = objects(kept)
    assert compare.gone(now, [objects(kept, rare)]) == objects(rare)
    assert compare.gone(now, [objects(kept, rare), objects(other, row="other")]) == objects(rare)
    assert compare.gone(now, [objects(kept, rare), objects(kept)]) == [], "it comes and goes"
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    new.write_text(json.dumps(now))
    for before, code in ((rare, 1), (other, 0)):
        old.write_text(json.dumps(objects(kept, before)))
        assert compare.main([str(new), str(old)]) == code
        assert f"row: {before.metric}" in capsys.readouterr().out


def test_the_command_ends_with_1_for_what_is_worse_and_names_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(objects(Result("m", 10, "s")) + objects(Result("n", 1, "s"), row="other")))
    new.write_text(json.dumps(objects(Result("m", 20, "s"))))
    assert compare.main([str(new), str(old)]) == 1
    shown = capsys.readouterr().out
    assert "2.00" in shown
    assert "other" in shown.splitlines()[-2]
    assert compare.main([str(old), str(new)]) == 0
    with pytest.raises(SystemExit, match="2"):
        compare.main([str(new), str(tmp_path / "none.json")])
    assert "none.json" in capsys.readouterr().err
