"""Own Postgres' expressions for canonical texts: Postgres 13 to 18, nothing to be created in the database."""

from __future__ import annotations

import re

from service.core.canonical import POSTGRES_SESSION_SETTINGS
from service.core.moment_decoding import is_interval

SESSION_SETTINGS = POSTGRES_SESSION_SETTINGS

_DOCUMENTS = {"json", "jsonb", "hstore", "vector", "halfvec"}
_BARE_ELEMENTS = {
    *("smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "date"),
    *(f"{name} {zone} time zone" for name in ("time", "timestamp") for zone in ("with", "without")),
}
"""Types of elements that an array's JSON has as numbers, truth values, or in ISO 8601."""
_ELEMENTS = {"xml": "::text::text[]", "hstore": "::json[]"}
"""How others whose cast to text is not their canonical text are cast."""
_FLOATS = {
    # The casts differ from Python and Arrow only where a shorter decimal lies exactly between two floats, which
    # Postgres does not use for either: whole numbers from 2^54 (2^25) to 10^40 (10^20).
    "double precision": ("9e15", "1e40"),
    "real": ("1.6e7", "1e20"),
}


def _base(data_type: str) -> str:
    name = re.sub(r"\([^)]*\)", "", data_type.strip().lower())
    return " ".join(name.split())


def needs_document_walk(data_type: str) -> bool:
    """Tell whether the expression's text must still go through `cell_decoder(data_type)` (for JSON: `canonical_json`).

    True for JSON and arrays: SQL cannot sort the keys of a document, nor cut the zeros of numbers inside.
    """
    return _base(data_type).endswith("[]") or _base(data_type) in _DOCUMENTS


def canonical_expression(data_type: str, column_sql: str) -> str:
    """Give a SQL expression for the canonical text of a column; NULL stays NULL.

    `data_type` is format_type's name (of a domain: its base type's), `column_sql` any expression without side
    effects: it is repeated. Made for a connection with SESSION_SETTINGS. A type that is not known is its own text.
    """
    x, base = f"({column_sql})", _base(data_type)
    if base.endswith("[]"):
        # Of documents and of types that are not known (composite ones) the elements are texts.
        cast = "" if base[:-2] in _BARE_ELEMENTS else _ELEMENTS.get(base[:-2], "::text[]")
        return f"array_to_json({x}{cast})::text"
    if base in ("numeric", "money"):
        return f"trim_scale({x}::numeric)::text"
    if base in _FLOATS:
        return _float(x, base)
    if base == "date":
        year_first = f"case when {x} > '9999-12-31' then '+' else '' end || {x}::text"
        return _finite(x, _era(x, year_first, _before_christ(x, f"substring({x}::text from '(-[0-9]+-[0-9]+) BC')")))
    if base == "timestamp without time zone":
        return _timestamp(x)
    if base == "timestamp with time zone":
        at_utc = f"({x} at time zone 'UTC')"
        return f"{_timestamp(at_utc)} || case when isfinite({x}) then 'Z' else '' end"
    if base == "time without time zone":
        return f"to_char({x}::interval, 'HH24:MI:SS.US')"
    if base == "time with time zone":
        return f"to_char(({x} at time zone 'UTC')::time::interval, 'HH24:MI:SS.US') || 'Z'"
    if is_interval(base):
        return _finite(x, _seconds(x))
    if base == "hstore":
        return f"{x}::json::text"
    if base == "bytea":
        return f"encode({x}, 'hex')"
    if base == "inet":
        # The cast shows the mask of a single host, COPY and Debezium do not.
        return (
            f"case when masklen({x}) = case family({x}) when 4 then 32 else 128 end then host({x}) else {x}::text end"
        )
    if base == "xml" or "." in base:
        # The output is what COPY and changes have. The cast may give another text: of xml what is stored, with its
        # declaration; of a type of one's own what a function of its owner makes, with the rights of whoever reads.
        # A row of NULLs `is null`, and yet has a text.
        return f"case when {x} is distinct from null then concat({x}) end"
    return f"{x}::text"


def key_expression(value_sql: str, is_tuple_sql: str) -> str:
    """Give a SQL expression for the key of a value as a uuid, where another tells whether it is a tuple's text.

    Equal to `core.canonical.value_key`, of tuples to `core.tuples.tuple_keys`, before which a NUL is hashed.
    """
    mark = f"case when {is_tuple_sql} then '\\x00'::bytea else ''::bytea end"
    return f"encode(substring(sha256({mark} || convert_to({value_sql}, 'UTF8')) for 16), 'hex')::uuid"


def _float(x: str, base: str) -> str:
    low, high = _FLOATS[base]
    exact = f"{x}::text::numeric"
    # The shortest decimal has one digit less than Postgres' text, or fewer: drop its last digit that is not 0.
    zeros = f"(length({exact}::text) - length(rtrim({exact}::text, '0')))"
    # Nothing here has a name of its own, behind which a column of that name would not be seen.
    rounded, cut = (f"{function}({exact}, -1 - {zeros})" for function in ("round", "trunc"))
    return (
        f"case when {x} in ('NaN', 'Infinity', '-Infinity') then {x}::text "
        f"when abs({x}) > {low} and abs({x}) < {high} then (case when {rounded}::{base} = {x} then {rounded} "
        f"when {cut}::{base} = {x} then {cut} else {exact} end)::text "
        f"else trim_scale({exact})::text end"
    )


def _finite(x: str, expression: str) -> str:
    return f"case when isfinite({x}) then {expression} else {x}::text end"


def _era(x: str, after_christ: str, before_christ: str) -> str:
    return f"case when {x} >= '0001-01-01' then {after_christ} else {before_christ} end"


def _before_christ(x: str, rest: str) -> str:
    # Postgres counts ... 2 BC, 1 BC, 1; ISO 8601 has the years ... -1, 0, 1.
    year = f"(split_part({x}::text, '-', 1)::integer - 1)"
    return f"case when {year} > 0 then '-' else '' end || lpad({year}::text, 4, '0') || {rest}"


def _timestamp(x: str) -> str:
    pattern = '-MM-DD"T"HH24:MI:SS.US'
    year_first = f"case when {x} >= '10000-01-01' then '+' else '' end || to_char({x}, 'YYYY{pattern}')"
    return _finite(x, _era(x, year_first, _before_christ(x, f"to_char({x}, '{pattern}')")))


def _seconds(x: str) -> str:
    part = {
        name: f"extract({name} from {x})::numeric"
        for name in ("year", "month", "day", "hour", "minute", "microseconds")
    }
    return (
        f"'PT' || trim_scale(({part['year']} * 12 + {part['month']}) * 2629800 + {part['day']} * 86400 "
        f"+ {part['hour']} * 3600 + {part['minute']} * 60 + {part['microseconds']} * 0.000001)::text || 'S'"
    )
