"""Tell that whole Arrow arrays get the texts and keys that single values get."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core import canonical_forms as forms
from service.core.canonical import cell_decoder, stored_value, value_key
from service.core.canonical_arrow import canonical_array, key_array, plain_decimal_array, stored_array, text_buffers
from service.core.errors import RecordError, SourceError

JSON = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"b": 1.0, "a": [2]}', None, '{"a": [2], "b": 1}']))
FLAGS = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 2, None], pa.int8()))
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


def as_bytes(keys: np.ndarray) -> list[bytes]:
    return [int(high).to_bytes(8, "big") + int(low).to_bytes(8, "big") for high, low in keys]


# Keys


def test_keys_equal_hashlib_at_every_length_around_a_block() -> None:
    values = ["x" * length for length in range(301)] + ["é" * 5_000_000]
    expected = [hashlib.sha256(value.encode()).digest()[:16] for value in values]
    assert as_bytes(key_array(pa.array(values))) == expected
    assert as_bytes(key_array(pa.array(values, pa.large_string()))) == expected


@settings(deadline=None)
@given(st.lists(texts), st.integers(0, 5), st.integers(0, 5))
def test_keys_of_a_slice_are_those_of_its_values(values: list[str], start: int, stop: int) -> None:
    part = pa.array(values, pa.string()).slice(start, stop)
    assert as_bytes(key_array(part)) == [value_key(value) for value in part.to_pylist()]


def test_keys_sort_as_their_bytes_do() -> None:
    keys = key_array(pa.array([str(number) for number in range(1000)]))
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    assert as_bytes(keys[order]) == sorted(as_bytes(keys))


def test_a_nul_is_refused_and_null_has_no_key() -> None:
    with pytest.raises(SourceError, match=r"begins 'a\\x00b' has a NUL character"):
        key_array(pa.array(["ok", "a\0b", "c\0"]))
    with pytest.raises(ValueError, match=r"\ANULL has no key: drop the nulls first\Z"):
        key_array(pa.array(["a", None]))


# Numbers


@settings(deadline=None)
@given(st.lists(st.from_regex(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)))
def test_plain_decimals_of_an_array_are_those_of_its_texts(numbers: list[str]) -> None:
    array = plain_decimal_array(pa.array(numbers, pa.string()))
    assert array.to_pylist() == [forms.plain_decimal(number) for number in numbers]


def test_plain_decimals_know_nulls_slices_and_what_is_no_number() -> None:
    array = pa.array(["0", "1e3", None, "-1.50", "nan", "inf", "-inf", "-0.0", "1E-7", "12e-1"]).slice(1)
    assert plain_decimal_array(array).to_pylist() == [
        "1000", None, "-1.5", "NaN", "Infinity", "-Infinity", "0", "0.0000001", "1.2",
    ]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.floats(width=16)))
def test_half_floats_have_the_shortest_text_of_their_own_width(values: list[float]) -> None:
    decode = cell_decoder("halffloat")
    array = pa.array(np.array(values, np.float16))
    assert canonical_array(array).to_pylist() == [decode(value) for value in values]


@settings(deadline=None)
@given(st.lists(st.decimals(-10, 10, places=40) | st.none()))
def test_wide_decimals_keep_every_digit(values: list[Decimal | None]) -> None:
    array = pa.array(values, pa.decimal256(60, 40))
    assert canonical_array(array).to_pylist() == [
        None if value is None else forms.decimal_text(value) for value in values
    ]


# Dates and times


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**12), 10**12) | st.none()))
def test_timestamps_of_every_unit_and_any_year(unit: str, zone: str | None, counts: list[int | None]) -> None:
    nanoseconds = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    array = pa.array(counts, pa.int64()).view(pa.timestamp(unit, zone))
    assert canonical_array(array).to_pylist() == [
        None if count is None else forms.timestamp_text(count * nanoseconds, zoned=zone is not None) for count in counts
    ]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_days_of_any_year(days: list[int]) -> None:
    expected = [forms.days_text(day) for day in days]
    assert canonical_array(pa.array(days, pa.int32()).view(pa.date32())).to_pylist() == expected
    milliseconds = pa.array([day * 86_400_000 for day in days], pa.int64()).view(pa.date64())
    assert canonical_array(milliseconds).to_pylist() == expected


@given(st.integers(-(2**40), 2**40))
def test_the_calendar_is_python_s_within_its_years_and_reverses_beyond(day: int) -> None:
    year, month, day_of_month = forms.civil_from_days(day)
    assert forms.days_from_civil(year, month, day_of_month) == day
    if 1 <= year <= 9999:
        assert date(year, month, day_of_month).toordinal() == day + date(1970, 1, 1).toordinal()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None], pa.time32("s")), ["00:00:01.000000", None]),
        (pa.array([86_399_999], pa.time32("ms")), ["23:59:59.999000"]),
        (pa.array([1], pa.time64("us")), ["00:00:00.000001"]),
        (pa.array([1, 1000], pa.time64("ns")), ["00:00:00.000000001", "00:00:00.000001"]),
        (pa.array([-1500, None, 0], pa.duration("ms")), ["PT-1.5S", None, "PT0S"]),
        (pa.array([1], pa.duration("ns")), ["PT0.000000001S"]),
        (pa.array([90, None, -7], pa.duration("s")), ["PT90S", None, "PT-7S"]),
        (pa.array([-1, None], pa.int8()), ["-1", None]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([None, None], pa.null()), [None, None]),
        (pa.array([Decimal("-1000")], pa.decimal128(4, -3)), ["-1000"]),
        (pa.array([b"\x00\xff", None, b""]), ["00ff", None, ""]),
        (pa.array([b"\x0a", b"\x0b"], pa.large_binary()).slice(1), ["0b"]),
        (pa.array([b"ab", None, b"cd"], pa.binary(2)).slice(1), [None, "6364"]),
        (pa.array([b"ab", None], pa.binary_view()), ["6162", None]),
        (pa.array([UUID(int=10).bytes], pa.uuid()), ["00000000-0000-0000-0000-00000000000a"]),
        (pa.array(["é ", None, ""]), ["é ", None, ""]),
        (pa.array(["x" * 20, None], pa.string_view()), ["x" * 20, None]),
        (pa.array([1.50, None, 1.50]).dictionary_encode(), ["1.5", None, "1.5"]),
        (pa.array([[1, None], None, []]).slice(1), [None, "[]"]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), ["[1,2]", None]),
        (pa.array([["é", None]], pa.large_list(pa.string())), ['["é",null]']),
        (pa.array([[float("nan"), -0.0]]), ['["NaN",0]']),
        (pa.array([["1"]]), ['["1"]']),
        (pa.array([[float("inf"), float("-inf")]]), ['["Infinity","-Infinity"]']),
        (pa.array([[1], [2, 3], None, [4]], pa.list_view(pa.int8())).slice(1), ["[2,3]", None, "[4]"]),
        (pa.array([[1], [2, 3]], pa.large_list_view(pa.int8())).take([1, 0]), ["[2,3]", "[1]"]),
        (JSON, ['{"a":[2],"b":1}', None, '{"a":[2],"b":1}']),
        (pa.ListArray.from_arrays([0, 3], JSON), ['[{"a":[2],"b":1},null,{"a":[2],"b":1}]']),
        (FLAGS, ["false", "true", "true", None]),
        (pa.ListArray.from_arrays([0, 4], FLAGS), ["[false,true,true,null]"]),
        (pa.ListArray.from_arrays([0, 1], pa.array([UUID(int=10).bytes], pa.uuid())), [f'["{UUID(int=10)}"]']),
        (pa.array([[Decimal("1.50")]], pa.list_(pa.decimal32(4, 2))), ["[1.5]"]),
        (
            pa.array([{"b": 1, "a": {"d": [True], "c": date(2026, 1, 1)}}, None]),
            ['{"a":{"c":"2026-01-01","d":[true]},"b":1}', None],
        ),
        (pa.array([[("k", 1.0), ("a", None)], None], pa.map_(pa.string(), pa.float64())), ['{"a":null,"k":1}', None]),
        (pa.array([[(2, "x")]], pa.map_(pa.int8(), pa.string())), ['{"2":"x"}']),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_every_type_that_parquet_holds_has_texts(array: pa.Array, expected: list[str | None]) -> None:
    made = canonical_array(array)
    assert made.to_pylist() == expected
    assert pa.types.is_string(made.type) or pa.types.is_large_string(made.type)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.string(), pa.timestamp("us"), pa.binary(), pa.list_(pa.int8())]
)
def test_an_empty_array_has_no_texts(kind: pa.DataType) -> None:
    assert canonical_array(pa.array([], kind)).to_pylist() == []
    assert key_array(canonical_array(pa.array([], kind))).shape == (0, 2)


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)), st.data())
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_lists_of_every_layout_are_those_that_python_reads(
    kind: Callable[[pa.DataType], pa.DataType], lists: list[list[int | None] | None], data: st.DataObject
) -> None:
    array = pa.array(lists, kind(pa.int8()))
    places = data.draw(st.lists(st.sampled_from(range(len(lists))))) if lists else []
    for part in (array, array.slice(1), array.take(pa.array(places, pa.int64()))):
        assert canonical_array(part).to_pylist() == [
            None if one is None else json.dumps(one, separators=(",", ":")) for one in part.to_pylist()
        ]


def test_texts_of_an_array_are_bytes_that_nobody_writes_to() -> None:
    for texts in (pa.array(["ab", "c"]), pa.array([], pa.string())):
        offsets, data = text_buffers(texts)
        assert (offsets.dtype, data.dtype) == (np.int64, np.uint8)
        assert not data.flags.writeable


@pytest.mark.parametrize("number", [0, 1])
def test_the_first_text_with_a_nul_is_told(number: int) -> None:
    values = ["a", "b"]
    values[number] += "\0"
    with pytest.raises(SourceError, match=rf"begins '{'ab'[number]}\\x00' has a NUL"):
        key_array(pa.array(values))


def test_a_type_without_texts_is_refused() -> None:
    with pytest.raises(SourceError, match="month_day_nano_interval have no canonical text"):
        canonical_array(pa.array([(1, 2, 3)], pa.month_day_nano_interval()))


def test_runs_have_the_texts_of_their_values_and_unions_none() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1.50, None]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), runs)
    assert canonical_array(runs).to_pylist() == ["1.5", "1.5", None]
    assert canonical_array(lists).to_pylist() == ["[1.5,1.5]", "[null]"]
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    for array in (union, pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), union)):
        with pytest.raises(SourceError, match="have no canonical text"):
            canonical_array(array)


def test_what_is_no_json_is_told_with_its_way_out() -> None:
    documents = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", "{a}"]))
    with pytest.raises(RecordError, match=r"cannot be read: .* Its text begins '{a}'\. Mend it in the source"):
        canonical_array(documents)


# Stored values


@settings(deadline=None)
@given(st.lists(texts | st.none()), st.integers(0, 12))
def test_stored_values_of_an_array_are_those_of_its_texts(values: list[str | None], limit: int) -> None:
    cut = stored_array(pa.array(values, pa.string()), limit)
    assert cut.to_pylist() == [None if value is None else stored_value(value, limit) for value in values]
