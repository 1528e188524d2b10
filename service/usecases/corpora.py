"""Own the values that are told of corpora: registered corpora, their refreshes, and what a refresh found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from service.core.column_filters import Reason
from service.core.corpus import CorpusKind, CorpusSettings
from service.core.records import Int32s, Int64s


def index_folder(corpus: Corpus, data_dir: str, database: str) -> str:
    """Give the folder of a corpus' index; without one of its own it has one that no other `database` knows."""
    if corpus.settings.index is not None:
        return corpus.settings.index
    return f"{data_dir}/corpora/{corpus.name}-{blake2b(database.encode(), digest_size=6).hexdigest()}"


class RefreshState(StrEnum):
    """Name where a refresh is: waiting, at work, or at one of its three ends."""

    QUEUED = "queued"
    RUNNING = "running"
    LANDED = "landed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CorpusStanding:
    """Say how a corpus is: the generation that is served, and of its newest refresh, if there was one, what became."""

    corpus: str
    generation: int | None
    state: RefreshState | None
    ended_at: datetime | None
    fault: str | None

    @property
    def is_at_fault(self) -> bool:
        """Tell whether its newest refresh, or an attempt of it, failed."""
        return self.fault is not None or self.state is RefreshState.FAILED


@dataclass(frozen=True, slots=True)
class NewCorpus:
    """Say what a corpus is, how it is read, and when.

    `schedule` is a cron expression; `time_limit_seconds` (None: no limit) ends a refresh, and one that failed is tried
    again up to `retries` times.
    """

    name: str
    location: str
    kind: CorpusKind
    settings: CorpusSettings = CorpusSettings()  # noqa: RUF009
    schedule: str | None = None
    time_limit_seconds: int | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus(NewCorpus):
    """Describe a registered corpus; `generation` is the one that is served, None before the first refresh landed."""

    corpus_id: int
    generation: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Refresh:
    """Describe a refresh; `generation` is the one that it landed as. `done` of `total` concern its `stage`.

    One that is queued is not to begin before `not_before`. `progressed_at` is when `done` was told last.
    """

    refresh_id: int
    corpus_id: int
    corpus: str
    generation: int | None
    state: RefreshState
    full: bool
    requested_by: str
    attempt: int
    queued_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    stage: str | None
    done: int | None
    total: int | None
    stage_started_at: datetime | None
    progressed_at: datetime | None
    cancel_requested: bool
    fault: str | None
    report: Mapping[str, Any] | None

    @property
    def expected_end(self) -> datetime | None:
        """Give when the present stage ends if it goes on at its pace; None while nothing can be said."""
        if self.state is not RefreshState.RUNNING or not self.done or not self.total:
            return None
        if self.stage_started_at is None or self.progressed_at is None:
            return None
        return self.stage_started_at + (self.progressed_at - self.stage_started_at) * (self.total / self.done)


@dataclass(frozen=True, slots=True)
class TableVersions:
    """Hold n tables as one refresh found them, as arrays: a corpus has a million.

    Table i is numbers[i] (its number in the corpus, the same while its path is there), at paths[i], with rows[i] rows.
    Its columns have the ids from first_columns[i] on, and lie at [starts[i]:starts[i + 1]] of the arrays of columns:
    `names`, `distinct` values (int32), and the core's Reasons (uint8) why they were not examined on either side. Ids
    stay as long as a table's number of columns does; another number of columns gets new ids.
    """

    numbers: Int32s
    paths: pa.StringArray | pa.LargeStringArray
    rows: Int64s
    first_columns: Int32s
    starts: Int64s
    names: pa.StringArray | pa.LargeStringArray
    distinct: Int32s
    dependent_reasons: NDArray[np.uint8]
    referenced_reasons: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.numbers)

    def column_ids(self) -> Int32s:
        """Give the id of each column, int32[starts[-1]]."""
        widths = np.diff(self.starts)
        return (np.repeat(self.first_columns - self.starts[:-1], widths) + np.arange(self.starts[-1])).astype(np.int32)


@dataclass(frozen=True, slots=True)
class CorpusTable:
    """Describe a table of a generation."""

    table_number: int
    path: str
    row_count: int
    first_column: int
    column_count: int
    since: int


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """Name a column: the path of its table, its place from 0, its name, and its id in the corpus."""

    column_id: int
    table: str
    position: int
    name: str


@dataclass(frozen=True, slots=True)
class CorpusColumn:
    """Describe a column of a generation, with the reasons why it was not examined as dependent or as referenced."""

    column: ColumnRef
    distinct_count: int
    row_count: int
    dependent_reasons: Reason
    referenced_reasons: Reason


@dataclass(frozen=True, slots=True)
class CorpusInd:
    """Hold an IND with its `overlap`, |A ∩ B|: the `coefficient` is its share of A's values, the `coverage` of B's."""

    dependent: ColumnRef
    referenced: ColumnRef
    overlap: int
    coefficient: float
    coverage: float


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """Say of a pair whether it holds, and if not, whether it was examined at all.

    `holds` goes with an `overlap`. A pair that was examined and does not hold has no reasons. One that was not has
    `reasons`; or `beyond_top`: the dependent has as many better referenced columns as the corpus keeps; or a `fault`:
    the file of one of the two could not be read, and that column has no id (-1).
    """

    generation: int
    dependent: CorpusColumn | None
    referenced: CorpusColumn | None
    holds: bool
    overlap: int | None
    reasons: Reason
    beyond_top: bool
    fault: str | None

    @property
    def examined(self) -> bool:
        """Tell whether the pair was compared."""
        return self.holds or not (self.reasons or self.beyond_top or self.fault)

    @property
    def coverage(self) -> Fraction | None:
        """Give the share of the referenced column's values that both have, None when the pair does not hold."""
        if self.overlap is None or self.referenced is None:
            return None
        return Fraction(self.overlap, self.referenced.distinct_count)


class ChangeKind(StrEnum):
    """Name what happened to an IND between two generations."""

    APPEARED = "appeared"
    WENT = "went"


@dataclass(frozen=True, slots=True)
class Change:
    """Hold an IND that one of two generations has and the other has not."""

    kind: ChangeKind
    dependent: ColumnRef
    referenced: ColumnRef
    overlap: int


@dataclass(frozen=True, slots=True)
class CorpusFault:
    """Say of a file or table that could not be read why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """Choose columns: those of the table at a path, or one of them by its position; None: all."""

    table: str | None = None
    position: int | None = None
