"""Own the settings of a corpus: how it is read, which INDs are looked for, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np

from service.core.column_filters import NULL_TOKENS, PAPER, Filters
from service.core.corpus_choices import EXACT, Algorithm, Parameters, Strategy, allowances
from service.core.errors import SourceError
from service.core.near_matches import Near


class CorpusKind(StrEnum):
    """Name what a corpus is made of: a file a table, a line a table, or a schema of Postgres."""

    CSV = "csv"
    PARQUET = "parquet"
    JSONL = "jsonl"
    POSTGRES = "postgres"


FILTERS = frozenset(("null_columns", "integer_columns", "non_unique_referenced", "coverage", "min_values"))
"""The settings that are filters."""

_LONG_EXPONENT = re.compile(r"[eE][-+]?\w{3}")
_MOST_DIGITS = 40

PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""What the names of packed files end with, and what they are packed by; Parquet files pack themselves."""


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """Say how a corpus is read and what is looked for in it.

    Reading: `null_tokens` stand for NULL; `delimiter` None is a tab in .tsv, else a comma; `db_schema` is
    that of a Postgres corpus. The columns of CSV files are named by their first line with `header`.
    Discovery: `filters` and `threshold` (A ⊆ B counts when |A ∩ B| ≥ threshold · |A|) say what counts; `top` keeps only
    the best referenced columns of each dependent; `algorithm` and `partitions` None leave it to a rule.
    A refresh fails when more than `max_failed` of the tables cannot be read; one of more than `max_table_bytes` is not.
    With `joinable` each refresh indexes all cells for searches of joinable tables, folded by `near`.
    `index` is the folder of what makes the next refresh cheap; None: one of the service's own. Raises SourceError,
    which names the option, for what cannot be.
    """

    null_tokens: tuple[str, ...] = ()
    delimiter: str | None = None
    quote: str = '"'
    header: bool = True
    encoding: str = "utf-8"
    db_schema: str = "public"
    filters: Filters = Filters()  # noqa: RUF009
    threshold: Fraction = EXACT
    algorithm: Algorithm | None = None
    parameters: Parameters = Parameters()  # noqa: RUF009
    top: int | None = None
    partitions: int | None = None
    max_failed: Fraction = Fraction(1, 10)
    max_table_bytes: int = 1 << 30
    joinable: bool = False
    near: tuple[Near, ...] = ()
    index: str | None = None

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or not value.isascii() or value in "\r\n\0"):
                raise SourceError(f"{name} {value!r}: give one character, and none that ends a line or is not ASCII.")
        if self.delimiter == self.quote:
            raise SourceError(f"delimiter {self.delimiter!r}: the quote is the same character.")
        try:
            "".encode(self.encoding)
        except (LookupError, UnicodeError):  # a codec may be there and refuse all texts
            raise SourceError(f"encoding {self.encoding!r} is not known: give utf-8, latin-1, cp1252, ...") from None
        for name, number in (
            ("min_values", self.filters.min_values),
            ("top", self.top),
            ("partitions", self.partitions),
            ("max_table_bytes", self.max_table_bytes),
        ):
            if number is not None and number < 1:
                raise SourceError(f"{name} {number}: give at least 1.")
        if not 0 <= self.max_failed <= 1:
            raise SourceError(f"max_failed {self.max_failed}: give a share of the tables between 0 and 1.")
        try:
            allowances(np.empty(0, np.int64), self.threshold, self.filters.coverage)
        except ValueError as error:
            raise SourceError(f"threshold, coverage: {error}.") from None
        for name, number in (("top", self.top), ("partitions", self.partitions)):
            if number is not None and self.algorithm is Algorithm.SIGNATURES:
                raise SourceError(f"{name}: rarest-first alone does so. Leave out the algorithm signatures, or it.")
        if self.threshold < 1 and self.algorithm is Algorithm.SIGNATURES:
            raise SourceError("algorithm signatures finds whole inclusions only: leave out the threshold, or it.")

    @property
    def signed_by(self) -> Parameters | None:
        """Give the parameters of the signatures that are kept beside the corpus: None where none are."""
        return self.parameters if self.parameters.are_kept_for(self.algorithm) else None

    def to_json(self) -> dict[str, Any]:
        """Give all settings as a flat JSON object; fractions are texts such as "1/5", which lose nothing."""
        return {
            "null_tokens": list(self.null_tokens),
            "delimiter": self.delimiter,
            "quote": self.quote,
            "header": self.header,
            "encoding": self.encoding,
            "db_schema": self.db_schema,
            "null_columns": self.filters.null_columns,
            "integer_columns": self.filters.integer_columns,
            "non_unique_referenced": self.filters.non_unique_referenced,
            "coverage": str(self.filters.coverage),
            "min_values": self.filters.min_values,
            "threshold": str(self.threshold),
            "algorithm": self.algorithm and self.algorithm.value,
            "bits": self.parameters.bits,
            "hashes": self.parameters.hashes,
            "passes": self.parameters.passes,
            "strategy": self.parameters.strategy.value,
            "top": self.top,
            "partitions": self.partitions,
            "max_failed": str(self.max_failed),
            "max_table_bytes": self.max_table_bytes,
            "joinable": self.joinable,
            "near": [one.value for one in self.near],
            "index": self.index,
        }

    def changed(self, given: Mapping[str, Any]) -> CorpusSettings:
        """Give these settings with some others, as `from_json` takes them; raises as it does."""
        return CorpusSettings.from_json({**self.to_json(), **given})

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> CorpusSettings:
        """Take a flat object as `to_json` gives it; what is left out has its default.

        Raises SourceError for a name that is no setting, a value of the wrong type, and as the class does.
        """
        unknown = sorted(given.keys() - _READERS.keys())
        if unknown:
            raise SourceError(f"{unknown[0]} is no setting of a corpus; there are {', '.join(_READERS)}.")
        read = {name: _read(name, value) for name, value in given.items()}
        own = {field.name for field in fields(CorpusSettings)}
        try:
            return CorpusSettings(
                filters=Filters(**{name: read[name] for name in FILTERS & read.keys()}),
                parameters=Parameters(**{name: read[name] for name in _PARAMETERS & read.keys()}),
                **{name: value for name, value in read.items() if name in own},
            )
        except ValueError as error:
            raise SourceError(f"{', '.join(sorted(_PARAMETERS))}: {error}.") from None


def parse_filters(text: str) -> dict[str, Any]:
    """Read `none`, `paper`, or names with commas between them, as settings for `from_json`.

    Names: null-columns, integer-columns, non-unique-referenced, coverage=0.2, min-values=3; `paper` can stand among
    them. Raises SourceError for others.
    """
    settings: dict[str, Any] = {}
    for part in [part.strip() for part in text.split(",")]:
        name, _, value = part.replace("-", "_").partition("=")
        if part == "none":
            continue
        if part == "paper":
            settings |= {name: getattr(PAPER, name) for name in FILTERS - {"min_values"}}
            settings["coverage"] = str(PAPER.coverage)
        elif name in ("null_columns", "integer_columns", "non_unique_referenced") and not value:
            settings[name] = True
        elif name == "coverage":
            settings[name] = value or str(PAPER.coverage)
        elif name == "min_values" and value.isdecimal():
            settings[name] = int(value)
        else:
            raise SourceError(
                f"filters {part!r}: give none, paper, or some of null-columns, integer-columns, "
                "non-unique-referenced, coverage=0.2, min-values=3, with commas between them."
            )
    return settings


def preset_null_tokens(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Put the paper's null tokens (Table 2) in the place of the word `paper`."""
    return tuple(dict.fromkeys(each for token in tokens for each in (NULL_TOKENS if token == "paper" else (token,))))


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a text without NUL")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("a list of texts")
    return tuple(_text(each) for each in value)


def _nears(value: Any) -> tuple[Near, ...]:
    try:
        return tuple(sorted({Near(text) for text in _texts(value)}))
    except ValueError:
        raise ValueError(f"a list of {', '.join(Near)}") from None


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _number(value: Any) -> int:
    if abs(_long(value)) >= 1 << 31:
        raise ValueError("a whole number")
    return _long(value)


def _long(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 53:
        raise ValueError("a whole number")
    return value


def read_fraction(text: str) -> Fraction:
    """Read a number or a fraction; raise ValueError for what is none, or has more digits than there is time for."""
    if len(text) > _MOST_DIGITS or _LONG_EXPONENT.search(text):
        raise ValueError(text)
    try:
        return Fraction(text)
    except ZeroDivisionError as error:
        raise ValueError(text) from error


def _fraction(value: Any) -> Fraction:
    if isinstance(value, int | float | str | Fraction) and not isinstance(value, bool):
        with suppress(ValueError):
            found = read_fraction(str(value))
            if len(str(found)) <= _MOST_DIGITS:  # as which it is kept, and read again
                return found
    raise ValueError("a number such as 0.2, or a fraction such as 1/5")


def _one_of(names: type[StrEnum]) -> Callable[[Any], StrEnum]:
    def read(value: Any) -> StrEnum:
        try:
            return names(value)
        except ValueError:
            raise ValueError(f"one of {', '.join(names)}") from None

    return read


_PARAMETERS = frozenset(("bits", "hashes", "passes", "strategy"))
_OPTIONAL = frozenset(("delimiter", "algorithm", "top", "partitions", "index"))
_READERS: dict[str, Callable[[Any], Any]] = {
    "null_tokens": _texts,
    "delimiter": _text,
    "quote": _text,
    "header": _flag,
    "encoding": _text,
    "db_schema": _text,
    "null_columns": _flag,
    "integer_columns": _flag,
    "non_unique_referenced": _flag,
    "coverage": _fraction,
    "min_values": _number,
    "threshold": _fraction,
    "algorithm": _one_of(Algorithm),
    "bits": _number,
    "hashes": _number,
    "passes": _number,
    "strategy": _one_of(Strategy),
    "top": _number,
    "partitions": _number,
    "max_failed": _fraction,
    "max_table_bytes": _long,
    "joinable": _flag,
    "near": _nears,
    "index": _text,
}


def _read(name: str, value: Any) -> Any:
    if value is None and name in _OPTIONAL:
        return None
    try:
        return _READERS[name](value)
    except ValueError as error:
        raise SourceError(f"{name} {value!r}: give {error}.") from None
