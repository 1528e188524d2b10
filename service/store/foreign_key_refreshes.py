"""Own the finding of foreign keys on a state that others answer from: unbounded in time, and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine

from service.core.histogram_changes import Histograms
from service.store.candidates import keep
from service.store.histograms import follow_all, follow_kept, keep_histograms
from service.store.reader import PostgresSnapshot, PostgresStateReader
from service.usecases.foreign_key_ports import ValueStatistics
from service.usecases.foreign_keys import Question
from service.usecases.kept_candidates import NewCandidate


class PostgresForeignKeys:
    """Implement foreign_key_answers.ForeignKeyStore over an engine whose statements may be bounded."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def follow_all(self) -> None:
        follow_all(self._engine)

    def follow_kept(self) -> None:
        follow_kept(self._engine)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        with PostgresStateReader(self._engine).snapshot(with_values=True) as snapshot:
            snapshot.take_its_time()
            yield snapshot

    def keep(
        self, question: Question, version: int, seconds: float, left_out: Sequence[str], found: Iterator[NewCandidate]
    ) -> int:
        return keep(self._engine, question, version, seconds, left_out, found)

    def follow(self, version: int, histograms: Sequence[Histograms], statistics: Mapping[int, ValueStatistics]) -> None:
        keep_histograms(self._engine, version, histograms, statistics)
