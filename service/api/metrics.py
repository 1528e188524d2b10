"""Own the HTTP metrics and those of the state, in the registry that the composition root gives."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.core.errors import StateError
from service.usecases.ports import StateReader

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class HttpMetrics:
    """Count and time requests by route, method and status; pure ASGI, so responses are not buffered."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("route", "method", "status")
        self._requests = Counter("http_requests", "HTTP requests answered.", labels, registry=registry)
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "Time to the end of the answer.",
            labels,
            registry=registry,
            buckets=BUCKETS,
        )
        self._counted: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # What the server answers when the app raises.
        counted = False
        begin = time.perf_counter()

        def count() -> None:
            nonlocal counted
            if not counted:
                # The template of the path, never the path itself: labels must stay few.
                route = getattr(scope.get("route"), "path", "unmatched")
                method = scope["method"] if scope["method"] in METHODS else "other"
                requests, seconds = self._of((route, method, str(status)))
                requests.inc()
                seconds.observe(time.perf_counter() - begin)
                counted = True

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                count()  # Before it is sent: who has the answer finds it counted.
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            count()

    def _of(self, labels: tuple[str, str, str]) -> tuple[Counter, Histogram]:
        if labels not in self._counted:
            self._counted[labels] = self._requests.labels(*labels), self._seconds.labels(*labels)
        return self._counted[labels]


class StateMetrics(Collector):
    """Read the state's version and counts at each scrape; a database that is away is a metric, not an error."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the metrics without reading the state, which may be away when the service starts."""
        yield GaugeMetricFamily("subsetd_state_readable", "Whether the state's database answers.")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read one version of the state."""
        try:
            with self._reader.snapshot() as snapshot:
                head, counts, audits = snapshot.head, snapshot.counts(), snapshot.audits(None, 1)
                contracts = snapshot.contract_counts()
        except StateError:
            yield GaugeMetricFamily("subsetd_state_readable", "Whether the state's database answers.", 0)
            return
        yield GaugeMetricFamily("subsetd_state_readable", "Whether the state's database answers.", 1)
        yield GaugeMetricFamily("subsetd_state_version", "Newest committed version of the state.", head.version)
        yield GaugeMetricFamily("subsetd_state_generation", "Bootstraps that the state has seen.", head.generation)
        if head.committed_at is not None:
            yield GaugeMetricFamily(
                "subsetd_state_committed_timestamp_seconds",
                "When the newest version was committed.",
                head.committed_at.timestamp(),
            )
        for audit in audits:
            yield GaugeMetricFamily(
                "subsetd_audit_differences",
                "INDs that the newest audit found to be served wrongly, or not served.",
                audit.differences,
            )
            yield GaugeMetricFamily("subsetd_audit_version", "State version that it looked at.", audit.version)
            yield GaugeMetricFamily("subsetd_audit_timestamp_seconds", "When it ended.", audit.ended_at.timestamp())
        yield GaugeMetricFamily("subsetd_tables", "Tracked tables.", counts.tables)
        yield GaugeMetricFamily("subsetd_attributes", "Tracked attributes.", counts.attributes)
        yield GaugeMetricFamily("subsetd_clusters", "Attribute clusters.", counts.clusters)
        yield GaugeMetricFamily("subsetd_values", "Distinct values over all attributes.", counts.values)
        yield GaugeMetricFamily("subsetd_uinds", "Inclusion dependencies that hold.", counts.uinds)
        of_contracts = GaugeMetricFamily("subsetd_contracts", "Contracts by how they stand.", labels=["state"])
        for state, count in contracts.items():
            of_contracts.add_metric([state], count)
        yield of_contracts
        yield GaugeMetricFamily("subsetd_dead_letters", "Records that were set aside.", counts.dead_letters)
        yield GaugeMetricFamily(
            "subsetd_short_sketches", "Sketches with too few smallest hashes left.", counts.short_sketches
        )
