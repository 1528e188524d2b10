"""Own the metrics of corpora, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from service.core.errors import NotFoundError, StateError
from service.usecases.corpora import Refresh, RefreshState
from service.usecases.corpora_ports import Corpora

LOOKED_AT = 20
"""How far back the last refresh that landed is looked for; behind so many that failed its metrics are absent."""


class CorpusMetrics(Collector):
    """Tell of each corpus how old what it serves is, and how it was refreshed; nothing while the database is away."""

    def __init__(self, corpora: Corpora) -> None:
        self._corpora = corpora

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the metrics without reading the state, which may be away when the service starts."""
        yield from self._families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the register and the newest refreshes."""
        found = self._families()
        try:
            for corpus in self._corpora.all():
                with suppress(NotFoundError):  # it was removed a moment ago
                    self._tell(found, corpus.name)
        except StateError:
            return
        yield from found.values()

    def _tell(self, found: dict[str, GaugeMetricFamily], corpus: str) -> None:
        refreshes = self._corpora.refreshes(corpus, limit=LOOKED_AT)
        if refreshes:
            for state in RefreshState:
                found["state"].add_metric([corpus, state], float(refreshes[0].state is state))
        landed = next((one for one in refreshes if one.state is RefreshState.LANDED), None)
        if landed is not None:
            self._tell_landed(found, corpus, landed)

    def _tell_landed(self, found: dict[str, GaugeMetricFamily], corpus: str, landed: Refresh) -> None:
        assert landed.ended_at is not None
        assert landed.started_at is not None
        assert landed.generation is not None
        report = landed.report or {}
        found["generation"].add_metric([corpus], landed.generation)
        found["landed"].add_metric([corpus], landed.ended_at.timestamp())
        found["seconds"].add_metric([corpus], (landed.ended_at - landed.started_at).total_seconds())
        for name, value in (
            ("tables", report.get("tables")),
            ("inds", report.get("inds")),
            ("faults", report.get("files", {}).get("faults")),
        ):
            if value is not None:
                found[name].add_metric([corpus], value)

    @staticmethod
    def _families() -> dict[str, GaugeMetricFamily]:
        described = {
            "state": ("subsetd_corpus_refresh_state", "1 for the state of the newest refresh.", ["corpus", "state"]),
            "generation": ("subsetd_corpus_generation", "Generation that is served.", ["corpus"]),
            "landed": (
                "subsetd_corpus_landed_timestamp_seconds",
                "When the served generation landed; its age is the time since then.",
                ["corpus"],
            ),
            "seconds": ("subsetd_corpus_refresh_seconds", "How long the refresh of it took.", ["corpus"]),
            "tables": ("subsetd_corpus_tables", "Tables in it.", ["corpus"]),
            "inds": ("subsetd_corpus_inds", "Inclusion dependencies in it.", ["corpus"]),
            "faults": ("subsetd_corpus_faults", "Files that its refresh could not read.", ["corpus"]),
        }
        return {name: GaugeMetricFamily(*family[:2], labels=family[2]) for name, family in described.items()}
