"""Own a service's runner of refreshes in tests, with jobs that do what they are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from service.core.corpus import CorpusKind
from service.scheduler import next_time
from service.store.corpora import PostgresCorpora
from service.store.database import make_engine
from service.usecases.corpora import NewCorpus, Refresh, RefreshState
from service.usecases.refresh_corpora import (
    RefreshRunner,
)


@dataclass
class FakeJob:
    """Be a process that does what the test says."""

    refresh: Refresh
    code: int | None = None
    last_words: str = ""
    heard: list[str] = field(default_factory=list)
    obeys: bool = True

    def exit_code(self) -> int | None:
        return self.code

    def end(self) -> None:
        self.heard.append("end")
        if self.obeys:
            self.code = 143

    def kill(self) -> None:
        self.heard.append("kill")
        self.code = 137

    def said(self) -> str:
        return self.last_words

    def close(self) -> None:
        self.heard.append("close")


class Observed:
    """Write down what an observer hears."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def began(self, refresh: Refresh) -> None:
        self.events.append(("began", refresh.refresh_id))

    def landed(self, refresh: Refresh) -> None:
        self.events.append(("landed", refresh.refresh_id))

    def failed(self, refresh: Refresh, fault: str, again_at: datetime | None) -> None:
        self.events.append(("failed" if again_at is None else "failed, again", refresh.refresh_id))

    def cancelled(self, refresh: Refresh) -> None:
        self.events.append(("cancelled", refresh.refresh_id))


class House:
    """Hold a register, jobs that were started, and two clocks that the test moves."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = make_engine(url, "test-refreshes")
        self.corpora = PostgresCorpora(self.engine)
        self.jobs: list[FakeJob] = []
        self.seconds = 0.0
        self.shift = timedelta(0)
        self.observed = Observed()

    def add(self, name: str = "lake", **options: object) -> str:
        self.corpora.add(NewCorpus(name, "/lake", CorpusKind.CSV, **options))  # type: ignore[arg-type]
        return name

    def runner(self, at_once: int = 1) -> RefreshRunner:
        def start(refresh: Refresh) -> FakeJob:
            self.jobs.append(FakeJob(refresh))
            return self.jobs[-1]

        return RefreshRunner(
            self.corpora,
            start,
            next_time,
            lambda: datetime.now(UTC) + self.shift,
            self.observed,
            at_once=at_once,
            clock=lambda: self.seconds,
        )

    def ask(self, name: str = "lake") -> int:
        return self.corpora.request_refresh(name, requested_by="test").refresh_id

    def state(self, refresh_id: int) -> RefreshState:
        return self.corpora.refresh(refresh_id).state
