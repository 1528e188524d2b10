"""The settings of a corpus: what may be said, in which words, and that nothing is lost on the way to storage."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core.column_filters import NULL_TOKENS, PAPER, Filters
from service.core.corpus import CorpusSettings, parse_filters, preset_null_tokens
from service.core.corpus_choices import Algorithm, Parameters, Strategy, allowances
from service.core.errors import SourceError
from service.core.near_matches import Near

SHARES = st.fractions(0, 1, max_denominator=10**6)

ANY_SETTINGS = st.builds(
    CorpusSettings,
    null_tokens=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))).map(tuple),
    delimiter=st.sampled_from([None, ";", "\t", "|"]),
    header=st.booleans(),
    filters=st.builds(Filters, st.booleans(), st.booleans(), st.booleans(), SHARES, st.integers(1, 9)),
    threshold=SHARES.filter(bool),
    algorithm=st.sampled_from([None, Algorithm.RAREST_FIRST]),
    parameters=st.builds(
        Parameters, st.integers(1, 999), st.integers(1, 9), st.integers(1, 9), st.sampled_from(Strategy)
    ),
    top=st.none() | st.integers(1, 9),
    partitions=st.none() | st.integers(1, 9),
    max_failed=SHARES,
    max_table_bytes=st.integers(1, 1 << 50),
    joinable=st.booleans(),
    near=st.sets(st.sampled_from(Near)).map(lambda found: tuple(sorted(found))),
    index=st.none() | st.just("/somewhere"),
)


@given(ANY_SETTINGS)
def test_settings_come_back_from_json_as_they_were(settings: CorpusSettings) -> None:
    assert CorpusSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_what_is_left_out_has_its_default() -> None:
    assert CorpusSettings.from_json({}) == CorpusSettings()
    assert CorpusSettings.from_json({"coverage": 0.2, "algorithm": None}).filters == Filters(coverage=Fraction(1, 5))


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"treshold": 1}, r"^treshold is no setting of a corpus; there are null_tokens, delimiter, "),
        ({"null_tokens": "—"}, r"^null_tokens '—': give a list of texts"),
        ({"near": ["Case"]}, r"^near \['Case'\]: give a list of case, spaces, numbers"),
        ({"near": "case"}, r"^near 'case': give a list of case, spaces, numbers"),
        ({"null_tokens": ["\0"]}, r"^null_tokens .*: give a text without NUL"),
        ({"delimiter": ";;"}, r"^delimiter ';;': give one character"),
        ({"delimiter": "¦"}, r"^delimiter '¦': give one character, and none that .* is not ASCII"),
        ({"quote": "\n"}, r"^quote '\\n': give one character, and none that ends a line"),
        ({"delimiter": '"'}, r"^delimiter '\"': the quote is the same"),
        ({"header": 1}, r"^header 1: give true or false"),
        ({"encoding": "utf-9"}, r"^encoding 'utf-9' is not known"),
        ({"encoding": "undefined"}, r"^encoding 'undefined' is not known"),
        ({"encoding": "\ud800"}, r"^encoding '\\ud800' is not known"),
        ({"top": True}, r"^top True: give a whole number"),
        ({"top": 0}, r"^top 0: give at least 1"),
        ({"min_values": None}, r"^min_values None: give a whole number"),
        ({"partitions": 2**31}, r"^partitions 2147483648: give a whole number"),
        ({"coverage": "a fifth"}, r"^coverage 'a fifth': give a number such as 0.2, or a fraction such as 1/5"),
        ({"coverage": "1/0"}, r"^coverage '1/0': give a number"),
        ({"coverage": float("nan")}, r"^coverage nan: give a number"),
        ({"coverage": "1e-999999999"}, r"^coverage '1e-999999999': give a number"),
        ({"threshold": "1E+999999999"}, r"^threshold '1E\+999999999': give a number"),
        ({"max_failed": "1e-5000"}, r"^max_failed '1e-5000': give a number"),
        ({"max_failed": "1e-50"}, r"^max_failed '1e-50': give a number"),
        ({"coverage": 1.5}, r"^threshold, coverage: a threshold of 1 and a coverage of 3/2"),
        ({"threshold": 0}, r"^threshold, coverage: a threshold of 0"),
        ({"threshold": "0.12345678"}, r"at most six digits"),
        ({"max_failed": 2}, r"^max_failed 2: give a share"),
        ({"algorithm": "auto"}, r"^algorithm 'auto': give one of rarest-first, signatures"),
        ({"algorithm": "signatures", "threshold": 0.9}, r"^algorithm signatures finds whole inclusions only"),
        ({"algorithm": "signatures", "top": 3}, r"^top: rarest-first alone does so"),
        ({"algorithm": "signatures", "partitions": 3}, r"^partitions: rarest-first alone does so"),
        ({"bits": 0}, r"^bits, hashes, passes, strategy: 0 bits"),
        ({"strategy": []}, r"^strategy \[\]: give one of dep2refs, ref2deps"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        CorpusSettings.from_json(given_settings)


@pytest.mark.parametrize(
    ("words", "filters"),
    [
        ("none", Filters()),
        ("paper", PAPER),
        ("null-columns, unique-never", None),
        ("integer-columns,min-values=3", Filters(integer_columns=True, min_values=3)),
        ("paper,coverage=0.5,min-values=2", Filters(True, True, True, Fraction(1, 2), 2)),
        ("null-columns,non-unique-referenced,coverage", Filters(True, False, True, Fraction(1, 5))),
        ("null-columns=yes", None),
        ("min-values=many", None),
        ("", None),
    ],
)
def test_filters_have_names(words: str, filters: Filters | None) -> None:
    if filters is None:
        with pytest.raises(SourceError, match=r"^filters '.*': give none, paper, or some of null-columns"):
            parse_filters(words)
    else:
        assert CorpusSettings.from_json(parse_filters(words)).filters == filters


def test_the_papers_null_tokens_have_a_name() -> None:
    assert preset_null_tokens(("NA", "paper", "?")) == ("NA", *NULL_TOKENS)


@given(ANY_SETTINGS, st.integers(1, 1 << 50))
def test_what_is_changed_is_changed_and_all_else_stays(settings: CorpusSettings, most: int) -> None:
    changed = settings.changed({"max_table_bytes": most, "top": None})
    assert changed == replace(settings, max_table_bytes=most, top=None)
    assert settings.changed({}) == settings


@given(st.lists(st.integers(0, 10**12)), SHARES.filter(bool))
@example([0, 1, 2, 3, 99, 100, 101], Fraction(1, 3))
def test_as_many_values_may_be_missed_as_leave_the_threshold(sizes: list[int], threshold: Fraction) -> None:
    found = allowances(np.array(sizes, np.int64), threshold)
    assert found.dtype == np.int64
    for size, missed in zip(sizes, found.tolist(), strict=True):
        assert size - missed >= threshold * size > size - missed - 1


@pytest.mark.parametrize(
    ("threshold", "coverage"),
    [
        (Fraction(0), Fraction(0)),
        (Fraction(1_000_001, 10**6), Fraction(0)),
        (Fraction(1), Fraction(-1, 2)),
        (Fraction(1), Fraction(3, 2)),
        (Fraction(1, 10**6 + 1), Fraction(0)),
        (Fraction(1), Fraction(1, 10**6 + 1)),
    ],
)
def test_shares_outside_their_bounds_are_refused(threshold: Fraction, coverage: Fraction) -> None:
    with pytest.raises(ValueError, match=re.escape(f"a threshold of {threshold} and a coverage of {coverage}: ")):
        allowances(np.zeros(0, np.int64), threshold, coverage)


@pytest.mark.parametrize("numbers", [(0, 6, 2), (650, 0, 2), (650, 6, 0)])
def test_a_signature_has_something_of_each(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"bits, .* hash functions, .* passes: each is at least 1"):
        Parameters(*numbers)


@pytest.mark.parametrize(
    ("bits", "passes", "words"), [(1, 1, 1), (64, 1, 1), (65, 1, 2), (32, 2, 1), (33, 2, 2), (650, 2, 21)]
)
def test_a_signature_has_as_many_words_as_its_bits_need(bits: int, passes: int, words: int) -> None:
    assert Parameters(bits, 1, passes).words == words
