"""What a column's profile, its name and the others' names say, each by hand in a database of a few tables."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

from service.core.errors import ConflictError
from service.core.foreign_keys.candidates import Candidate, Inclusions
from service.core.foreign_keys.composites import composite_terms, follows
from service.core.foreign_keys.features import data_features, pair_features
from service.core.foreign_keys.model import AdditiveModel, Steps
from service.core.foreign_keys.name_features import _Names, name_evidence
from service.core.foreign_keys.names import NameSimilarity, Vocabulary, singular, word_similarity
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.ranking import Method, rank
from service.core.foreign_keys.rostin import rostin_features
from service.core.value_order import ValueOrder


def column(table: str, name: str, distinct: int = 50, **others: object) -> ColumnProfile:
    made = ColumnProfile("shop", table, name, 0, "integer", 100, 0, distinct, ValueOrder.NUMERIC, "1", str(distinct))
    return replace(made, **{"mean_length": 2.0, "is_integer": True, **others})  # type: ignore[arg-type]


def features(
    columns: dict[int, ColumnProfile], pairs: list[tuple[int, int]], keys: list[int]
) -> dict[str, list[float]]:
    found = pair_features(dict.fromkeys(pairs, Measured(1.0, 0.5, 0.1, 0.0)), columns, keys)
    assert {name for name, of in found.items() if of.dtype != np.float64} == set()
    return {name: of.tolist() for name, of in found.items()}


def test_a_value_comes_again_where_there_are_fewer_values_than_cells_that_have_one() -> None:
    assert column("t", "c", distinct=79, nulls=20).has_repeats
    assert not column("t", "c", distinct=80, nulls=20).has_repeats


def test_a_density_is_known_of_whole_numbers_with_both_ends() -> None:
    assert column("t", "c", distinct=4, least="-1", greatest="6").density == 0.5
    for unknown in ({"least": None}, {"greatest": None}, {"is_integer": False}):
        assert column("t", "c", **unknown).density == 0  # type: ignore[arg-type]
    assert column("t", "c", least="x", is_integer=False).density == 0


@pytest.mark.parametrize(
    ("distinct", "least", "greatest", "counts"),
    [(9, "0", "9", True), (9, "1", "10", True), (8, "0", "9", False), (9, "2", "11", False), (9, "-1", "8", False)],
)
def test_a_column_counts_up_from_0_or_1_with_few_left_out(
    distinct: int, least: str, greatest: str, counts: bool
) -> None:
    assert column("t", "c", distinct, least=least, greatest=greatest).counts_up is counts


def test_what_data_say_of_columns_that_are_no_whole_numbers() -> None:
    text = {"is_integer": False, "order": ValueOrder.LEXICOGRAPHIC, "greatest": "x"}
    columns = {
        0: column("t", "a", 30, nulls=40, greatest="60"),
        1: column("u", "b", 30, **text),  # type: ignore[arg-type]
        2: column("v", "c", 1, least="0", greatest="0"),
    }
    measured = {
        (0, 1): Measured(1.0, 1.0), (1, 0): Measured(1.0, 0.9), (0, 2): Measured(0.9, 1.0), (2, 0): Measured(0.9, 0.9)
    }  # fmt: skip
    found = data_features(measured, columns, [1])
    assert {of.dtype for of in found.values()} == {np.dtype(np.float64)}
    expected = {
        "equal_sets": [1, 0, 0, 0],
        "nulls": [0.4, 0, 0.4, 0],
        "dep_integer": [1, 0, 1, 1],
        "ref_integer": [0, 1, 1, 1],
        "dep_numeric": [1, 0, 1, 1],
        "greatest_ratio": [-1, -1, -1, 0],
        "dep_key": [0, 1, 0, 0],
        "dep_unique": [0, 0, 0, 0],
    }
    assert {name: found[name].tolist() for name in expected} == expected
    assert data_features({}, columns, []) == {}


@pytest.mark.parametrize(
    ("word", "one"),
    [("churches", "church"), ("tags", "tag"), ("axis", "axis"), ("ids", "ids"), ("dishes", "dish"), ("class", "class")],
)
def test_the_singular_of_a_word(word: str, one: str) -> None:
    assert singular(word) == one


def test_of_three_letters_only_those_in_front_count() -> None:
    assert word_similarity("own", "town") == 0
    assert word_similarity("mark", "marc") > 0.85


def test_what_no_table_says_weighs_whole_and_a_number_half() -> None:
    words = Vocabulary({"customers": ["id", "name"], "orders": ["id", "notes"], "parts": ["id"]})
    assert words.weight("nothing") == 1
    assert words.weight("7") == 0.5
    assert words.weight("id") == pytest.approx(0.25 * log(2) / log(4))


def test_a_word_is_cut_where_a_tables_name_is_in_front_of_what_identifies() -> None:
    words = Vocabulary({"tag": ["tagid", "valid", "name", "tagging", "customerkey"], "customers": ["custno", "x"]})
    own = {name: words.column("tag", name).words for name in ("tagid", "valid", "name", "tagging", "customerkey")}
    assert own == {
        "tagid": ("tag", "id"),
        "valid": ("valid",),
        "name": ("name",),
        "tagging": ("tagging",),
        "customerkey": ("customer", "key"),
    }
    assert words.column("customers", "custno").words == ("cust", "no")


def test_a_prefix_is_what_seven_of_ten_columns_begin_with() -> None:
    different, most, few = ["u_x", "v_y", "w_z"], ["l_x", "l_y", "l_z", "note"], ["l_x", "l_y", "note", "date"]
    words = Vocabulary({"a": different, "b": most, "c": few, "d": ["l_x", "l_y"]})
    assert [words.column("a", name).bare for name in different] == [("u", "x"), ("v", "y"), ("w", "z")]
    assert [words.column("b", name).bare for name in most] == [("x",), ("y",), ("z",), ("note",)]
    assert words.column("c", "l_x").bare == words.column("d", "l_x").bare == ("l", "x")


def of_names(tables: dict[str, list[str]], dependent: str, referenced: str) -> NameSimilarity:
    words = Vocabulary(tables)
    (a, b), (c, d) = dependent.split("."), referenced.split(".")
    return words.similarity(words.column(a, b), words.column(c, d))


def test_what_two_tables_names_share_may_be_left_out() -> None:
    tables = {"sales_orders": ["id", "customer_id"], "sales_customers": ["id", "name"]}
    assert of_names(tables, "sales_orders.customer_id", "sales_customers.id").full == pytest.approx(1)


def test_a_number_behind_a_name_says_which_and_not_what() -> None:
    found = of_names({"borders": ["country1", "country2"], "country": ["id"]}, "borders.country1", "country.id")
    assert (found.role_said, found.role_explained) == (1, 1)


CUSTOMERS = {
    0: column("customers", "id", 100),
    1: column("orders", "customer_id"),
    2: column("invoices", "customer_id"),
    3: column("orders", "id", 100),
    4: column("orders", "note"),
}


def test_a_key_that_others_refer_to_is_a_hub() -> None:
    found = features(CUSTOMERS, [(1, 0), (2, 0), (4, 0), (1, 3)], [0, 3])
    assert found["hub"] == pytest.approx([log(2), log(2), log(3), 0])
    assert found["ref_identifier"] == [1, 1, 1, 1]
    assert found["identifier"] == [1, 1, 0, 1]
    assert found["better_named"] == [0, 0, 0, 1]
    assert found["peers"] == [1, 1, 1, 0.5]


def test_a_name_is_held_against_the_best_of_any_key_but_the_column_itself() -> None:
    found = features(CUSTOMERS, [(3, 0), (1, 0)], [0, 3])
    best = name_evidence({(3, 0), (1, 0), (1, 3)}, CUSTOMERS)
    held = [best[3, 0], max(best[1, 0], best[1, 3])]
    assert found["lead_of_any"] == pytest.approx(np.array(found["evidence"]) - held)
    alone = features(CUSTOMERS, [(0, 3)], [0])
    assert alone["lead_of_any"] == alone["evidence"]


def test_a_column_that_is_a_key_is_held_against_another_key_of_its_name() -> None:
    columns = {i: column("orders", "id", schema=f"s{i}") for i in range(2)}
    found = features(columns, [(0, 1)], [0, 1])
    assert found["lead_of_any"] == pytest.approx(np.array(found["evidence"]) - name_evidence({(0, 1)}, columns)[0, 1])


def test_of_columns_and_keys_that_are_no_pairs_nothing_is_kept() -> None:
    columns = {i: column(f"table{i}", f"name{i}_id") for i in range(60)}
    names = _Names([(a, a % 20) for a in range(20, 60)], columns, range(20))
    told: list[tuple[int, int]] = []
    names.features(lambda *done: told.append(done))
    assert len(names.known) == 40
    assert told == [(done, 40) for done in range(40)]


def test_a_ranking_ends_by_what_telling_raises() -> None:
    def stop(done: int, total: int) -> None:
        raise ConflictError(f"{done} of {total}")

    with pytest.raises(ConflictError, match="0 of 1"):
        rank({Candidate((1,), (0,)): Measured(1.0, 0.5)}, CUSTOMERS, [(0,)], telling=stop)


def test_a_key_between_two_is_as_well_named_as_the_worse_of_its_steps() -> None:
    """c refers to b, and b to a: of (c, a) the key b is below a, of (c, b) the key a is above b."""
    columns = {
        0: column("customers", "id"), 1: column("orders", "customer_id"), 2: column("order_lines", "customer_id")
    }  # fmt: skip
    pairs = [(1, 0), (2, 1), (2, 0)]
    found = features(columns, pairs, [0, 1])
    said = dict(zip(pairs, found["evidence"], strict=True))
    assert found["parent"] == pytest.approx([0, min(said[1, 0], said[2, 0]), 0])
    assert found["child"] == pytest.approx([0, 0, min(said[1, 0], said[2, 1])])
    assert min(said.values()) > 0.1


def test_a_column_and_itself_agree_even_without_a_name() -> None:
    columns = {0: column("", "_"), 1: column("", "-")}
    assert name_evidence([(0, 0), (0, 1)], columns) == {(0, 0): 1.0, (0, 1): 0.0}


def test_of_a_key_whose_greatest_value_is_not_known_no_ratio_is() -> None:
    columns = {0: column("t", "a", 30), 1: column("u", "b", 30, least=None, greatest=None)}
    assert data_features({(0, 1): Measured(1.0, 0.5)}, columns, [1])["greatest_ratio"].tolist() == [-1]


def test_rostins_features_are_floats_and_know_a_key_by_table_and_name() -> None:
    found = rostin_features({(1, 0): Measured(1.0, 0.5), (4, 0): Measured(1.0, 0.5)}, CUSTOMERS)
    assert {of.dtype for of in found.values()} == {np.dtype(np.float64)}
    assert found["column_name"].tolist() == [1, 0]
    assert np.isnan(found["out_of_range"]).all()


def test_a_pair_of_which_nothing_is_known_bounds_a_candidate_by_0() -> None:
    known = Inclusions({0: 0, 1: 1}, {(0, 1): 0.9})
    assert known.bound(Candidate((0, 2), (1, 2))) == 0.9
    assert known.bound(Candidate((0,), (2,))) == 0


def test_a_model_says_in_json_what_it_is_with_what_tells_most_in_front() -> None:
    steps = {"a": Steps((0.0,), (-1.0, 1.0)), "b": Steps((), (5.0,)), "c": Steps((0.5, 2.0), (-3.0, 0.0, 1.0))}
    read = AdditiveModel(0.5, steps, 0.3, ("shop",)).as_dict()
    assert list(read["steps"]) == ["c", "a", "b"]
    assert read == {
        "intercept": 0.5,
        "threshold": 0.3,
        "data": ["shop"],
        "steps": {
            "a": {"edges": [0.0], "scores": [-1.0, 1.0]},
            "b": {"edges": [], "scores": [5.0]},
            "c": {"edges": [0.5, 2.0], "scores": [-3.0, 0.0, 1.0]},
        },
    }


def test_a_model_without_steps_gives_what_all_start_with() -> None:
    assert AdditiveModel(-1.0, {}).log_odds({}).tolist() == [-1.0]


@pytest.mark.parametrize("method", [Method.RANDOMNESS, Method.NAMES, Method.CHEN])
def test_the_score_of_a_method_without_a_model_is_the_feature_that_it_goes_by(method: Method) -> None:
    measured = {Candidate((1,), (0,)): Measured(1.0, 0.5, 0.25), Candidate((4,), (0,)): Measured(1.0, 0.5)}
    for of in rank(measured, CUSTOMERS, [(0,)], method):
        distance = measured[of.candidate].distance
        expected = {
            Method.RANDOMNESS: 0.0 if distance is None else 1 - distance,
            Method.NAMES: of.features["evidence"],
            Method.CHEN: of.features["name"],
        }
        assert of.score == expected[method]
        assert of.terms == {method.value: of.score}


def test_names_alone_must_say_more_than_in_chens_method() -> None:
    """A role of two words in front is too much for what a name alone must say, 0.75, and not for 0.6."""
    columns = {0: column("customers", "id", 100), 1: column("orders", "billing_address_customer_id")}
    found = {method: rank({Candidate((1,), (0,)): Measured(1.0, 0.5)}, columns, [(0,)], method)[0] for method in Method}
    assert 0.6 <= found[Method.NAMES].score < 0.75
    assert not found[Method.NAMES].suggested


LINES = {
    2 * i + j: column(table, name, is_primary=True)
    for i, table in enumerate(("order_line", "shipment_line", "return_line"))
    for j, name in enumerate(("order_id", "line_no"))
}
UP, ONWARDS, OVER = Candidate((2, 3), (0, 1)), Candidate((4, 5), (2, 3)), Candidate((4, 5), (0, 1))


def test_a_key_loses_by_how_well_named_the_one_above_it_is() -> None:
    phi = {UP: 1.0, ONWARDS: 0.9, OVER: 0.8}
    terms = composite_terms({candidate: Measured(of, 0.5) for candidate, of in phi.items()}, LINES)
    said = name_evidence({(2, 0), (3, 1)}, LINES)
    mean = (said[2, 0] + said[3, 1]) / 2
    assert mean > 0.5
    names = {candidate: of["names"] for candidate, of in terms.items()}
    assert names == pytest.approx({candidate: of * mean for candidate, of in phi.items()})
    assert terms[ONWARDS] == {"names": names[ONWARDS], "parent": -0.5 * names[ONWARDS] * min(names[UP], names[OVER])}
    assert {terms[UP]["parent"], terms[OVER]["parent"]} == {0}


def test_of_keys_that_are_above_each_other_none_is() -> None:
    both = [UP, Candidate(*UP[::-1]), ONWARDS, OVER]
    terms = composite_terms(dict.fromkeys(both, Measured(1.0, 0.5)), LINES)
    assert {of["parent"] for of in terms.values()} == {0}


@pytest.mark.parametrize(
    ("names", "declared", "share"),
    [(["race_id", "position"], False, 0.5), (["race_id", "position"], True, 1.0), (["race", "position"], False, 1.0)],
)
def test_columns_that_identify_count_where_no_schema_says_what_does(
    names: list[str], declared: bool, share: float
) -> None:
    columns = {i: column("laps" if i < 2 else "stops", names[i % 2], is_primary=declared) for i in range(4)}
    terms = composite_terms({UP: Measured(1.0, 0.5)}, columns)
    assert terms[UP]["names"] == pytest.approx(share)


def test_what_is_a_part_of_a_wider_one_backwards_follows_from_it() -> None:
    for part in (Candidate((0, 1), (2, 3)), Candidate((0,), (2,)), Candidate((3,), (1,)), Candidate((1,), (3,))):
        assert follows(part, [UP]) == UP
    for other in (Candidate((0,), (3,)), Candidate((0, 1), (2, 4)), UP, OVER):
        assert follows(other, [UP]) is None


def test_a_composite_ranked_by_randomness_has_its_distance_for_a_reason() -> None:
    measured = {UP: Measured(1.0, 0.5, 0.01), OVER: Measured(1.0, 0.5), Candidate((2,), (0,)): Measured(1.0, 0.5, 0.2)}
    found = {of.candidate: of for of in rank(measured, LINES, [(0, 1), (0,)], Method.RANDOMNESS)}
    assert [(found[c].score, found[c].terms) for c in (UP, OVER)] == [
        (0.99, {"randomness": 0.99}),
        (0, {"randomness": 0}),
    ]


def test_a_ranking_by_randomness_leaps_nowhere_below_what_its_grid_resolves() -> None:
    """The grid of a tuple has 16 cells a column by default, and that of a column 256."""
    distances = [0.0, 0.0187, 0.0290, 0.0521, 0.2158]
    parts = range(2, 2 + 2 * len(distances))
    columns = {i: column("laps" if i < 2 else f"stops{i // 2}", f"c{i % 2}") for i in (0, 1, *parts)}
    tuples = {
        Candidate((2 + 2 * i, 3 + 2 * i), (0, 1)): Measured(1.0, 0.5, distance) for i, distance in enumerate(distances)
    }
    found = {of.candidate: of.suggested for of in rank(tuples, columns, [(0, 1)], Method.RANDOMNESS)}
    assert [found[candidate] for candidate in tuples] == [True] * 4 + [False]
    single = {Candidate((2 + i,), (0,)): Measured(1.0, 0.5, distance) for i, distance in enumerate(distances)}
    for cells, count in ((256, 1), (16, 4)):
        of_one = rank(single, columns, [(0,)], Method.RANDOMNESS, cells=(cells, cells))
        assert [of.suggested for of in of_one] == [True] * count + [False] * (5 - count)
