"""Names of columns and tables: how they are split, what counts as alike, and names that are no words at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.foreign_keys.names import (
    LONGEST_NAME,
    NameSimilarity,
    Vocabulary,
    split_name,
    tell_nothing,
    word_similarity,
)

NAMES = st.text(max_size=20)
SHOP = Vocabulary(
    {
        "customers": ["id", "name", "city"],
        "order_lines": ["order_id", "product_id", "quantity"],
        "orders": ["orderid", "customerid", "ship_to_customer_id", "cust_no", "notes"],
        "products": ["productKey", "name", "supplier"],
        "part": ["p_partkey", "p_name", "p_size"],
        "partsupp": ["ps_partkey", "ps_suppkey", "ps_availqty"],
    }
)


def compare(dependent: str, referenced: str, words: Vocabulary = SHOP) -> NameSimilarity:
    (a, b), (c, d) = dependent.split("."), referenced.split(".")
    return words.similarity(words.column(a, b), words.column(c, d))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CustomerID", ("customer", "id")),
        ("HTTPServerName", ("http", "server", "name")),
        ("changed_in_version-group.id", ("changed", "in", "version", "group", "id")),
        ("country1", ("country", "1")),
        ("Categories", ("category",)),
        ("addresses", ("address",)),
        ("boxes", ("box",)),
        ("species", ("species",)),
        ("status", ("status",)),
        ("ünïCödeStraße", ("ünï", "cöde", "strasse")),
        ("顧客番号", ("顧客番号",)),
        ("ﬁle id", ("file", "id")),
        ("2019", ("2019",)),
        ("", ()),
        ("_-!", ()),
    ],
)
def test_a_name_is_split_into_words(name: str, words: tuple[str, ...]) -> None:
    assert split_name(name) == words


def test_a_very_long_name_is_looked_at_in_front_only() -> None:
    assert split_name("a" * LONGEST_NAME + "b" * 100_000) == ("a" * LONGEST_NAME,)


@pytest.mark.parametrize(
    ("first", "second", "least", "most"),
    [
        ("customer", "customer", 1, 1),
        ("cust", "customer", 0.9, 0.9),
        ("dept", "department", 0.8, 0.8),
        ("qty", "quantity", 0.8, 0.8),
        ("c", "customer", 0.5, 0.5),
        ("organisation", "organization", 0.9, 0.99),
        ("name", "game", 0, 0),
        ("start", "end", 0, 0),
        ("1", "10", 0, 0),
    ],
)
def test_words_are_alike_when_one_may_stand_for_the_other(first: str, second: str, least: float, most: float) -> None:
    assert least <= word_similarity(first, second) <= most


@given(NAMES, NAMES)
def test_likeness_of_words_is_symmetric_and_a_share(first: str, second: str) -> None:
    assert word_similarity(first, second) == word_similarity(second, first)
    assert 0 <= word_similarity(first, second) <= 1


def test_a_foreign_key_may_be_named_as_the_key_or_as_table_and_key() -> None:
    assert compare("order_lines.order_id", "orders.orderid").equal
    assert compare("orders.customerid", "customers.id").full == pytest.approx(1)
    assert compare("order_lines.product_id", "products.productKey").best > 0.7
    assert compare("order_lines.product_id", "customers.id").best < 0.4


def test_a_prefix_that_a_table_gives_its_columns_is_no_word_of_theirs() -> None:
    assert SHOP.column("partsupp", "ps_partkey").bare == ("part", "key")
    assert compare("partsupp.ps_partkey", "part.p_partkey").equal
    assert not compare("partsupp.ps_suppkey", "part.p_partkey").equal


def test_a_role_in_front_leaves_the_end_as_it_is() -> None:
    found = compare("orders.ship_to_customer_id", "customers.id")
    assert found.role_said == 1
    assert 0 < found.role_explained < 1
    assert compare("orders.ship_to_customer_id", "orders.orderid").role_said == 0


def test_an_abbreviation_is_understood() -> None:
    assert compare("orders.cust_no", "customers.id").role_said == 1
    assert compare("orders.cust_no", "products.productKey").best < 0.3


def test_words_that_all_tables_use_say_little() -> None:
    assert SHOP.weight("id") < SHOP.weight("name") < SHOP.weight("quantity")


@pytest.mark.parametrize(
    ("names", "nothing"),
    [
        (["c1", "c2", "c10"], True),
        (["_c0", "_c1"], True),
        (["f0", "f1"], True),
        (["column_3", "Column 4", "COL5"], True),
        (["Unnamed: 0", "Unnamed: 1"], True),
        (["", "7", "42"], True),
        (["x", "y", "A"], True),
        (["value", "value"], True),
        (["customer", "customer"], True),
        ([], True),
        (["c1", "c2", "customer_id"], False),
        (["id", "key"], False),
        (["名", "年"], False),
    ],
)
def test_names_tell_nothing_when_all_are_equal_or_only_count(names: list[str], nothing: bool) -> None:
    assert tell_nothing(names) is nothing


def test_what_shares_but_its_identifier_is_not_alike() -> None:
    assert compare("order_lines.order_id", "customers.id").subject == 0


@given(st.dictionaries(NAMES, st.lists(NAMES, min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_names_compare_to_shares(tables: dict[str, list[str]]) -> None:
    words = Vocabulary(tables)
    columns = [words.column(table, name) for table, names in tables.items() for name in names]
    for a in columns:
        assert not a.words or words.similarity(a, a).equal
        for b in columns:
            found = words.similarity(a, b)
            shares = [getattr(found, name) for name in NameSimilarity.__slots__ if name != "equal"]
            assert all(0 <= share <= 1 + 1e-9 for share in shares)
