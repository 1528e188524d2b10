"""Own an index in memory: what discovery asks of the folder of a corpus, without files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from service.core.canonical_arrow import key_array
from service.core.records import Int32s, Int64s, Keys, starts_of
from spark_jobs.corpus_index import PartColumns
from spark_jobs.many_discovery import Search

BLOCK = 5


def keys_of(values: Iterable[int]) -> Keys:
    """Give keys as texts have them."""
    keys = key_array(pa.array(map(str, values), pa.large_string()))
    return Keys(keys[:, 0].copy(), keys[:, 1].copy())


@dataclass(frozen=True)
class FakeIndex:
    """Hold parts by their names, each a list of columns with their values; give cells in small blocks."""

    stored: dict[str, list[list[int]]]

    def blocks(self, part: PartColumns) -> Iterator[tuple[Int32s, Keys]]:
        owners = [id_ for id_, held in zip(part.column_ids, self.stored[part.part], strict=True) for _ in held]
        values = [value for held in self.stored[part.part] for value in held]
        live = [(owner, value) for owner, value in zip(owners, values, strict=True) if owner >= 0]
        for first in range(0, len(live), BLOCK):
            block = live[first : first + BLOCK]
            yield np.array([owner for owner, _ in block], np.int32), keys_of(value for _, value in block)

    def columns(self, parts: Sequence[PartColumns]) -> tuple[Int32s, Int64s, Keys]:
        held = [
            (owner, values)
            for part in parts
            for owner, values in zip(part.column_ids, self.stored[part.part], strict=True)
            if owner >= 0 and values
        ]
        starts = starts_of(np.array([len(values) for _, values in held], np.int64))
        keys = keys_of(value for _, values in held for value in values)
        return np.array([owner for owner, _ in held], np.int32), starts, keys


def stored(columns: Sequence[frozenset[int]], ids: Sequence[int], parts: int) -> tuple[FakeIndex, list[PartColumns]]:
    """Store columns in parts, dealt out in turn so that ids do not ascend over the parts; dead columns among them."""
    held = {f"part-{n}": [*map(list, columns[n::parts]), [1, 2, 3]] for n in range(parts)}
    numbered = [PartColumns(f"part-{n}", np.array([*ids[n::parts], -1], np.int32)) for n in range(parts)]
    return FakeIndex(held), numbered


def search_of(
    columns: Sequence[frozenset[int]],
    ids: Sequence[int],
    dependent: Sequence[bool],
    referenced: Sequence[bool],
    *,
    coverage: Fraction = Fraction(0),
    threshold: Fraction = Fraction(1),
    changed: Sequence[bool] | None = None,
    top: int | None = None,
) -> Search:
    """Ask for the INDs of columns whose ids are ascending."""
    keys = [keys_of(column) for column in columns]
    sums = np.array([[key.high.sum(), key.low.sum()] for key in keys], np.uint64).reshape(-1, 2)
    return Search(
        np.array(ids, np.int32), np.array([len(column) for column in columns], np.int64), sums,
        np.array(dependent, bool), np.array(referenced, bool), coverage, threshold,
        changed=None if changed is None else np.array(changed, bool), top=top,
    )  # fmt: skip
