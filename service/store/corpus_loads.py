"""Own the load of one refresh: INDs from many tasks into a table of their own, and its landing in one transaction.

The job's driver calls `begin`, its tasks `copy`, the driver then `build_indexes` and `land`. Nothing is visible before
`land` has committed; what a refresh that died left behind, the next `begin` of the corpus removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.core.column_sets import Int32s
from service.core.group_inds import Inds
from service.usecases.corpora import Corpus, CorpusFault, Refresh, TableVersions


@dataclass(frozen=True, slots=True)
class Landed:
    """Say what landing did: rows of INDs served now, and how many appeared and went since the generation before."""

    generation: int
    inds: int
    appeared: int
    went: int


@contextmanager
def working_on(url: str, refresh_id: int) -> Iterator[tuple[Corpus, Refresh]]:
    """Hold the lock of a refresh's corpus for as long as the refresh is at work.

    Raises `StateError` when another process holds it, NotFoundError when there is no such refresh.
    """
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Load:
    """Name the load of one refresh; picklable, so that executors can write to it.

    `generation` is the one that it is to land as, `served` the one that it builds on (None: there is none).
    """

    url: str
    refresh_id: int
    corpus_id: int
    generation: int
    served: int | None
    next_table: int
    next_column: int

    @staticmethod
    def begin(url: str, refresh_id: int) -> Load:
        """Clear what refreshes of this corpus left behind that died, and make an empty load; the lock must be held."""
        raise NotImplementedError

    def served_tables(self) -> Iterator[TableVersions]:
        """Give the tables of the served generation by (table_number), in blocks; none when there is none."""
        raise NotImplementedError

    def copy(self, task: int, blocks: Iterable[Inds]) -> int:
        """Write the INDs of one task, in one transaction, and give their number.

        A task that is run again, or twice at once, writes nothing: an attempt that committed stands.
        """
        raise NotImplementedError

    def build_indexes(self) -> int:
        """Build the load's indexes, once all tasks are done; give the number of its INDs.

        Raises DamagedStateError when two tasks have the same pair.
        """
        raise NotImplementedError

    def land(
        self,
        tables: TableVersions,
        gone_tables: Int32s,
        changed_columns: Int32s | None,
        faults: Iterable[CorpusFault],
        report: Mapping[str, Any],
    ) -> Landed:
        """Make the load, with the tables that are new or changed, the served generation, in one transaction.

        `gone_tables` are the numbers of those that are no more. The load must hold all INDs with a column of
        `changed_columns` on either side, and only such ones; None: all INDs there are. Other INDs stay as they are,
        except those of columns that are no more. `report` is kept with `inds`, `appeared` and `went` added.
        Raises `StateError` when another generation is served by now, or somebody keeps the tables in use; then nothing
        has changed.
        """
        raise NotImplementedError
