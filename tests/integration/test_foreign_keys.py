"""Own the proof that foreign keys are found as plain sets and sorted lists have them, whatever the values are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.ranking import Method
from service.core.quantile_grids import KeyHistogram, QuantileGrid, histogram_over
from service.core.randomness import randomness
from service.core.value_order import ValueOrder, order_of
from service.store.database import make_engine
from service.store.reader import PostgresSnapshot, PostgresStateReader
from service.usecases import histogram_upkeep
from service.usecases.coefficient_table import MethodName
from service.usecases.foreign_key_evidence import PICTURE_CELLS, Describing
from service.usecases.foreign_key_ports import WantedGrid
from service.usecases.foreign_keys import ForeignKeys, Keys, Question, find_foreign_keys
from tests import states
from tests.states import Tables

RANDOM = random.Random(20261122)
NUMBERS = [str(number) for number in range(-300, 700)]
DECIMALS = [f"{number / 4:.2f}" for number in range(-500, 500)]
BEYOND = ["NaN", "Infinity", "-Infinity"]
WORDS = [f"{word}{number}" for word in ("", "ä", "Z", "z", "東京", "a b", "x.y") for number in range(100)]
MIXED = [*NUMBERS[:300:7], "12a", "12 a", "3.5.1", ".5", "-", "- 4", "\t8", "8", "NaN", "", "007", "7", *WORDS[100:190]]
KEYS = {
    "numbers": NUMBERS,
    "decimals": DECIMALS,
    "beyond": [*NUMBERS[::3], *BEYOND],
    "only_beyond": BEYOND,
    "words": WORDS,
    "mixed": MIXED,
    "few": ["1", "2", "3"],
    "one": ["1"],
}


@contextmanager
def snapshot_of(url: str, tables: Tables) -> Iterator[PostgresSnapshot]:
    """Open a snapshot of the state of tables."""
    states.store(url, tables)
    engine = make_engine(url, "test")
    try:
        with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
            yield snapshot
    finally:
        engine.dispose()


def columns(**cells: list[str | None]) -> Tables:
    """Make a table of each column."""
    tables = Tables({name: ["v"] for name in cells})
    for name, values in cells.items():
        tables.add(name, *([value] for value in values))
    return tables


def names(found: ForeignKeys, candidate: Candidate) -> tuple[str, str]:
    """Name the tables of a candidate of one column."""
    return tuple(found.attributes[side[0]].name.table for side in candidate)  # type: ignore[return-value]


@pytest.mark.parametrize("cells", [2, 7, 256])
def test_histograms_are_those_of_sorted_lists(database_url: str, cells: int) -> None:
    """The core's own, which a test holds against the paper, is the judge of the SQL: every order, and each to each."""
    sample = {f"of_{name}": RANDOM.sample(values, max(1, len(values) // 3)) for name, values in KEYS.items()}
    all_cells = KEYS | sample | {"other": ["999999", "-7.5", "ü", "5 apples", "Infinity"]}
    tables = columns(**all_cells)
    ids = {table: i for i, (table, _) in enumerate(tables.names(), 1)}
    with snapshot_of(database_url, tables) as snapshot:
        looks = dict(snapshot.value_statistics(list(ids.values())))
        for name, values in all_cells.items():
            found, order = looks[ids[name]], order_of(values)
            ordered = sorted(values, key=order.key)
            assert found.order is order, name
            assert found.mean_length == pytest.approx(sum(map(len, values)) / len(values))
            assert found.is_integer == all(value.removeprefix("-").isdecimal() and value.isascii() for value in values)
            if order is ValueOrder.MIXED:
                assert (found.first, found.last) == (None, None)
            elif order is ValueOrder.NUMERIC:
                assert [order.key(end)[0] for end in (found.first, found.last)] == [
                    order.key(end)[0] for end in (ordered[0], ordered[-1])
                ]
            else:
                assert (found.first, found.last) == (ordered[0], ordered[-1])
        for key, values in KEYS.items():
            wanted = WantedGrid(ids[key], (ids[key],), (len(values),), (looks[ids[key]].order,), cells)
            of_key, histograms = snapshot.spreads(wanted, [i for name, i in ids.items() if name != key])
            judge = KeyHistogram.of([(value,) for value in values], wanted.orders, cells)
            assert of_key.grids == judge.grids, key
            assert histograms.keys() == set(ids.values()) - {ids[key]}
            for name, other in all_cells.items():
                own = of_key.tuples if name == key else histograms[ids[name]]
                assert (own.dense() == histogram_over(judge.grids, [(value,) for value in other]).dense()).all()


@pytest.mark.parametrize("cells", [2, 5, 16])
def test_histograms_of_tuples_are_those_of_sorted_lists(database_url: str, cells: int) -> None:
    """A key of three columns, each in an order of its own, and tuples of which some, or some parts, are not in it."""
    names = ("n", "w", "m")
    key = list({(RANDOM.choice(NUMBERS), RANDOM.choice(WORDS[100:]), RANDOM.choice(MIXED)) for _ in range(400)})
    strangers = [("9999", 'a\t"b\\', "9 lives"), ("-1", "é", "")]
    sides = {"key": key, "sample": RANDOM.sample(key, 90), "other": [*key[:30], *strangers, ("0", "Z0", "12a")]}
    tables = Tables({name: list(names) for name in sides}, tuples={name: [names] for name in sides})
    for name, rows in sides.items():
        tables.add(name, *rows)
    tables.add("key", ["700", None, None], [None, "zz", "0"])
    ids = {name: i for i, name in enumerate(tables.names(), 1)}
    columns = [{row[i] for row in tables.rows["key"] if row[i] is not None} for i in range(3)]
    orders = (ValueOrder.NUMERIC, ValueOrder.LEXICOGRAPHIC, ValueOrder.MIXED)
    assert [order_of(column) for column in columns] == list(orders)
    grids = tuple(QuantileGrid.of(column, order, cells) for column, order in zip(columns, orders, strict=True))
    of_tuples = {name: ids[name, "(n, w, m)"] for name in sides}
    wanted = WantedGrid(
        of_tuples["key"], tuple(ids["key", name] for name in names), tuple(map(len, columns)), orders, cells
    )
    with snapshot_of(database_url, tables) as snapshot:
        of_key, found = snapshot.spreads(wanted, [of_tuples["sample"], of_tuples["other"]])
    assert of_key.grids == grids
    for counts, grid, column in zip(of_key.columns, grids, columns, strict=True):
        assert counts.tolist() == np.bincount(grid.cells_of(column), minlength=cells).tolist()
    assert found.keys() == {of_tuples["sample"], of_tuples["other"]}
    for name, of in [("key", of_key.tuples), *((name, found[of_tuples[name]]) for name in ("sample", "other"))]:
        assert (of.dense() == histogram_over(grids, sides[name]).dense()).all(), name


def test_candidates_and_what_is_measured_are_those_of_sets(database_url: str) -> None:
    """Coefficients are compared with sets, distances with SciPy's over the ranks of a grid without hidden values."""
    ids = [str(number) for number in range(1, 201)]
    words = [f"w{number:03}" for number in range(90)]
    cells: dict[str, list[str | None]] = {
        "ids": list(ids),
        "dirty": [*RANDOM.choices(ids, k=300), *(["none"] * 5), None],
        "prefix": [str(number) for number in range(1, 40)] * 2,
        "far": [str(number) for number in range(150, 260)],
        "words": list(words),
        "some": RANDOM.choices(words, k=80),
        "nulls": [*words, None],
        "empty": [None, None],
        "same": ["7"] * 9,
        "nothing": [],
    }
    sets = {name: {value for value in values if value is not None} for name, values in cells.items()}
    unique = {name for name, values in cells.items() if values and len(sets[name]) == len(values)}
    with snapshot_of(database_url, columns(**cells)) as snapshot:
        found = find_foreign_keys(snapshot, Question(Method.NAMES, theta=0.7, cells=1000))
        described = Describing(snapshot, found, 2)
        by_name = {names(found, one.candidate): described.describe(one).evidence for one in found.ranked}
    assert {found.attributes[key].name.table for (key,) in found.keys} == unique == {"ids", "far", "words"}
    expected = {
        (a, b)
        for a, b in permutations(cells, 2)
        if b in unique and sets[a] and len(sets[a] & sets[b]) >= 0.7 * len(sets[a])
    }
    assert by_name.keys() == expected
    for (a, b), evidence in by_name.items():
        own, key = sets[a], sets[b]
        assert evidence.inclusion.coefficient == pytest.approx(len(own & key) / len(own))
        assert evidence.inclusion.missing == len(own - key)
        assert set(evidence.inclusion.missing_values) <= own - key
        assert len(evidence.inclusion.missing_values) == min(2, len(own - key))
        assert evidence.coverage == pytest.approx(len(own & key) / len(key))
        assert evidence.cardinality == ("1:1" if len(own) == sum(value is not None for value in cells[a]) else "1:n")
        if own <= key:
            order = order_of(key)
            ranks = {value: place / len(key) for place, value in enumerate(sorted(key, key=order.key), 1)}
            assert evidence.distribution is not None
            assert evidence.distribution.error == 0
            assert evidence.distribution.distance == pytest.approx(
                wasserstein_distance([ranks[value] for value in own], list(ranks.values()))
            )
            assert len(evidence.distribution.dependent) <= PICTURE_CELLS
            assert sum(evidence.distribution.dependent) == pytest.approx(1)
            assert sum(evidence.distribution.referenced) == pytest.approx(1)


def test_declared_keys_are_taken_where_there_are_some(database_url: str) -> None:
    cells: dict[str, list[str | None]] = {"a": ["1", "2", "3"], "b": ["1", "2"], "c": ["2", "3"]}
    tables = columns(**cells)
    tables.columns["pair"] = ["x", "y"]
    tables.add("pair", ["1", "2"], ["2", "3"])
    with snapshot_of(database_url, tables) as snapshot:
        assert keys_of(snapshot, Keys.KNOWN) == {"a.v", "b.v", "c.v", "pair.x", "pair.y"}
        assert keys_of(snapshot, Keys.DECLARED) == set()
    states.execute(
        database_url,
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count, distinct_count, repeated_count, parts) "
        "values (90, 1, 's', 'pair', '(x,y)', 0, 2, 0, 2, 0, '{0,1}');"
        "insert into tracked_key (attribute_id, kind, is_primary, since_version) values "
        "(1, 'declared', true, 1), (90, 'declared', true, 1), (2, 'discovered', false, 1)",
    )
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        assert keys_of(snapshot, Keys.DECLARED) == {"a.v", "pair.(x,y)"}
        assert keys_of(snapshot, Keys.KNOWN) == {"a.v", "b.v", "c.v", "pair.(x,y)"}
        assert keys_of(snapshot, Keys.INFERRED) == {"a.v", "b.v", "c.v", "pair.x", "pair.y", "pair.(x,y)"}
        found = find_foreign_keys(snapshot, Question())
        primary = {f"{one.table}.{one.name}" for one in found.profiles.values() if one.is_primary}
        assert primary == {"a.v", "pair.x", "pair.y"}
        inferred = find_foreign_keys(snapshot, Question(keys=Keys.INFERRED))
        assert not any(one.is_primary for one in inferred.profiles.values()), "what is declared was not asked for"
    engine.dispose()


def keys_of(snapshot: PostgresSnapshot, keys: Keys) -> set[str]:
    found = find_foreign_keys(snapshot, Question(keys=keys))
    return {".".join(found.side(columns)[0].name[1:]) for columns in found.keys}


@pytest.mark.parametrize("method", Method)
def test_every_method_ranks_any_names_and_columns(database_url: str, method: Method) -> None:
    """Names that are empty, numeric, very long or in other scripts; tables without keys; one value; long values."""
    odd = ["", "1", "x" * 5000, "顧客番号", "ключ", 'a"b', "a.b", "%s", "🔑", " "]
    tables = Tables({name: ["id", "v"] for name in odd})
    for place, name in enumerate(odd):
        tables.add(name, *([str(number), str(number % 7)] for number in range(1, 20 + place)))
    tables.columns |= {"flags": ["f"], "no_rows": ["id", "顧客番号"], "nulls": ["id"], "long": ["id"], "longer": ["id"]}
    tables.add("flags", ["1"], ["1"]).add("nulls", [None])
    tables.add("long", *(["y" * 300 + str(number)] for number in range(5)))
    tables.add("longer", *(["y" * 300 + str(number)] for number in range(8)))
    with snapshot_of(database_url, tables) as snapshot:
        found = find_foreign_keys(snapshot, Question(method))
        described = [Describing(snapshot, found).describe(ranked) for ranked in found.ranked]
    assert len(described) > len(odd)
    assert [one.score for one in described] == sorted((one.score for one in described), reverse=True)
    assert all(0 <= one.score <= 1 for one in described)
    assert json.loads(json.dumps([asdict(one) for one in described]))
    (long,) = [one for one in described if one.dependent[0].table == "long"]
    assert long.evidence.distribution is None
    assert any("s.long.id has values longer than" in reason for reason in found.left_out)


SHOP_TUPLES = {
    "lines": [("order_id", "line")],
    "refunds": [("order_id", "line"), ("line", "order_id")],
    "dirty": [("order_id", "line")],
    "stray": [("a", "b", "order_id")],
}


def shop() -> Tables:
    """Make order lines with a composite key, refunds of some, and dirty references of which a few are of nothing."""
    tables = Tables(
        {
            "orders": ["id"],
            "lines": ["order_id", "line", "note"],
            "refunds": ["id", "order_id", "line"],
            "dirty": ["order_id", "line"],
            "stray": ["a", "b", "order_id"],
        },
        tuples=SHOP_TUPLES,
    )
    lines = [(str(order), str(line)) for order in range(100, 140) for line in range(1, 4)]
    tables.add("orders", *([str(order)] for order in range(100, 140)))
    tables.add("lines", *([*line, "x"] for line in lines))
    tables.add("refunds", *([str(i), *line] for i, line in enumerate(RANDOM.choices(lines, k=50))), ["50", "100", None])
    tables.add("dirty", *lines[:57], ["100", "9"], ["139", "8"], ["139", "8"])
    tables.add("stray", ["1", "2", "100"])
    return tables


def test_tuples_are_candidates_beside_columns(database_url: str) -> None:
    """Only the tuples of `lines` are a tracked key; sets of plain Python say what is contained in them."""
    tables = shop()
    ids = {name: i for i, name in enumerate(tables.names(), 1)}
    names = {of: name for name, of in ids.items()}
    tracked = "insert into tracked_key (attribute_id, kind, is_primary, since_version) values ({}, '{}', false, 1)"
    key = ids["lines", "(order_id, line)"]
    values = {
        name: {text for text in cells if text is not None}
        for name, cells in zip(tables.names(), tables.cells(), strict=True)
    }
    contained = values["lines", "(order_id, line)"]
    expected = {
        (table, column)
        for table, column in tables.names()
        if column.startswith("(") and (table, column) != ("lines", "(order_id, line)")
        if len(values[table, column] & contained) >= 0.9 * len(values[table, column])
    }
    assert expected == {("refunds", "(order_id, line)"), ("dirty", "(order_id, line)")}
    with snapshot_of(database_url, tables) as snapshot:
        assert all(len(one.candidate.dependent) == 1 for one in find_foreign_keys(snapshot, Question()).ranked)
    states.execute(database_url, tracked.format(key, "pinned"))
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        found = find_foreign_keys(snapshot, Question())
        composite = {one.candidate: one for one in found.ranked if len(one.candidate.dependent) > 1}
        described = {
            names[found.side(one.dependent)[0].attribute_id]: Describing(snapshot, found, 9).describe(ranked)
            for one, ranked in composite.items()
        }
        assert described.keys() == expected
        for (table, _), one in described.items():
            assert [str(name) for name in one.dependent] == [f"s.{table}.order_id", f"s.{table}.line"]
            assert [str(name) for name in one.referenced] == ["s.lines.order_id", "s.lines.line"]
            assert one.evidence.names.equal
        dirty, clean = (described[table, "(order_id, line)"].evidence for table in ("dirty", "refunds"))
        assert (dirty.inclusion.coefficient, dirty.inclusion.missing) == (57 / 59, 2)
        assert set(dirty.inclusion.missing_values) == {'["100","9"]', '["139","8"]'}
        assert dirty.against[0] == "2 of 59 values are missing"
        own = values["refunds", "(order_id, line)"]
        assert (clean.inclusion.missing, clean.coverage) == (0, pytest.approx(len(own) / len(contained)))
        assert json.loads(json.dumps([asdict(one) for one in described.values()]))
        lines = {
            name: [json.loads(text[1:]) for text in values[name, "(order_id, line)"]] for name in ("lines", "dirty")
        }
        of_key = KeyHistogram.of(lines["lines"], [ValueOrder.NUMERIC] * 2)
        exact = randomness(histogram_over(of_key.grids, lines["dirty"]), of_key)
        assert dirty.distribution is not None
        assert (dirty.distribution.distance, dirty.distribution.error) == pytest.approx(exact)
        assert sum(dirty.distribution.dependent) == pytest.approx(1)
        by_values = {one.candidate: one for one in find_foreign_keys(snapshot, Question(Method.RANDOMNESS)).ranked}
        for candidate in composite:
            name = names[found.side(candidate.dependent)[0].attribute_id][0]
            distance = described[name, "(order_id, line)"].evidence.distribution.distance  # type: ignore[union-attr]
            assert by_values[candidate].score == pytest.approx(1 - distance)
        declared = find_foreign_keys(snapshot, Question(keys=Keys.DECLARED))
        assert (declared.ranked, declared.keys) == ([], [])
        inferred = find_foreign_keys(snapshot, Question(keys=Keys.INFERRED)).keys
        unique = {("lines", "(order_id, line)"), ("stray", "(a, b, order_id)")}
        assert {names[found.side(one)[0].attribute_id] for one in inferred if len(one) > 1} == unique
        estimated = find_foreign_keys(snapshot, Question(estimator=MethodName.BOTTOM_K))
        assert all(len(one.candidate.dependent) == len(one.candidate.referenced) for one in estimated.ranked)
    # A half of the key's columns is named as one that identifies: that it is one a schema has to say.
    assert [one.suggested for one in composite.values()] == [False, False]
    states.execute(database_url, "update tracked_key set kind = 'declared', is_primary = true")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        for method in (Method.COMBINED, Method.NAMES, Method.CHEN, Method.ROSTIN):
            ranked = find_foreign_keys(snapshot, Question(method, keys=Keys.DECLARED)).ranked
            assert {one.candidate for one in ranked if one.suggested} == composite.keys()
    engine.dispose()


def test_of_two_tracked_tuples_that_hold_each_other_the_unique_one_is_the_key(database_url: str) -> None:
    """To look for a composite foreign key both of its sides are tracked; each line was refunded, and some twice."""
    names = ["order_id", "line"]
    tables = Tables({"lines": names, "refunds": names}, tuples={"refunds": [names], "lines": [names]})
    tables.add("lines", *([str(i), str(j)] for i in range(50) for j in range(3)))
    tables.add("refunds", *([str(i), str(j)] for i in range(50) for j in range(3)), *([str(i), "0"] for i in range(9)))
    states.store(database_url, tables)
    pinned = ", ".join(f"({i}, 'pinned', false, 1)" for i, (_, name) in enumerate(tables.names(), 1) if name[0] == "(")
    states.execute(
        database_url, f"insert into tracked_key (attribute_id, kind, is_primary, since_version) values {pinned}"
    )
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        found = find_foreign_keys(snapshot, Question())
        both = [one.candidate for one in found.ranked if len(one.candidate.dependent) == 2]
        sides = [[found.attributes[side[0]].name.table for side in candidate] for candidate in both]
    engine.dispose()
    assert sides == [["refunds", "lines"]]


def test_a_transport_that_fails_is_told_and_the_others_are_measured(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = histogram_upkeep.randomness

    def fail_first(*of: object) -> object:
        monkeypatch.setattr(histogram_upkeep, "randomness", real)
        raise ArithmeticError("no transport was found: numerical errors")

    monkeypatch.setattr(histogram_upkeep, "randomness", fail_first)
    values = [str(number) for number in range(40)]
    with snapshot_of(database_url, columns(key=values, some=values[:20] * 2, others=values[20:] * 2)) as snapshot:
        found = find_foreign_keys(snapshot, Question())
    assert len(found.ranked) == 2
    assert len(found.spreads) == 1
    (told,) = found.left_out
    assert "s.key.v: no randomness is measured: no transport was found" in told


def test_tuples_of_other_kinds_or_too_long_values_are_no_sample(database_url: str) -> None:
    """The first part of one is a column of numbers where the key's is none; one key has a value that is stored cut."""
    names = ("a", "b")
    rows = {
        "key": [("NaN", "1"), *((f"w{number}", str(number)) for number in range(9))],
        "numbers": [("NaN", "1"), ("5", "1")],
        "long": [("x" * 250, "1"), ("y", "2")],
        "short": [("y", "2")],
    }
    tables = Tables(dict.fromkeys(rows, names), tuples={name: [names] for name in rows})
    for name, of in rows.items():
        tables.add(name, *of)
    states.store(database_url, tables)
    states.execute(
        database_url,
        "insert into tracked_key (attribute_id, kind, is_primary, since_version) "
        "select attribute_id, 'pinned', false, 1 from attribute where parts is not null "
        "and table_name in ('key', 'long')",
    )
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        found = find_foreign_keys(snapshot, Question(Method.RANDOMNESS, theta=0.5))
        composite = {
            tuple(found.side(side)[0].name.table for side in one.candidate): one
            for one in found.ranked
            if len(one.candidate.dependent) > 1
        }
        described = {name: Describing(snapshot, found).describe(one) for name, one in composite.items()}
    engine.dispose()
    assert described.keys() == {("numbers", "key"), ("short", "long")}
    for name, one in described.items():
        assert one.evidence.distribution is None
        assert composite[name].score == 0
    assert any("s.long.(a, b) has values longer than" in reason for reason in found.left_out)


def test_a_state_without_a_bootstrap_and_one_without_keys_have_no_candidates(database_url: str) -> None:
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        assert find_foreign_keys(snapshot, Question()).ranked == []
    engine.dispose()
    with snapshot_of(database_url, columns(a=["1", "1"], b=[None], c=["x", None])) as snapshot:
        found = find_foreign_keys(snapshot, Question())
    assert (found.ranked, found.keys) == ([], [])


def test_columns_of_which_only_sketches_are_kept_are_estimated(database_url: str) -> None:
    """With so few buckets little is known, but complete sketches are exact: those of up to four values here."""
    cells: dict[str, list[str | None]] = {
        "key": ["1", "2", "3", "4"],
        "refers": ["1", "3", "3"],
        "other": ["8", "9", "9"],
    }
    states.store(database_url, columns(**cells))
    states.execute(
        database_url,
        "update source set sketch_only = true; update attribute set distinct_count = null, repeated_count = null;"
        "delete from gen_rec; delete from cluster; delete from uind",
    )
    engine = make_engine(database_url, "test")
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        found = find_foreign_keys(snapshot, Question(Method.NAMES))
        (one,) = [Describing(snapshot, found).describe(ranked) for ranked in found.ranked]
    engine.dispose()
    assert [name.table for name in (*one.dependent, *one.referenced)] == ["refers", "key"]
    assert one.evidence.inclusion.method == MethodName.ESTIMATED
    assert one.evidence.inclusion.coefficient == 1
    assert (one.evidence.inclusion.missing, one.evidence.distribution) == (None, None)


def test_of_a_column_in_too_many_keys_the_likeliest_are_ranked_and_it_is_said(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.usecases.foreign_keys.most_references", lambda columns: 2)
    tables = Tables({"orders": ["customer_id"], **{name: ["id"] for name in ("customers", "years", "x", "y")}})
    tables.add("orders", *([str(number)] for number in (1, 2, 2)))
    for size, name in enumerate(("y", "x", "years", "customers"), 3):
        tables.add(name, *([str(number)] for number in range(1, size + 1)))
    with snapshot_of(database_url, tables) as snapshot:
        found = find_foreign_keys(snapshot, Question())
    of_orders = [names(found, one.candidate) for one in found.ranked]
    assert sorted(pair for pair in of_orders if pair[0] == "orders") == [
        ("orders", "customers"),
        ("orders", "y"),
    ]
    assert "s.orders.customer_id is contained in 4 keys: the likeliest 2 are ranked" in found.left_out
