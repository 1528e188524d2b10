"""Own what a refresh looks for, and finding it in one process: from parts of an index to blocks of column ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from service.core.changed_inds import KnownKeys, find_changed_inds
from service.core.column_sets import ColumnSets, group_columns
from service.core.corpus_choices import Algorithm, Parameters, Strategy
from service.core.corpus_inds import Choice, choose_wanted, find_group_inds
from service.core.group_inds import Inds, as_columns
from service.core.records import Flags, Int32s, Int64s, Keys, UInt64s
from service.core.signatures import Signed
from service.core.top_referenced import top_referenced
from spark_jobs.corpus_index import CorpusIndex, PartColumns

ONE_PROCESS_CELLS = 100_000_000
"""Distinct values of examined columns, added up, that one process takes: at about 70 bytes each."""


@dataclass(frozen=True, slots=True)
class Search:
    """Say what is looked for among n columns; arrays of n by ascending column id.

    `sums`, uint64[n, 2], are those of a column's keys: equal columns have equal ones. With `changed` only INDs with
    such a column on either side are looked for, without it all. The rest is as in `CorpusSettings`.
    """

    column_ids: Int32s
    sizes: Int64s
    sums: UInt64s
    dependent: Flags
    referenced: Flags
    coverage: Fraction
    threshold: Fraction
    changed: Flags | None = None
    algorithm: Algorithm | None = None
    parameters: Parameters = Parameters()  # noqa: RUF009
    top: int | None = None

    @property
    def examined(self) -> Flags:
        """Mark the columns that can be on either side."""
        return (self.dependent | self.referenced) & (self.sizes > 0)

    @property
    def cells(self) -> int:
        """Count the values of examined columns."""
        return int(self.sizes[self.examined].sum())

    def places(self, column_ids: Int32s) -> Int64s:
        """Give the places of columns that are there."""
        return np.searchsorted(self.column_ids, column_ids)

    def of_parts(self, parts: Sequence[PartColumns], chosen: Flags) -> list[PartColumns]:
        """Leave out all but the chosen columns, and parts that have none of them."""
        left = []
        for part in parts:
            live = part.column_ids >= 0
            live[live] = chosen[self.places(part.column_ids[live])]
            if live.any():
                left.append(PartColumns(part.part, np.where(live, part.column_ids, np.int32(-1))))
        return left


def fits_one_process(search: Search) -> bool:
    """Say whether all that is examined can be in one process' memory."""
    return search.cells <= ONE_PROCESS_CELLS


def find_all(
    index: CorpusIndex,
    parts: Sequence[PartColumns],
    search: Search,
    threads: int,
    tell: Callable[[int, int], None] | None = None,
    signed: Signed | None = None,
) -> tuple[Choice, Iterator[Inds]]:
    """Choose an algorithm and yield all INDs by column ids, in blocks of at most a million.

    `tell` hears how many sets of equal columns are done, of how many; `signed` may have signatures by column ids.
    """
    column_ids, starts, keys = by_column(*index.columns(search.of_parts(parts, search.examined)))
    columns = ColumnSets.of_keys(starts, keys)
    del keys
    places = search.places(column_ids)
    groups = group_columns(
        columns, search.dependent[places], search.referenced[places],
        coverage=search.coverage, threshold=search.threshold,
    )  # fmt: skip
    # Only rarest-first gives each dependent's INDs in one piece, in order.
    wanted = Algorithm.RAREST_FIRST if search.top else search.algorithm
    choice = choose_wanted(groups, wanted, search.parameters)
    algorithm = choice.algorithm
    at = signed and (lambda places: signed(column_ids[places]))
    found = find_group_inds(groups, columns.keys, algorithm, search.parameters, threads, at)
    if tell is not None:
        by_referenced = algorithm is Algorithm.SIGNATURES and search.parameters.strategy is Strategy.REF2DEPS
        found = _telling(found, by_referenced, len(groups), tell)
    blocks = top_referenced(groups, found, search.top) if search.top else as_columns(groups, found)
    return choice, with_ids(blocks, column_ids)


def find_changed(
    index: CorpusIndex, parts: Sequence[PartColumns], search: Search, threads: int, signed: Signed | None = None
) -> tuple[Choice, Iterator[Inds]]:
    """Choose an algorithm and yield the INDs with a changed column on either side by column ids.

    Of unchanged columns only the values that a changed one has are ever held. `signed` may have signatures by ids.
    """
    assert search.changed is not None
    examined = search.examined
    changed = index.columns(search.of_parts(parts, examined & search.changed))
    known = KnownKeys.of(changed[2])
    cells = [(np.repeat(changed[0], np.diff(changed[1])), changed[2])]

    def shared(part: PartColumns) -> list[tuple[Int32s, Keys]]:
        found = []
        for column_ids, keys in index.blocks(part):
            kept = known.have(keys)
            found.append((column_ids[kept], keys.take(kept)))
        return found

    with ThreadPoolExecutor(threads, thread_name_prefix="subsetd-parts") as pool:
        for blocks in pool.map(shared, search.of_parts(parts, examined & ~search.changed)):
            cells += blocks
    owners = np.concatenate([block[0] for block in cells])
    keys = Keys(*(np.concatenate([block[1][half] for block in cells]) for half in (0, 1)))
    cells.clear()
    order = np.argsort(owners, kind="stable")
    owners = owners[order]
    begins = np.flatnonzero(np.diff(owners, prepend=-1))
    columns = ColumnSets.of_keys(np.append(begins, len(owners)), keys.take(order))
    column_ids = owners[begins]
    places = search.places(column_ids)
    choice, found = find_changed_inds(
        columns, search.sizes[places], search.changed[places], search.dependent[places], search.referenced[places],
        coverage=search.coverage, threshold=search.threshold, algorithm=search.algorithm, parameters=search.parameters,
        threads=threads, signed=signed and _read_once(column_ids, signed),
    )  # fmt: skip
    return choice, with_ids(found, column_ids)


def _read_once(column_ids: Int32s, signed: Signed) -> Signed:
    """Let the signatures of columns be asked for by their places, by several searches."""
    signatures = cache(lambda: signed(column_ids))
    return lambda places: signatures()[places]


def _telling(
    blocks: Iterator[Inds], by_referenced: bool, groups: int, tell: Callable[[int, int], None]
) -> Iterator[Inds]:
    for block in blocks:
        yield block
        tell(int((block.referenced if by_referenced else block.dependent)[-1]) + 1, groups)


def by_column(column_ids: Int32s, starts: Int64s, keys: Keys) -> tuple[Int32s, Int64s, Keys]:
    """Put columns in ascending order; those that are, as in an index that was written at once, are not copied."""
    if np.all(column_ids[1:] > column_ids[:-1]):
        return column_ids, starts, keys
    order = np.argsort(column_ids)
    lengths = np.diff(starts)[order]
    ends = np.cumsum(lengths)
    places = np.repeat(starts[:-1][order] - ends + lengths, lengths) + np.arange(len(keys.high))
    return column_ids[order], np.append(0, ends), keys.take(places)


def with_ids(blocks: Iterator[Inds], column_ids: Int32s) -> Iterator[Inds]:
    """Put column ids in the place of places."""
    for dependent, referenced, overlap in blocks:
        yield Inds(column_ids[dependent], column_ids[referenced], overlap)
