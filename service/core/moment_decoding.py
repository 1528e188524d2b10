"""Own how dates, times and intervals of change events are read: Debezium's integers and texts of ISO 8601 or Postgres.

Each decoder takes a parsed JSON value that is not None, and raises ValueError for what is none of its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from service.core import canonical_forms as forms

MomentDecoder = Callable[[object], str]

_DATE = r"(?P<year>[+-]?[0-9]{4,})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
_ZONE = r"\s?(?P<zone>[Zz]|(?P<sign>[+-])(?P<zh>[0-9]{2})(?::?(?P<zm>[0-9]{2})(?::?(?P<zs>[0-9]{2}))?)?)?"
_BC = r"(?P<bc> BC)?"
_DATE_TEXT = re.compile(_DATE + "Z?" + _BC)
_TIMESTAMP_TEXT = re.compile(_DATE + "[Tt ]" + _CLOCK + _ZONE + _BC)
_TIME_TEXT = re.compile(_CLOCK + _ZONE)
_ISO_INTERVAL = re.compile(
    r"(?P<minus>-?)P(?:(-?[0-9]+)Y)?(?:(-?[0-9]+)M)?(?:(-?[0-9]+)W)?(?:(-?[0-9]+)D)?"
    r"(?:T(?:(-?[0-9]+)H)?(?:(-?[0-9]+)M)?(?:(-?[0-9]*\.?[0-9]+)S)?)?"
)
_INTERVAL_TYPE = re.compile(r"interval( (year|month|day|hour|minute|second)\b.*)?")
_INTERVAL_PART = re.compile(r"\s*([+-]?[0-9]+)\s*(year|mon|day)s?")
_INTERVAL_CLOCK = re.compile(r"\s*([+-]?)([0-9]+):([0-9]{2}):([0-9]{2}(?:\.[0-9]{1,6})?)")

_INFINITIES = {"infinity": "infinity", "+infinity": "infinity", "-infinity": "-infinity"}
# What stands for an infinity in Debezium's zoneless timestamps and dates: the JDBC driver's and Postgres' sentinels.
_INFINITE_MOMENTS = {9_223_372_036_825_200_000_000: "infinity", -9_223_372_036_832_400_000_000: "-infinity"}
# In nanoseconds, which have no room for these, it sends the ends of 64 bits.
_INFINITE_MOMENTS |= {2**63 - 1: "infinity", -(2**63): "-infinity"}
_INFINITE_DAYS = {10_956 - 2**31: "infinity", 10_957 - 2**31: "-infinity"}
# Rows of a snapshot have other ones: the driver's moments as days, which as a number are cut to 32 bits.
_SNAPSHOT_DAYS = {106_751_991_166: "infinity", 106_748_361_128: "-infinity"}
_INFINITE_DAYS |= _SNAPSHOT_DAYS | {days - 25 * 2**32: text for days, text in _SNAPSHOT_DAYS.items()}
UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def decode_date(value: object) -> str:
    """Read a date: days from 1970-01-01, or a text."""
    if type(value) is int:
        days = value
    else:
        text = str(value)
        if text.lower() in _INFINITIES:
            return _INFINITIES[text.lower()]
        match = _DATE_TEXT.fullmatch(text)
        if match is None:
            raise ValueError("it is no date of ISO 8601")
        days = _days(match)
    return _INFINITE_DAYS.get(days) or forms.days_text(days)


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if match["bc"]:
        year = 1 - year
    days = forms.days_from_civil(year, month, day)
    if forms.civil_from_days(days) != (year, month, day):
        raise ValueError("there is no such day")
    return days


def _clock(match: re.Match[str]) -> int:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    nanoseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int((match["fraction"] or "0").ljust(9, "0"))
    if minute > 59 or second > 60 or nanoseconds > forms.NANOSECONDS_PER_DAY:
        raise ValueError("there is no such time of day")
    return nanoseconds


def _offset(match: re.Match[str]) -> int:
    if match["zone"] in ("Z", "z"):
        return 0
    seconds = (int(match["zh"]) * 60 + int(match["zm"] or 0)) * 60 + int(match["zs"] or 0)
    return (-seconds if match["sign"] == "-" else seconds) * 1_000_000_000


def timestamp(unit: int, zoned: bool) -> MomentDecoder:
    """Read timestamps: integers in units of `unit` nanoseconds, or texts, which need a zone exactly when `zoned`."""

    def decode(value: object) -> str:
        if type(value) is int:
            return text_of(value * unit)
        text = str(value)
        if text.lower() in _INFINITIES:
            return _INFINITIES[text.lower()]
        match = _TIMESTAMP_TEXT.fullmatch(text)
        if match is None:
            raise ValueError("it is no timestamp of ISO 8601")
        moment = _days(match) * forms.NANOSECONDS_PER_DAY + _clock(match)
        if zoned:
            if not match["zone"]:
                raise ValueError("its time zone is missing")
            return text_of(moment - _offset(match))
        if match["zone"] not in (None, "Z", "z"):  # time.precision.mode=isostring writes Z behind these, too
            raise ValueError("it has a time zone and its column has none")
        return text_of(moment)

    def text_of(nanoseconds: int) -> str:
        return _INFINITE_MOMENTS.get(nanoseconds) or forms.timestamp_text(nanoseconds, zoned)

    return decode


_LONGEST_TIME = 839 * 3600 * 1_000_000_000
"""A TIME of MySQL is a span: from -838:59:59 to 838:59:59."""


def clock(unit: int, zoned: bool) -> MomentDecoder:
    """Read times of day: integers in units of `unit` nanoseconds, or texts, which need a zone exactly when `zoned`."""

    def decode(value: object) -> str:
        if type(value) is int:
            moment, offset = value * unit, 0
            if zoned and not 0 <= moment <= forms.NANOSECONDS_PER_DAY:
                raise ValueError("there is no such time of day")
            if not -_LONGEST_TIME < moment < _LONGEST_TIME:
                raise ValueError("there is no such time")
            if moment < 0:
                return f"-{forms.clock_text(-moment)}"
        else:
            match = _TIME_TEXT.fullmatch(str(value))
            if match is None:
                raise ValueError("it is no time of ISO 8601")
            if zoned and not match["zone"]:
                raise ValueError("its time zone is missing")
            if not zoned and match["zone"] not in (None, "Z", "z"):
                raise ValueError("it has a time zone and its column has none")
            moment, offset = _clock(match), _offset(match) if zoned else 0
        if not zoned:
            return forms.clock_text(moment)
        return forms.clock_text((moment - offset) % forms.NANOSECONDS_PER_DAY) + "Z"

    return decode


def is_interval(base: str) -> bool:
    """Tell whether a type's name, without what is in parentheses, is that of an interval in Postgres or Oracle."""
    return _INTERVAL_TYPE.fullmatch(base) is not None


def interval(unit: int) -> MomentDecoder:
    """Read intervals: integers in units of `unit` nanoseconds, or texts of ISO 8601 or Postgres."""

    def decode(value: object) -> str:
        if type(value) is int:
            return forms.duration_text(value * unit)
        text = str(value)
        if text.lower() in _INFINITIES:
            return _INFINITIES[text.lower()]
        iso = _ISO_INTERVAL.fullmatch(text)
        seconds = _iso_seconds(iso) if iso and text[-1] not in "PT" else _postgres_seconds(text)
        return f"PT{forms.decimal_text(seconds)}S"

    return decode


def _iso_seconds(match: re.Match[str]) -> Decimal:
    years, months, weeks, days, hours, minutes, seconds = (Decimal(part or 0) for part in match.groups()[1:])
    total = (years * 12 + months) * forms.SECONDS_PER_MONTH + (weeks * 7 + days) * 86_400
    total += hours * 3600 + minutes * 60 + seconds
    return -total if match["minus"] else total


def _postgres_seconds(text: str) -> Decimal:
    total, place = Decimal(0), 0
    weights = {"year": 12 * forms.SECONDS_PER_MONTH, "mon": forms.SECONDS_PER_MONTH, "day": 86_400}
    while part := _INTERVAL_PART.match(text, place):
        total, place = total + int(part[1]) * weights[part[2]], part.end()
    if clock := _INTERVAL_CLOCK.match(text, place):
        seconds = int(clock[2]) * 3600 + int(clock[3]) * 60 + Decimal(clock[4])
        total, place = total - seconds if clock[1] == "-" else total + seconds, clock.end()
    if not text.strip() or place != len(text):
        raise ValueError("it is no interval of ISO 8601 or of Postgres")
    return total


def arrow_moment(name: str) -> MomentDecoder:
    """Choose the decoder of an Arrow type with a unit: timestamp[us], time64[ns], duration[ms], date64[ms], ..."""
    unit = UNIT[name.split("[")[1].rstrip("]").split(",")[0]]
    if name.startswith("timestamp"):
        return timestamp(unit, zoned="tz=" in name)
    if name.startswith("time"):
        return clock(unit, zoned=False)
    if name.startswith("duration"):
        return interval(unit)
    day = forms.NANOSECONDS_PER_DAY // unit
    return lambda value: decode_date(value // day if isinstance(value, int) else value)
