"""Own what commands ask of the indexes of tracked tables, and what keeps them current beside a consumer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from service import wiring
from service.core.errors import StateError
from service.scheduler import running_every
from service.store import join_tracked
from service.store.join_tracked_compaction import PostgresTrackedIndexes
from service.usecases.join_tracked import JoinCompactor, TrackedIndex, build

LOOK_SECONDS = 1.0


def index_tables(url: str, tables: Sequence[str]) -> Iterator[TrackedIndex]:
    """Index the rows of tracked tables for joins, one after the other; gives each one's index when it is built."""
    with closing(PostgresTrackedIndexes(url)) as indexes:
        for table, table_id in zip(tables, join_tracked.add_tables(url, tables), strict=True):
            build(indexes, table_id)
            built = next((one for one in list_indexes(url) if one.table == table), None)
            if built is None:
                raise StateError(f"{table} was untracked while it was to be indexed; track it again if it should be.")
            yield built


def drop_indexes(url: str, tables: Sequence[str]) -> None:
    """Index tracked tables no longer."""
    join_tracked.remove_tables(url, tables)


def list_indexes(url: str) -> list[TrackedIndex]:
    """List the tracked tables that are indexed."""
    with wiring.reading_engine(url) as engine:
        return join_tracked.list_tables(engine)


@contextmanager
def compacting_joins(url: str) -> Iterator[None]:
    """Keep the log of rows that changed of indexed tables short, beside the consumer, whose end nothing holds up."""
    with closing(PostgresTrackedIndexes(url)) as indexes:
        compactor = JoinCompactor(indexes)
        with running_every({"index of joinable tables": (LOOK_SECONDS, compactor.look)}):
            try:
                yield
            finally:  # of a large table it takes minutes
                indexes.end()
