"""Own the text forms of single values: numbers, dates, times, durations, documents (architecture.md, section 3).

Every form is injective on what it writes: two values of one type have one text exactly when they are equal.
The functions raise ValueError; `canonical` and `cell_decoding` turn it into an error with a way out.
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring as quoted
from uuid import UUID

MAX_PLAIN_DIGITS = 200_000
"""Zeros that a number may need in plain notation; Postgres' numeric needs at most 147,455."""

MICROSECONDS_PER_DAY = 86_400_000_000
NANOSECONDS_PER_DAY = 86_400_000_000_000
SECONDS_PER_MONTH = 2_629_800
"""A month of an interval, 365.25 / 12 days: what Debezium's numeric intervals count it as."""

_EPOCH = date(1970, 1, 1).toordinal()
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,18}))?")
_NOT_A_NUMBER = {
    "nan": "NaN",
    "inf": "Infinity",
    "+inf": "Infinity",
    "infinity": "Infinity",
    "+infinity": "Infinity",
    "positive_infinity": "Infinity",
    "-inf": "-Infinity",
    "-infinity": "-Infinity",
    "negative_infinity": "-Infinity",
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


# Numbers


def plain_decimal(text: str) -> str:
    """Rewrite a decimal number without exponent, leading zeros and trailing zeros; zero has no sign.

    A number that would need more than MAX_PLAIN_DIGITS zeros (no database type holds it, a JSON text may) keeps
    an exponent: `1e1000000`. Raises ValueError for what is no number.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no number")
    sign, whole, fraction, power = match[1], match[2], match[3] or "", match[4]
    if not whole and not fraction:
        raise ValueError(f"{text[:40]!r} is no number")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    significant = digits.rstrip("0")
    exponent = int(power or 0) - len(fraction) + len(digits) - len(significant)
    point = len(significant) + exponent
    if exponent > MAX_PLAIN_DIGITS or -point > MAX_PLAIN_DIGITS:
        body = f"{significant}e{exponent}"
    elif exponent >= 0:
        body = significant + "0" * exponent
    elif point > 0:
        body = f"{significant[:point]}.{significant[point:]}"
    else:
        body = "0." + "0" * -point + significant
    return "-" + body if sign == "-" else body


def number_text(text: str) -> str:
    """Give the canonical text of a number written as text, with NaN and the infinities in any usual spelling."""
    return _NOT_A_NUMBER.get(text.lower()) or plain_decimal(text)


def float_text(value: float) -> str:
    """Give the shortest plain decimal that reads back as this double; `-0.0` is `0`."""
    text = repr(value)
    if text.endswith(".0"):
        return "0" if value == 0 else text[:-2]
    if "e" in text or "n" in text:
        return number_text(text)
    return text


def decimal_text(value: Decimal) -> str:
    """Give the exact plain decimal of a Decimal."""
    return "NaN" if value.is_nan() else number_text(str(value))


# Dates and times


def days_from_civil(year: int, month: int, day: int) -> int:
    """Count the days from 1970-01-01 in the proleptic Gregorian calendar, for any year (0 is 1 BC)."""
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Give year, month and day of a day counted from 1970-01-01; the inverse of `days_from_civil`."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


@lru_cache(maxsize=16_384)
def days_text(days: int) -> str:
    """Give ISO 8601's text of a day counted from 1970-01-01.

    Years 0 to 9999 have four digits; beyond them stands a sign, as in ISO 8601's expanded form (and in Java's
    texts): `+10000-01-01`, and `-0043-03-15` for 44 BC.
    """
    if -719_162 <= days <= 2_932_896:
        return date.fromordinal(days + _EPOCH).isoformat()
    year, month, day = civil_from_days(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def clock_text(nanoseconds: int) -> str:
    """Give the time of day with microseconds, or with nanoseconds where there are any; 24:00:00 is possible."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    tail = f"{fraction:09d}" if fraction % 1000 else f"{fraction // 1000:06d}"
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}.{tail}"


def timestamp_text(nanoseconds: int, zoned: bool) -> str:
    """Give ISO 8601's text of a point in time counted from 1970-01-01T00:00:00; `zoned` adds UTC's `Z`."""
    days, rest = divmod(nanoseconds, NANOSECONDS_PER_DAY)
    return f"{days_text(days)}T{clock_text(rest)}{'Z' if zoned else ''}"


def duration_text(nanoseconds: int) -> str:
    """Give an ISO 8601 duration in seconds alone: `PT93600.5S`, `PT-1S`, `PT0S`.

    Seconds alone, because a feed of Debezium carries an interval as one number: years, months and days are gone.
    """
    return f"PT{plain_decimal(f'{nanoseconds}e-9')}S"


def date_text(value: date) -> str:
    """Give the text of a Python date."""
    return value.isoformat()


def datetime_text(value: datetime) -> str:
    """Give the text of a Python datetime: an aware one in UTC with `Z`, a naive one without."""
    offset = value.utcoffset()
    if offset is None:
        return value.replace(tzinfo=None).isoformat(timespec="microseconds")
    moment = value.replace(tzinfo=None) - datetime(1970, 1, 1) - offset
    return timestamp_text(moment // timedelta(microseconds=1) * 1000, zoned=True)


def time_text(value: time) -> str:
    """Give the text of a Python time: with an offset in UTC with `Z` (modulo a day), without one as it is."""
    offset = value.utcoffset()
    clock = value.replace(tzinfo=None)
    if offset is None:
        return clock.isoformat(timespec="microseconds")
    moment = datetime.combine(date(1970, 1, 1), clock) - datetime(1970, 1, 1) - offset
    return clock_text(moment // timedelta(microseconds=1) % MICROSECONDS_PER_DAY * 1000) + "Z"


# Documents


class ExactNumber(str):
    """Hold a number of a JSON text as it was written, so that no digit is lost."""

    __slots__ = ()


class RawJson(str):
    """Hold JSON text that goes into a document as it is."""

    __slots__ = ()


def parse_json(text: str) -> object:
    """Parse JSON with every number as an ExactNumber; ValueError for what is no JSON or is nested too deeply."""
    try:
        return json.loads(text, parse_float=ExactNumber, parse_int=ExactNumber, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def document_text(value: object) -> str:
    """Write a nested value as compact JSON: keys sorted by code point, numbers by the number rule.

    Numbers, booleans and None are JSON's own; NaN, infinities and any other scalar are strings of their
    canonical text. Escaped is only what JSON demands, and a surrogate without its partner, which UTF-8 cannot hold.
    """
    try:
        return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", _json(value))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _json(value: object) -> str:
    if isinstance(value, str):
        if isinstance(value, RawJson):
            return value
        return plain_decimal(value) if isinstance(value, ExactNumber) else quoted(value)
    if value is None:
        return "null"
    if isinstance(value, dict):
        texts = {key if isinstance(key, str) else scalar_text(key): inner for key, inner in value.items()}
        return "{" + ",".join(f"{quoted(key)}:{_json(texts[key])}" for key in sorted(texts)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json, value)) + "]"
    text = scalar_text(value)
    return text if isinstance(value, int | float | Decimal) and text[-1] not in "Ny" else quoted(text)


def scalar_text(value: object) -> str:
    """Give the canonical text of a Python scalar by its class; TypeError for a class that has none."""
    if isinstance(value, ExactNumber):
        return plain_decimal(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() < 14_000 else f"{Decimal(value):f}"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return datetime_text(value)
    if isinstance(value, date):
        return date_text(value)
    if isinstance(value, time):
        return time_text(value)
    if isinstance(value, timedelta):
        return duration_text(value // timedelta(microseconds=1) * 1000)
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a value of the class {type(value).__name__} has no canonical text")
