"""Own how numbers of change events are read: integers, floats, and decimals in Debezium's encodings.

Each decoder takes a parsed JSON value that is not None, and raises ValueError (or another of Python's own errors)
for what is none of its type.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Literal

import numpy as np

from service.core import canonical_forms as forms

CellDecoder = Callable[[object], str | None]
DecimalHandling = Literal["auto", "precise", "string"]

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGE = 2**64


def decode_integer(value: object) -> str:
    """Read an integer, also one in a JSON string."""
    if value.__class__ is int:
        return str(value) if -_LARGE < value < _LARGE else forms.scalar_text(value)  # type: ignore[operator]
    if isinstance(value, bool):
        raise ValueError("it is a boolean")
    return forms.number_text(str(value)) if isinstance(value, str | Decimal) else forms.scalar_text(value)


def unsigned(bits: int, handling: DecimalHandling) -> CellDecoder:
    """Read MySQL's unsigned integers: as Debezium sends them by default, those of the upper half are negative."""
    decode_text = numeric(20, 0, handling)

    def decode(value: object) -> str | None:
        if isinstance(value, str):
            return decode_text(value)
        if isinstance(value, int) and value < 0:
            value += 2**bits
        return decode_integer(value)

    return decode


def decode_tiny(value: object) -> str:
    """Read MySQL's tinyint: a converter of Debezium's makes tinyint(1) a boolean."""
    return decode_integer(int(value) if isinstance(value, bool) else value)


def decode_double(value: object) -> str:
    """Read a float of 64 bits, NaN and infinities in any usual spelling."""
    return forms.float_text(_as_float(value))


def float_as_postgres(value: object) -> str:
    """Give Postgres' own text of a float of 64 bits, for types whose text is its: with exponents, and -0."""
    number = _as_float(value)
    if not math.isfinite(number):
        return forms.float_text(number)
    text = repr(number).removesuffix(".0")
    if 1e15 <= abs(number) < 1e16:  # Python writes an exponent from 1e16 on
        sign, digits = "-" * (number < 0), text.lstrip("-").replace(".", "").rstrip("0")
        return f"{sign}{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e+15"
    return text


def decode_single(value: object) -> str:
    """Read a float of 32 bits; ValueError for one that is too large."""
    return forms.number_text(_shortest(_as_float(value), np.float32))


def decode_half(value: object) -> str:
    """Read a float of 16 bits; ValueError for one that is too large."""
    return forms.number_text(_shortest(_as_float(value), np.float16))


def _shortest(value: float, width: type[np.floating]) -> str:
    with np.errstate(over="ignore"):
        narrow = width(value)
    if np.isinf(narrow) and not math.isinf(value):
        raise ValueError("it is too large")
    return np.format_float_positional(narrow, unique=True, trim="-")


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("it is no number")
    return float(forms.number_text(value)) if isinstance(value, str) else float(value)


def numeric(precision: int | None, scale: int, handling: DecimalHandling, money: bool = False) -> CellDecoder:
    """Read decimals: numbers, decimal strings, base64 of numeric(precision, scale), {scale, value}."""

    def decode(value: object) -> str:
        if isinstance(value, dict):  # io.debezium.data.VariableScaleDecimal
            return _decimal(_unscaled(value["value"]), int(value["scale"]))
        if not isinstance(value, str) or isinstance(value, forms.ExactNumber):
            return decode_integer(value)
        if money and "$" in value:
            return forms.number_text(value.replace("$", "").replace(",", ""))
        if precision is None or handling == "string":
            return _decimal_string(value)
        if handling == "precise":
            return _decimal(_unscaled(value), scale)
        try:
            unscaled = _unscaled(value)
        except ValueError:
            return _decimal_string(value)
        if abs(unscaled) >= 10**precision:
            return _decimal_string(value)
        if scale <= 0 and _DECIMAL.fullmatch(value) is not None:
            raise ValueError(
                "it may be a number or Debezium's base64 of one; tell which by SUBSETD_DECIMAL_HANDLING, "
                "precise or string"
            )
        return _decimal(unscaled, scale)

    return decode


def _decimal_string(value: str) -> str:
    try:
        return forms.number_text(value)
    except ValueError:
        if _is_base64(value):
            raise ValueError(
                "it looks like the base64 of a number whose scale is not known; set decimal.handling.mode=string in "
                "the connector, or tell the column's type as numeric(precision,scale)"
            ) from None
        raise


def _is_base64(value: str) -> bool:
    try:
        return len(binascii.a2b_base64(value, strict_mode=True)) > 0
    except ValueError:
        return False


def _unscaled(value: str) -> int:
    if not value:
        raise ValueError("it is empty")
    return int.from_bytes(binascii.a2b_base64(value, strict_mode=True), "big", signed=True)


def _decimal(unscaled: int, scale: int) -> str:
    if 0 < scale <= 30 and -(10**30) < unscaled < 10**30:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        fraction = digits[-scale:].rstrip("0")
        text = f"{digits[:-scale]}.{fraction}" if fraction else digits[:-scale]
        return "-" + text if unscaled < 0 else text
    return forms.plain_decimal(f"{forms.scalar_text(unscaled)}e{-scale}")
