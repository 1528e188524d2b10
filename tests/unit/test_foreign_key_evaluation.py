"""The evaluation of foreign-key discovery: what counts as right, wrong, missed or excused, and who is left out."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from benchmarks import evaluate, fk_evaluate, results_file
from benchmarks.fk_data import read_database
from benchmarks.fk_evaluate import Details, figures_of, judge_composites, main, print_composites
from benchmarks.fk_judge import DIRTY, f_measure, judge, reliability, summary
from benchmarks.fk_learning import Pairs, choice
from service.core.foreign_keys.candidates import Candidate

ORDERS = "id,customer_id,status\r\n1,10,1\r\n2,11,2\r\n3,10,\r\n4,12,1\r\n"
CUSTOMERS = "id,name\r\n10,Ann\r\n11,Bo\r\n12,Cy\r\n13,Di\r\n"
VIPS = "customer_id,since\r\n10,2020\r\n12,2021\r\n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Make a database of three tables, with a chain of keys and one foreign key that is declared."""
    tables = {"orders": ORDERS, "customers": CUSTOMERS, "vips": VIPS}
    described = {}
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text, newline="")
        columns = text.split("\r\n", 1)[0].split(",")
        described[name] = {
            "file": f"{name}.csv",
            "columns": [{"name": column, "type": "INT(11)"} for column in columns],
            "primary_key": columns[:1],
            "unique": [],
            "foreign_keys": [],
        }
    described["vips"]["foreign_keys"] = [
        {"columns": ["customer_id"], "ref_table": "customers", "ref_columns": ["id"], "inclusion": 1.0}
    ]
    (tmp_path / "schema.json").write_text(json.dumps({"name": "shop", "tables": described}))
    return tmp_path


def test_a_database_is_read_with_its_counts(shop: Path) -> None:
    database = read_database(shop)
    status = database.columns[2]
    assert (status.distinct, status.nulls, status.has_repeats, status.data_type) == (2, 1, True, "int")
    assert (status.least, status.greatest, status.is_integer, status.mean_length) == ("1", "2", True, 1.0)
    assert [database.label(key) for (key,) in database.declared_keys] == [
        "orders.id",
        "customers.id",
        "vips.customer_id",
    ]
    assert database.label(database.unique_keys[1][0]) == "customers.id"
    assert database.measured[Candidate((5,), (3,))].coverage == 0.5
    assert database.truth == {Candidate((5,), (3,)): 1.0}


def test_keys_of_the_data_alone_know_of_no_primary_key(shop: Path) -> None:
    database = read_database(shop)
    _, columns, keys = database.seen(declared=False)
    assert not any(column.is_primary for column in columns.values())
    assert set(keys) == set(database.unique_keys)


def test_candidates_are_columns_within_keys_with_one_feature_row_each(shop: Path) -> None:
    found = Pairs.of(read_database(shop), declared=True)
    assert sorted((c.dependent[0], c.referenced[0]) for c in found.candidates) == [(1, 3), (2, 0), (5, 3)]
    assert all(of.shape == (3,) and np.isfinite(of).all() for of in found.features.values())
    place = {candidate: i for i, candidate in enumerate(found.candidates)}
    first, second, third = (place[Candidate((a,), (b,))] for a, b in ((1, 3), (2, 0), (5, 3)))
    assert found.features["coverage"][[first, second, third]].tolist() == [0.75, 0.5, 0.5]
    assert found.features["evidence"][first] > 0.8 > found.features["evidence"][second]
    assert found.is_right[[first, second, third]].tolist() == [False, False, True]


def test_what_composites_say_is_not_chosen_beside_them(tmp_path: Path) -> None:
    tables = {
        "country": ("code,area\r\nA,1\r\nB,1\r\n", ["code"], []),
        "province": (
            "name,country\r\nX,A\r\nX,B\r\nY,B\r\nZ,B\r\n",
            ["name", "country"],
            [(["country"], "country", ["code"])],
        ),
        "lake": (
            "province,country\r\nX,A\r\nY,B\r\nY,B\r\n",
            [],
            [(["country", "province"], "province", ["country", "name"])],
        ),
    }
    described = {}
    for name, (text, key, foreign) in tables.items():
        (tmp_path / f"{name}.csv").write_text(text, newline="")
        described[name] = {
            "file": f"{name}.csv",
            "columns": [{"name": column, "type": "text"} for column in text.split("\r\n", 1)[0].split(",")],
            "primary_key": key,
            "unique": [],
            "foreign_keys": [
                {"columns": own, "ref_table": table, "ref_columns": other, "inclusion": 1.0}
                for own, table, other in foreign
            ],
        }
    (tmp_path / "schema.json").write_text(json.dumps({"name": "lakes", "tables": described}))
    database = read_database(tmp_path)
    lake, owner, said = Candidate((4, 5), (2, 3)), Candidate((3,), (0,)), Candidate((5,), (0,))
    assert database.composites.truth == {lake}
    assert database.composites.measured[lake].coverage == 0.5
    assert set(database.composites.seen(True)) == {lake}
    found = Pairs.of(database, declared=True)
    assert found.composite == (lake,)
    assert set(choice(found, np.ones(len(found.candidates)), 0.5)) == {owner}
    assert said in found.candidates
    suggested, among = print_composites("composite", [database], Details())
    everywhere, *none = judge_composites([database], Details())
    assert (everywhere.goal, none) == (None, []), "F1 of no databases is no figure"
    database.data_set = "mondial"
    assert [one.goal for one in judge_composites([database], Details())][2:] == [None]
    assert (suggested.value, suggested.holds) == (1, True)
    assert (among.value, among.baseline_value, among.holds) == (1, 1, True)


def test_what_is_neither_declared_nor_implied_is_wrong(shop: Path) -> None:
    database = read_database(shop)
    right, reverse, wrong = Candidate((5,), (3,)), Candidate((3,), (5,)), Candidate((2,), (0,))
    result = judge(database, [right, reverse, wrong])
    assert (result.right, result.wrong, result.missed) == ({right}, {reverse, wrong}, set())
    assert reverse in result.excused
    assert wrong not in result.excused
    assert result.f1() == pytest.approx(2 / 4)
    assert result.f1(lenient=True) == pytest.approx(2 / 3)
    assert judge(database, []).missed == {right}


def test_a_violated_foreign_key_counts_only_in_the_dirty_truth(shop: Path) -> None:
    database = read_database(shop)
    violated = Candidate((5,), (3,))
    database.truth[violated] = 0.95
    assert judge(database, [violated]) == judge(database, [])
    assert judge(database, [violated], DIRTY).right == {violated}


def test_scores_that_read_as_probabilities_are_held_against_what_came() -> None:
    scores, is_right = np.array([0.01, 0.02, 0.5, 0.5, 0.95, 1.0]), np.array([0, 0, 1, 0, 1, 1], np.bool_)
    assert reliability(scores, is_right) == [
        "0.00-0.05:      2 candidates, said 0.015, right 0.000",
        "0.40-0.60:      2 candidates, said 0.500, right 0.500",
        "0.95-1.00:      2 candidates, said 0.975, right 1.000",
    ]


def test_measures_of_a_row_are_those_of_the_counts(shop: Path) -> None:
    database = read_database(shop)
    results = [judge(database, [Candidate((5,), (3,)), Candidate((2,), (0,))]), judge(database, [])]
    assert summary(results).startswith("P 0.500 R 0.500 F1 micro 0.500 macro 0.333")
    assert f_measure(0, 0, 0) == 1


NAMES = ("shop", "market", "stall")


@pytest.fixture
def folder(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of three such databases."""
    folder = tmp_path_factory.mktemp("sets")
    for name in NAMES:
        shutil.copytree(shop, folder / name)
        described = json.loads((folder / name / "schema.json").read_text())
        (folder / name / "schema.json").write_text(json.dumps(described | {"name": name}))
    stats = {name: {"kind": "relational", "unary_inds": 0, "ind_sha256": ""} for name in NAMES}
    (folder / "stats.json").write_text(json.dumps(stats))
    return folder


def test_the_command_prints_each_database_by_what_was_learnt_on_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "--method", "names", "--method", "jump", "--errors"]) == 0
    printed = capsys.readouterr().out
    assert "keys declared: 3 databases, 9 candidates" in printed
    assert "names       declared exact P 0.500 R 1.000" in printed
    assert "+ orders.customer_id -> customers.id" in printed
    assert all(f"  {name} " in printed for name in NAMES)


def test_the_command_keeps_its_figures_beside_those_of_other_rows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fk_evaluate, "METHODS", {"names": fk_evaluate.METHODS["names"]})
    kept = tmp_path / "latest.json"
    results_file.store("other", results_file.as_objects("other", 1, [results_file.Result("m", 1, "s")]), kept)
    assert main([str(folder), "--results", str(kept)]) == 0
    found = {(one["row"], one["metric"]): one for one in results_file.load(kept)}
    assert ("other", "m") in found
    names = found["fk-evaluate", "keys declared: F1 over all, names"]
    assert (names["value"], names["goal"], names["holds"]) == (pytest.approx(2 / 3, abs=1e-5), None, None)


def test_figures_of_some_methods_do_not_take_the_place_of_all(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(folder), "--method", "names", "--results", str(tmp_path / "latest.json")])
    assert "leave --method out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stats", "told"), [(None, "has no stats.json"), ("{}", "names no data set"), ('{"shop": %s}', "has a schema.json")]
)
def test_a_folder_without_databases_is_an_error_and_costs_no_figure(
    stats: str | None,
    told: str,
    shop: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path_factory.mktemp("without")
    shutil.copytree(shop, folder / "shop")
    (folder / "shop" / "schema.json").unlink()
    if stats is not None:
        of_set = '{"kind": "relational", "unary_inds": 0, "ind_sha256": ""}'
        (folder / "stats.json").write_text(stats.replace("%s", of_set))
    kept = folder / "latest.json"
    results_file.store(
        "fk-evaluate", results_file.as_objects("fk-evaluate", 0, [results_file.Result("m", 1, "")]), kept
    )
    before = kept.read_text()
    assert main([str(folder), "--results", str(kept)]) == 2
    assert kept.read_text() == before
    error = capsys.readouterr().err
    assert str(folder) in error
    assert told in error
    assert "docs/benchmarks.md" in error


def test_figures_have_the_goals_of_their_method(shop: Path) -> None:
    right = [judge(read_database(shop), [Candidate((5,), (3,))])]
    figures = {
        one.metric: one for one in figures_of({("combined", "inferred"): right, ("nameless", "declared"): right})
    }
    assert {metric: (one.value, one.goal) for metric, one in figures.items()} == {
        "keys inferred: F1 over all, combined": (1, "value >= 0.94"),
        "keys inferred: F1 mean of databases, combined": (1, "value >= 0.93"),
        "keys declared: F1 over all, nameless": (1, "value >= 0.7"),
        "keys declared: F1 mean of databases, nameless": (1, None),
    }


def test_the_evaluation_of_a_folder_without_data_sets_ends_before_it_starts_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "EmbeddedPostgres", None)
    assert evaluate.main([str(tmp_path)]) == 2
    assert f"{tmp_path} has no stats.json" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(tmp_path), "--only", "shop", "--results", str(tmp_path / "latest.json")])


@pytest.mark.parametrize("results", [(), ("--results", "kept.json")])
def test_the_evaluation_keeps_figures_of_foreign_keys_only_where_it_is_asked_to(
    results: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    outcome = evaluate.Outcome("shop", "", "", 0)
    monkeypatch.setattr(evaluate, "EmbeddedPostgres", lambda *_, **__: nullcontext())
    monkeypatch.setattr(evaluate, "_jobs", lambda _: nullcontext((None, None)))
    monkeypatch.setattr(evaluate, "Server", lambda _: None)
    monkeypatch.setattr(evaluate.Evaluation, "run", lambda *_: [outcome])
    monkeypatch.setattr(fk_evaluate, "main", lambda arguments: called.append(arguments) or 2)
    assert evaluate.main([str(folder), *results]) == 2, "foreign keys could not be judged"
    assert called == [[str(folder), "--folds", "6", "--each", *results]]
