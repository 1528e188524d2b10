"""Own the web tables and lakes of tests/data: what is published of their INDs, and a reference for every filter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data_sets
from benchmarks.corpora import Corpus, read_corpus
from benchmarks.reference import find_inds
from service.core.column_filters import NULL_TOKENS

DATA = Path(__file__).parent / "data"


class Published(NamedTuple):
    """Hold what is published of a lake: number of INDs, and SHA-256 of their sorted list."""

    archive: str
    inds: int
    sha256: str


LAKES = {
    "webtables_2k": Published(
        "webtables_2k/webtables_2k.tar.zst",
        375_520,
        "de395d1267c0a3b4d441d62e5f599def426221969312378195062be64d448fdd",
    ),
    "lake_owid": Published(
        "lakes/lake_owid_numbered.tar.zst", 9_257, "7f2611ece29038a39920edabc52d69c1cccfd1c7097108a879313695ccb93921"
    ),
    "lake_fivethirtyeight": Published(
        "lakes/lake_fivethirtyeight.tar.zst", 83_036, "33fb2d16d08389d75bcbc0a91368e74b3855cbd7856d3f39fc260cb85d7a5003"
    ),
    "lake_mate": Published(
        "lakes/lake_mate.tar.zst", 594, "432af05a82fed9a2c9698461da9e7e8b8557cad93a20404682527f11d28bd910"
    ),
}


def unpack(name: str, folder: Path) -> Path:
    """Unpack a lake; give its folder, which has `tables/*.csv`."""
    return data_sets.unpack(DATA / LAKES[name].archive, folder) / name


class On(NamedTuple):
    """Say which of the paper's filters are on."""

    null_columns: bool = False
    integer_columns: bool = False
    non_unique_referenced: bool = False
    coverage: bool = False

    def settings(self) -> dict[str, Any]:
        """Give them as a corpus is told of them."""
        return self._asdict() | {"coverage": "1/5" if self.coverage else "0"}

    def __str__(self) -> str:
        return "".join("-+"[one] for one in self)


COMBINATIONS = [On(*on) for on in product((False, True), repeat=4)]


@dataclass(frozen=True)
class Reference:
    """Find the INDs of a folder of tables in plain Python."""

    corpus: Corpus

    @classmethod
    def of(cls, folder: Path) -> Reference:
        return cls(read_corpus(folder))

    @cached_property
    def inds(self) -> list[tuple[int, int]]:
        """Give all INDs, as places of columns."""
        place = {name: i for i, name in enumerate(self.corpus.names)}
        return sorted((place[a], place[b]) for a, b in find_inds(self.corpus.named()))

    def filtered(self, on: On) -> list[tuple[int, int]]:
        """Leave out what filters leave out: the ten lines."""
        values, rows = self.corpus.values, self.corpus.rows
        null = [on.null_columns and held <= set(NULL_TOKENS) for held in values]
        integer = [on.integer_columns and all(re.fullmatch("[+-]?[0-9]+", one) for one in held) for held in values]
        left_out = [one or other for one, other in zip(null, integer, strict=True)]
        repeats = [on.non_unique_referenced and len(held) < rows[i] for i, held in enumerate(values)]
        return [
            (a, b)
            for a, b in self.inds
            if not (left_out[a] or left_out[b] or repeats[b])
            and not (on.coverage and 5 * len(values[a]) < len(values[b]))
        ]
