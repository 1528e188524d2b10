"""Own the tasks of a refresh that store INDs, and the one that finds them all in its process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.core.corpus_inds import Choice
from service.core.group_inds import Inds
from service.store.corpora import PostgresCorpora
from service.store.corpus_loads import Load
from service.store.database import make_engine
from spark_jobs.corpus_index import CorpusIndex, Part, PartColumns
from spark_jobs.many_discovery import Search, find_all, find_changed
from spark_jobs.many_signatures import KeptSignatures
from spark_jobs.tasks import CrashPoint

TOLD_SECONDS = 1.0
"""How often progress inside a stage is written to the database."""


@dataclass(frozen=True, slots=True)
class StoreInds:
    """Store the INDs of a task in a load; picklable."""

    load: Load
    crash: CrashPoint

    def __call__(self, task: int, blocks: Iterator[Inds]) -> int:
        return self.load.copy(task, self._crashing(blocks))

    def _crashing(self, blocks: Iterator[Inds]) -> Iterator[Inds]:
        for block in blocks:
            yield block
            self.crash.reach("storing")


@dataclass(slots=True)
class ProgressTold:
    """Tell from inside a task how far a refresh is, now and then; picklable."""

    url: str
    refresh_id: int
    stage: str
    told: float = 0.0

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.told < TOLD_SECONDS:
            return
        self.told = time.monotonic()
        engine = make_engine(self.url, "subsetd refresh progress", pool_size=1, max_overflow=0)
        try:
            PostgresCorpora(engine).progress(self.refresh_id, self.stage, done, total)
        finally:
            engine.dispose()


class Found(NamedTuple):
    """Say how many INDs were stored, what chose the algorithm, and which parts were signed anew, by their names."""

    inds: int
    choice: Choice
    signed: Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class OneProcessTask:
    """Find all INDs of a search in this process and store them; picklable. `described` has the parts by their names."""

    index: CorpusIndex
    parts: Sequence[PartColumns]
    described: Mapping[str, Part]
    store: StoreInds
    tell: ProgressTold

    def __call__(self, search: Search, threads: int) -> Found:
        kept = KeptSignatures(self.index, self.parts, self.described, search.parameters)
        signed = kept if search.parameters.are_kept_for(search.algorithm) else None
        if search.changed is None:
            choice, blocks = find_all(self.index, self.parts, search, threads, self.tell, signed)
        else:
            choice, blocks = find_changed(self.index, self.parts, search, threads, signed)
        return Found(self.store(0, blocks), choice, kept.made)
