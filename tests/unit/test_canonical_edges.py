"""Canonical texts at their edges: what a value inside a document is, and whole messages of what is refused."""

from __future__ import annotations

import re
from datetime import date
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core.canonical import canonical_json, canonical_text, refuse_nul, value_key, value_keys
from service.core.canonical_arrow import plain_decimal_array
from service.core.canonical_forms import civil_from_days, days_from_civil, plain_decimal
from service.core.errors import RecordError


def test_a_document_of_a_query_holds_the_texts_that_an_event_would() -> None:
    document = {"day": date(2026, 1, 1), "ids": [UUID(int=1)], "raw": b"\xff"}
    ids = '"ids":["00000000-0000-0000-0000-000000000001"]'
    assert canonical_text(document, "jsonb") == '{"day":"2026-01-01",' + ids + r',"raw":"\\xff"}'


REFUSED = [
    ("x" * 50 + "\0", f"{'x' * 40!r} has a NUL character"),
    ("x" * 39 + "\0", f"{'x' * 39 + chr(0)!r} has a NUL character"),
    ("x" * 39 + "\udc80y", f"{'x' * 39 + chr(0xDC80)!r} has the surrogate U+DC80 without its partner"),
]


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=["long", "at the cut", "surrogate"])
def test_a_text_that_postgres_cannot_store_is_told_by_its_beginning(text: str, told: str) -> None:
    message = (
        f"The value that begins {told}, which Postgres cannot store. Remove it in the source, or leave the column out."
    )
    for keyed in (value_key, lambda text: value_keys(["fits", text])):
        with pytest.raises(RecordError, match=rf"\A{re.escape(message)}\Z"):
            keyed(text)
    if "\0" in text:
        with pytest.raises(RecordError, match=rf"\A{re.escape(message)}\Z"):
            refuse_nul(text)


@pytest.mark.parametrize("text", ["x" * 50, ".", "-", "+e5", "1e", "--1"])
def test_what_is_no_number_is_told_by_its_beginning(text: str) -> None:
    with pytest.raises(ValueError, match=rf"\A{re.escape(repr(text[:40]))} is no number\Z"):
        plain_decimal(text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("1e200000", "1" + "0" * 200_000),
        ("1e200001", "1e200001"),
        ("-12e-200002", "-0." + "0" * 200_000 + "12"),
        ("12e-200003", "12e-200003"),
        ("1.2e-200002", "12e-200003"),
    ],
    ids=["most zeros behind", "more", "most zeros in front", "more in front", "the same"],
)
def test_a_number_of_too_many_zeros_keeps_its_exponent(text: str, plain: str) -> None:
    assert plain_decimal(text) == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0012.50", "12.5"),
        ("-007.25", "-7.25"),
        ("00.10", "0.1"),
        ("1e10", "10000000000"),
        ("0.00120e+21", "1200000000000000000"),
        ("-12.5e-12", "-0.0000000000125"),
        ("+0e19", "0"),
        ("100.0", "100"),
    ],
)
def test_a_number_of_an_array_loses_its_zeros_and_its_exponent(text: str, plain: str) -> None:
    assert plain_decimal_array(pa.array([text, None, text])).to_pylist() == [plain, None, plain]
    assert plain_decimal(text) == plain


@given(st.dates())
@example(date(2000, 2, 29))
@example(date(1600, 2, 29))
def test_days_are_counted_as_python_counts_them(day: date) -> None:
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)
    for years in (-400_000, 400):  # the calendar comes again after 400 years
        assert civil_from_days(days + years // 400 * 146_097) == (day.year + years, day.month, day.day)


def test_a_document_of_too_many_levels_is_told() -> None:
    with pytest.raises(RecordError, match=r"cannot be read: it is nested too deeply\. Its text"):
        canonical_json("[" * 100_000)
    document: list[object] = []
    for _ in range(20_000):
        document = [document]
    with pytest.raises(RecordError, match=r"no canonical text: it is nested too deeply\. Convert"):
        canonical_text(document)
    while document:  # which would nest as deeply when it is thrown away
        document = document.pop()  # type: ignore[assignment]


def test_a_document_that_cannot_be_read_is_told_by_its_beginning() -> None:
    with pytest.raises(RecordError, match=rf"Its text begins '{'x' * 60}'\. Mend it in the source\.\Z"):
        canonical_json("x" * 70)
