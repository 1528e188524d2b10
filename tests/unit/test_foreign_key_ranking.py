"""The ranking of foreign keys: a small shop by every method, and what is odd, empty or not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.composites import said_by_composites
from service.core.foreign_keys.copies import by_copies
from service.core.foreign_keys.model import fitted, probability
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.ranking import Method, rank
from service.core.value_order import ValueOrder


def column(table: str, name: str, ordinal: int, rows: int, distinct: int) -> ColumnProfile:
    return ColumnProfile(
        schema="shop",
        table=table,
        name=name,
        ordinal=ordinal,
        data_type="integer",
        rows=rows,
        nulls=0,
        distinct=distinct,
        order=ValueOrder.NUMERIC,
        least="1",
        greatest=str(distinct),
        mean_length=2.0,
        is_integer=True,
    )


COLUMNS = {
    10: column("customers", "id", 0, 200, 200),
    20: column("orders", "id", 0, 500, 500),
    21: column("orders", "customer_id", 1, 500, 190),
    22: column("orders", "amount", 2, 500, 100),
}
KEYS = [(10,), (20,)]
RIGHT = Candidate((21,), (10,))
MEASURED = {
    Candidate((10,), (20,)): Measured(1.0, 0.4, 0.3, 0.6),
    RIGHT: Measured(1.0, 0.95, 0.004, 0.0),
    Candidate((21,), (20,)): Measured(1.0, 0.38, 0.31, 0.6),
    Candidate((22,), (10,)): Measured(1.0, 0.5, 0.25, 0.5),
    Candidate((22,), (20,)): Measured(1.0, 0.2, 0.4, 0.8),
}


@pytest.mark.parametrize("method", Method)
def test_each_method_suggests_the_foreign_key_for_its_column(method: Method) -> None:
    ranked = rank(MEASURED, COLUMNS, KEYS, method)
    best = next(of for of in ranked if of.candidate.dependent == RIGHT.dependent)
    assert (best.candidate, best.suggested) == (RIGHT, True)
    assert {of.candidate for of in ranked} == set(MEASURED)
    assert all(0 <= of.score <= 1 for of in ranked)
    assert [of.score for of in ranked] == sorted((of.score for of in ranked), reverse=True)


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("first", [0, 100])
def test_of_copies_of_a_table_that_of_the_own_schema_is_meant(method: Method, first: int) -> None:
    """Two tenants with the same tables and values: nothing but the schema tells what refers to what."""
    other = 100 - first
    columns = {first + i: replace(of, schema="a") for i, of in COLUMNS.items()}
    columns |= {other + i: replace(of, schema="b") for i, of in COLUMNS.items()}
    measured = {
        Candidate((a + i,), (b + j,)): of
        for ((i,), (j,)), of in MEASURED.items()
        for a in (first, other)
        for b in (first, other)
    }
    copies = [Candidate((a + i,), (b + i,)) for i in (10, 20) for a, b in ((first, other), (other, first))]
    measured |= dict.fromkeys(copies, Measured(1.0, 1.0, 0.0, 0.0))
    ranked = {of.candidate: of for of in rank(measured, columns, [(a + i,) for a in (0, 100) for (i,) in KEYS], method)}
    assert ranked.keys() == measured.keys()
    for a, b in ((first, other), (other, first)):
        right = Candidate((a + 21,), (a + 10,))
        assert ranked[right].suggested
        across = ranked[Candidate((a + 21,), (b + 10,))]
        assert (across.score, across.suggested, across.ruled_out_by) == (0, False, right)
    assert not any(ranked[copy].suggested or ranked[copy].score for copy in copies)
    assert {c.dependent[0] // 100 == c.referenced[0] // 100 for c, of in ranked.items() if of.suggested} == {True}


def test_a_table_of_the_same_name_with_other_columns_is_no_copy() -> None:
    users = {1: replace(column("users", "id", 0, 200, 200), schema="auth")}
    profiles = {2: column("users", "id", 0, 150, 150), 3: column("users", "nickname", 1, 150, 150)}
    referred = Candidate((2,), (1,))
    ranked = rank({referred: Measured(1.0, 0.75, 0.01, 0.0)}, users | profiles, [(1,), (2,)])
    assert [(of.candidate, of.score > 0) for of in ranked] == [(referred, True)]


def test_copies_are_found_whatever_comes_before_them() -> None:
    of = {
        "auth.users": ["id"], "shop.users": ["id", "nickname"], "shop.orders": ["id", "user"],
        "old.orders": ["id", "user"],
    }  # fmt: skip
    columns, number = {}, {}
    for table, names in of.items():
        for place, name in enumerate(names):
            number[f"{table}.{name}"] = len(columns)
            schema, bare = table.split(".")
            columns[len(columns)] = replace(column(bare, name, place, 150, 150), schema=schema)
    no_copy = single(number["shop.users.id"], number["auth.users.id"])
    own = single(number["shop.orders.id"], number["old.orders.id"])
    across = single(number["shop.users.nickname"], number["old.orders.id"])
    meant = single(number["shop.users.nickname"], number["shop.orders.id"])
    for order in ([no_copy, own, across, meant], [meant, across, own, no_copy]):
        assert by_copies(order, columns) == {own: None, across: meant}
    assert by_copies([no_copy, own, across], columns) == {own: None}


def test_by_names_alone_what_is_alike_enough_is_suggested() -> None:
    names = ["customer_id", "cust_id", "custo_id", "customers_ident", "customer", "client_id", "id_customer", "amount"]
    columns = {10: COLUMNS[10]} | {20 + i: column("orders", name, i, 500, 100) for i, name in enumerate(names)}
    measured = {single(20 + i, 10): Measured(1.0, 0.5, 0.1, 0.2) for i in range(len(names))}
    for method, least in ((Method.CHEN, 0.6), (Method.NAMES, 0.75)):
        ranked = rank(measured, columns, [(10,)], method)
        assert [of.suggested for of in ranked] == [of.score >= least for of in ranked]
        assert {of.suggested for of in ranked} == {True, False}
    assert any(0.6 <= of.score < 0.75 for of in rank(measured, columns, [(10,)], Method.CHEN))


@pytest.mark.parametrize("method", [Method.RANDOMNESS, Method.NAMES, Method.CHEN, Method.COMBINED])
def test_the_others_are_ranked_as_without_what_is_rejected(method: Method) -> None:
    whole = {of.candidate: of for of in rank(MEASURED, COLUMNS, KEYS, method)}
    others = {candidate: of for candidate, of in MEASURED.items() if candidate != RIGHT}
    ranked = rank(MEASURED, COLUMNS, KEYS, method, rejected=[RIGHT])
    assert [of for of in ranked if of.candidate != RIGHT] == rank(others, COLUMNS, KEYS, method)
    (rejected,) = (of for of in ranked if of.candidate == RIGHT)
    assert (rejected.score, rejected.suggested) == (whole[RIGHT].score, False)
    assert [of.score for of in ranked] == sorted((of.score for of in ranked), reverse=True)


@pytest.mark.parametrize("method", [Method.COMBINED, Method.ROSTIN])
def test_terms_add_up_to_the_score(method: Method) -> None:
    for of in rank(MEASURED, COLUMNS, KEYS, method):
        log_odds = of.intercept + sum(of.terms.values())
        assert of.score == pytest.approx(float(probability(np.array(log_odds))))
        assert list(map(abs, of.terms.values())) == sorted(map(abs, of.terms.values()), reverse=True)
        assert set(of.terms) <= set(of.features)


def test_the_reverse_of_a_foreign_key_is_implied() -> None:
    back = Candidate((10,), (21,))
    found = rank(MEASURED | {back: Measured(0.95, 1.0, 0.004, 0.0)}, COLUMNS, [*KEYS, (21,)])
    assert {of.candidate: (of.suggested, of.implied) for of in found}[back] == (False, True)


def test_what_is_rejected_is_not_implied_by_what_is_suggested() -> None:
    """A person is a customer and who orders is one, so who orders is a person: but for whoever said that it is not."""
    columns = COLUMNS | {30: column("persons", "id", 0, 250, 250), 10: column("customers", "person_id", 0, 200, 200)}
    chain = RIGHT, Candidate((10,), (30,))
    through = Candidate((21,), (30,))
    measured = dict.fromkeys(chain, Measured(1.0, 0.95, 0.004, 0.0)) | {through: Measured(1.0, 0.5, 0.3, 0.0)}
    for rejected in (), (through,):
        found = {of.candidate: of for of in rank(measured, columns, [(10,), (30,)], rejected=rejected)}
        assert [found[one].suggested for one in (*chain, through)] == [True, True, False]
        assert found[through].implied == (not rejected)


def test_the_order_of_the_input_does_not_matter() -> None:
    backwards = dict(reversed(MEASURED.items())), dict(reversed(COLUMNS.items())), KEYS[::-1]
    ours, theirs = rank(MEASURED, COLUMNS, KEYS), rank(*backwards)
    assert [of.candidate for of in ours] == [of.candidate for of in theirs]
    assert [of.score for of in ours] == pytest.approx([of.score for of in theirs])


@pytest.mark.parametrize("method", Method)
def test_what_was_not_measured_says_nothing(method: Method) -> None:
    """As of sketches: no values, so no ends, no lengths and no distance."""
    columns = {
        i: replace(of, least=None, greatest=None, mean_length=None, is_integer=False) for i, of in COLUMNS.items()
    }
    ranked = rank({c: Measured(of.phi, of.coverage) for c, of in MEASURED.items()}, columns, KEYS, method)
    assert all(0 <= of.score <= 1 for of in ranked)
    if method is Method.COMBINED:
        assert ranked[0].candidate == RIGHT
        assert all(of.terms["distance"] == 0 for of in ranked if "distance" in fitted("combined", declared=False).steps)


@pytest.mark.parametrize("right", [RIGHT, Candidate((21, 22), (10, 20))])
def test_by_randomness_nothing_is_suggested_that_was_not_measured(right: Candidate) -> None:
    measured = {
        right: Measured(1.0, 0.95),
        Candidate(right.dependent[::-1], right.referenced[::-1]): Measured(1.0, 0.4),
        Candidate(right.referenced, right.dependent): Measured(1.0, 1.0, 1.0),
    }
    found = rank(measured, COLUMNS, KEYS, Method.RANDOMNESS)
    assert len(found) == len(measured)
    assert not any(of.suggested for of in found)
    found = rank(measured | {right: Measured(1.0, 0.95, 0.004)}, COLUMNS, KEYS, Method.RANDOMNESS)
    assert [of.candidate for of in found if of.suggested] == [right]


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("names", ["", "7", "x" * 5_000, "顧客"])
def test_names_that_tell_nothing_are_ranked_by_what_is_left(method: Method, names: str) -> None:
    columns = {i: replace(of, name=names, table=names + str(of.rows)) for i, of in COLUMNS.items()}
    assert len(rank(MEASURED, columns, KEYS, method)) == len(MEASURED)


def test_columns_without_names_are_ranked_by_a_model_without_them() -> None:
    """However columns are numbered: what counts are the values, and that `order_customers` says `customers`."""
    found = []
    for name in ("c{}", "Column {}", "_{}", "v"):
        columns = {i: replace(of, name=name.format(i)) for i, of in COLUMNS.items()}
        columns |= {i: replace(columns[i], table="order_customers") for i in (21, 22)}
        ranked = rank(MEASURED, columns, KEYS)
        assert all(set(of.terms) <= {*fitted("nameless", declared=False).steps, "behind"} for of in ranked)
        assert next(of for of in ranked if of.candidate.dependent == RIGHT.dependent).candidate == RIGHT
        found.append([(of.candidate, of.score) for of in ranked])
    assert all(of == found[0] for of in found)


def test_the_model_without_names_looks_at_none_of_columns() -> None:
    names = {feature for feature in fitted("combined", declared=True).steps if feature.startswith("name")}
    assert names
    assert not names & {*fitted("nameless", declared=True).steps, *fitted("nameless", declared=False).steps}


@pytest.mark.parametrize("method", Method)
def test_nothing_to_rank_is_ranked(method: Method) -> None:
    assert rank({}, COLUMNS, KEYS, method) == []


CITY = {
    i: replace(column(table, name, ordinal, 100, 90), is_primary=table != "airport")
    for i, (table, name, ordinal) in enumerate(
        [
            ("province", "name", 0), ("province", "country", 1),
            ("city", "name", 0), ("city", "province", 1), ("city", "country", 2),
            ("airport", "city", 0), ("airport", "province", 1), ("airport", "country", 2), ("airport", "code", 3),
        ]
    )
}  # fmt: skip
AIRPORT_CITY = Candidate((5, 6, 7), (2, 3, 4))
CITY_PROVINCE = Candidate((3, 4), (0, 1))
THROUGH = Candidate((6, 7), (0, 1))
PART = Candidate((5, 7), (2, 4))
OTHER = Candidate((8, 7), (0, 1))
COUNTRY = Candidate((7,), (4,))


@pytest.mark.parametrize("method", [Method.NAMES, Method.CHEN, Method.COMBINED])
def test_of_composites_what_follows_from_wider_ones_is_implied(method: Method) -> None:
    """As in Mondial: an airport is in a city, a city in a province; so the airport is, and that says nothing new."""
    candidates = [AIRPORT_CITY, CITY_PROVINCE, THROUGH, PART, OTHER, COUNTRY]
    found = rank(dict.fromkeys(candidates, Measured(1.0, 0.5, 0.1, 0.0)), CITY, [(0, 1), (2, 3, 4), (4,)], method)
    composite = [of for of in found if len(of.candidate.dependent) > 1]
    assert {of.candidate for of in composite if of.suggested} == {AIRPORT_CITY, CITY_PROVINCE}
    assert {of.candidate for of in found if of.implied} == {THROUGH, PART, COUNTRY}
    assert {of.candidate: of.ruled_out_by for of in composite}[PART] == AIRPORT_CITY
    if method is Method.COMBINED:
        assert not next(of for of in found if of.candidate == COUNTRY).suggested
    for of in composite:
        assert of.features == {"phi": 1.0, "coverage": 0.5, "distance": 0.1}
        assert of.score == pytest.approx(sum(of.terms.values()))
        assert 0 <= of.score <= 1


def single(dependent: int, referenced: int) -> Candidate:
    return Candidate((dependent,), (referenced,))


def test_what_refers_to_a_weak_entity_says_its_owner_by_that() -> None:
    """As in Mondial: country(code) 0, province(name, country) 1 and 2, lake(province, country) 3 and 4."""
    lake, owner, said = Candidate((3, 4), (1, 2)), single(2, 0), single(4, 0)
    assert said_by_composites([owner, said], [lake]) == {said: lake}
    assert said_by_composites([said], [lake]) == {}
    assert said_by_composites([owner, single(4, 5)], [lake]) == {}
    assert said_by_composites([single(4, 2)], [lake]) == {single(4, 2): lake}


def test_what_refers_to_an_association_refers_to_its_sides_beside() -> None:
    """As in TPC-H: part 0, supplier 1, partsupp(part, supplier) 2 and 3, lineitem(part, supplier) 4 and 5."""
    assert (
        said_by_composites([single(2, 0), single(3, 1), single(4, 0), single(5, 1)], [Candidate((4, 5), (2, 3))]) == {}
    )


def test_what_is_said_by_a_composite_is_not_suggested_but_implied() -> None:
    names = [
        ("country", "id"),
        ("province", "name"),
        ("province", "country_id"),
        ("lake", "province"),
        ("lake", "country_id"),
    ]
    columns = {
        i: replace(column(table, name, i % 2, 100 + i, 90), is_primary=i < 3) for i, (table, name) in enumerate(names)
    }
    lake, owner, said = Candidate((3, 4), (1, 2)), single(2, 0), single(4, 0)
    measured = {
        lake: Measured(1.0, 0.5, 0.1),
        owner: Measured(1.0, 0.9, 0.01, 0.0),
        said: Measured(1.0, 0.8, 0.01, 0.0),
    }
    found = {of.candidate: of for of in rank(measured, columns, [(0,), (1, 2)])}
    assert {candidate for candidate, of in found.items() if of.suggested} == {lake, owner}
    assert (found[said].implied, found[said].ruled_out_by) == (True, lake)
    alone = rank({owner: measured[owner], said: measured[said]}, columns, [(0,), (1, 2)])
    assert all(of.suggested for of in alone)


def test_composites_are_ranked_by_randomness_alone() -> None:
    found = rank(
        {CITY_PROVINCE: Measured(1.0, 0.5, 0.01), OTHER: Measured(1.0, 0.5, 0.6)}, CITY, [(0, 1)], Method.RANDOMNESS
    )
    assert [(of.candidate, of.suggested) for of in found] == [(CITY_PROVINCE, True), (OTHER, False)]


def test_of_keys_no_schema_declares_columns_that_identify_are_meant() -> None:
    names = [("laps", "raceId"), ("laps", "driverId"), ("laps", "position"), ("stops", "raceId"), ("stops", "driverId"),
             ("stops", "position")]  # fmt: skip
    columns = {i: column(table, name, i % 3, 100, 50) for i, (table, name) in enumerate(names)}
    by_driver, by_position = Candidate((3, 4), (0, 1)), Candidate((3, 5), (0, 2))
    found = rank(dict.fromkeys((by_driver, by_position), Measured(1.0, 0.4)), columns, [(0, 1), (0, 2)])
    assert [(of.candidate, of.score, of.suggested) for of in found] == [
        (by_driver, 1.0, True),
        (by_position, 0.5, False),
    ]


def test_of_tables_with_the_same_composite_the_root_is_meant() -> None:
    tables = ["order_line", "shipment_line", "return_line"]
    columns = {
        2 * i + j: replace(column(table, name, j, 100, 90), is_primary=True)
        for i, table in enumerate(tables)
        for j, name in enumerate(("order_id", "line_no"))
    }
    up, onwards, over = Candidate((2, 3), (0, 1)), Candidate((4, 5), (2, 3)), Candidate((4, 5), (0, 1))
    found = rank(dict.fromkeys((up, onwards, over), Measured(1.0, 0.9)), columns, [(0, 1), (2, 3)])
    assert {of.candidate for of in found if of.suggested} == {up, over}
