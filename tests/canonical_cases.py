"""Own the cases that hold all ways of canonicalising together: a type, its values, and each way's form of one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from service.core.canonical import canonical_text

Values = st.SearchStrategy[object]


@dataclass(frozen=True)
class Case:
    """Describe one type: Postgres' name, Arrow's type, its Python values, and how an event and a query write one.

    `events` are the forms in which a feed may carry a value (the first is Debezium's default), `literal` is
    Postgres' input text. `python_type` is given where the Python class alone does not tell the type.
    """

    postgres: str
    arrow: pa.DataType | None
    values: Values
    events: tuple[Callable[[object], object], ...]
    literal: Callable[[object], str] = str
    python_type: str | None = None

    def text(self, value: object) -> str | None:
        return canonical_text(value, self.python_type)


def precise(value: object, scale: int = 3) -> str:
    """Encode as Debezium's decimal.handling.mode=precise does: base64 of the two's complement of the digits."""
    unscaled = int(Decimal(str(value)).scaleb(scale, Context(prec=80)))
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def variable_scale(value: object) -> dict[str, object]:
    """Encode as Debezium does a numeric without a scale."""
    return {"scale": 10, "value": precise(value, 10)}


def microseconds(value: object) -> int:
    if isinstance(value, time):
        value = datetime.combine(date(1970, 1, 1), value)
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None) - datetime(1970, 1, 1)
    assert isinstance(value, timedelta)
    return value // timedelta(microseconds=1)


def zoned(value: object) -> str:
    """Write as io.debezium.time.ZonedTimestamp: in UTC, with as many digits of the fraction as there are."""
    assert isinstance(value, datetime)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def same(value: object) -> object:
    return value


def array_literal(value: object) -> str:
    assert isinstance(value, list)
    quoted = (str(item).replace("\\", "\\\\").replace('"', '\\"') for item in value)
    parts = ["NULL" if item is None else f'"{text}"' for item, text in zip(value, quoted, strict=True)]
    return "{" + ",".join(parts) + "}"


def decimals(digits: int, places: int) -> Values:
    bound = Decimal(10) ** (digits - places)
    return st.decimals(-bound, bound, allow_nan=False, places=places).filter(lambda value: abs(value) < bound)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


def single(number: float) -> float:
    """Round to the nearest float of 32 bits."""
    return float(np.float32(number))


# Postgres has another shortest decimal for whole numbers that lie exactly between two floats.
between_doubles = st.builds(lambda digits, zeros: float(digits * 10**zeros), st.integers(1, 10**16), st.integers(0, 23))
between_singles = st.builds(lambda digits, zeros: single(digits * 10**zeros), st.integers(1, 10**8), st.integers(0, 10))
doubles = st.floats() | st.integers(2**53, 2**70).map(float) | between_doubles | st.sampled_from([1e23, -0.0, 5e-324])
singles = st.floats(width=32) | st.integers(2**24, 2**40).map(single) | between_singles
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones | st.just(UTC))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
documents = st.lists(json_values, max_size=3) | st.dictionaries(texts, json_values, max_size=3)

CASES = [
    Case("smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1), (same, str)),
    Case("integer", pa.int32(), st.integers(-(2**31), 2**31 - 1), (same, str)),
    Case("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1), (same, str)),
    Case("numeric", pa.decimal128(38, 10), decimals(38, 10), (variable_scale, str)),
    Case("numeric(12,3)", pa.decimal128(12, 3), decimals(12, 3), (precise, str)),
    Case("double precision", pa.float64(), doubles, (same, str), repr),
    Case("real", pa.float32(), singles, (same, str), repr, python_type="real"),
    Case("boolean", pa.bool_(), st.booleans(), (same, str)),
    Case("date", pa.date32(), st.dates(), (lambda day: (day - date(1970, 1, 1)).days, date.isoformat)),
    Case("timestamp without time zone", pa.timestamp("us"), st.datetimes(), (microseconds, datetime.isoformat)),
    Case(
        "timestamp with time zone", pa.timestamp("us", "UTC"), moments, (zoned, datetime.isoformat), datetime.isoformat
    ),
    Case("time without time zone", pa.time64("us"), st.times(), (microseconds, time.isoformat)),
    Case(
        "interval",
        pa.duration("us"),
        st.timedeltas(timedelta(days=-3_000_000), timedelta(days=3_000_000)),
        (microseconds, lambda value: f"P0Y0M{value.days}DT0H0M{value.seconds}.{value.microseconds:06d}S"),
        lambda value: f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds",
    ),
    Case(
        "bytea",
        pa.binary(),
        st.binary(max_size=40),
        (lambda data: base64.b64encode(data).decode(), lambda data: "\\x" + data.hex()),
        lambda data: "\\x" + data.hex(),
    ),
    Case("uuid", pa.uuid(), st.uuids(), (str, lambda value: UUID(str(value)).hex.upper())),
    Case("text", pa.string(), texts, (same,)),
    Case(
        "character(6)",
        None,
        st.text("abé ", max_size=6),
        (lambda text: text.ljust(6), same),
        python_type="character(6)",
    ),
    Case("jsonb", None, documents, (json.dumps, same), json.dumps),
    Case(
        "integer[]", pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=4), (same,), array_literal
    ),
    Case("text[]", pa.list_(pa.string()), st.lists(st.none() | texts, max_size=3), (same,), array_literal),
    Case("double precision[]", pa.list_(pa.float64()), st.lists(doubles, max_size=3), (same,), array_literal),
    Case(
        "numeric(12,3)[]",
        pa.list_(pa.decimal128(12, 3)),
        st.lists(decimals(12, 3), max_size=3),
        (lambda items: [precise(item) for item in items],),
        array_literal,
    ),
    Case(
        "timestamp with time zone[]",
        pa.list_(pa.timestamp("us", "UTC")),
        st.lists(moments, max_size=3),
        (lambda items: [zoned(item) for item in items],),
        array_literal,
    ),
]
