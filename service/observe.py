"""Own what consumer and refreshes tell the outside: log lines, Prometheus metrics, and the consumer's readiness."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily

from service.core.errors import SubsetdError
from service.core.model import Table
from service.usecases.batches import BatchReport, Positions
from service.usecases.corpora import Refresh
from service.usecases.ports import LagUnit

log = structlog.get_logger("subsetd.consumer")
log_audits = structlog.get_logger("subsetd.audits")
log_refreshes = structlog.get_logger("subsetd.refreshes")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 10, 100, 500, 1000, 2500, 5000, 10_000, 50_000, 100_000)


class ConsumerObserver:
    """Implement follow_feed.Observer with a registry of metrics and a logger.

    `lag_unit` is what the feed counts its lag in. `clock` gives seconds and never jumps; `now`, which may, those since
    1970.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        *,
        lag_unit: LagUnit = "records",
    ) -> None:
        self.lag_unit = lag_unit
        self._now = now
        self._clock = clock
        self.feed = ""
        """The name of the feed; none before it is known."""
        self.last_error: str | None = None
        self.transitions_fault: str | None = None
        """Why transitions do not go out to their topic; None while they do, or are to go nowhere."""
        self._lag: Positions | None = None
        self.following_since: float | None = None
        self._current_at = clock()
        self._version: int | None = None
        records = Counter("subsetd_consumer_records", "Records by what became of them.", ["outcome"], registry=registry)
        self._records = {name: records.labels(name) for name in ("inserted", "updated", "deleted", "skipped", "dead")}
        self._skipped = Counter(
            "subsetd_skipped_records", "Records that change nothing, by the reason.", ["reason"], registry=registry
        )
        self._batches = Histogram(
            "subsetd_consumer_batch_records", "Records of a batch.", buckets=SIZES, registry=registry
        )
        self._steps = Histogram(
            "subsetd_consumer_step_seconds", "Seconds of a batch's steps.", ["step"], buckets=SECONDS, registry=registry
        )
        cache = Counter("subsetd_val_cache_requests", "Look-ups in ValCache by result.", ["result"], registry=registry)
        self._hits, self._misses = cache.labels("hit"), cache.labels("miss")
        self._entries = Gauge("subsetd_val_cache_entries", "Records in ValCache.", registry=registry)
        self._cache_bytes = Gauge("subsetd_val_cache_bytes", "What ValCache takes of memory.", registry=registry)
        accesses = Counter(
            "subsetd_gen_rec_accesses", "Generator records read and written.", ["access"], registry=registry
        )
        self._read, self._written = accesses.labels("read"), accesses.labels("write")
        self._retries = Counter("subsetd_consumer_retries", "Times the state was loaded anew.", registry=registry)
        lag = Gauge(
            "subsetd_consumer_lag_records",
            "Records (of a file or a slot: bytes) behind the feed's end.",
            registry=registry,
        )
        lag.set_function(lambda: float("nan") if self.lag is None else self.lag)
        registry.register(self)
        Gauge(
            "subsetd_consumer_lag_seconds",
            "Age of the newest commit while records wait, or while the feed is away or not read yet; else 0.",
            registry=registry,
        ).set_function(self.lag_seconds)
        held_back = Gauge(
            "subsetd_slot_held_back_bytes",
            "Log that the slot of a followed Postgres source holds back there.",
            registry=registry,
        )
        self.slot_holds_back = held_back.set

    @property
    def lag(self) -> int | None:
        """Sum up how far the feed is behind its ends; None when that is not known."""
        return None if self._lag is None else sum(self._lag.values())

    def collect(self) -> Iterator[Metric]:
        """Give the lag of each partition, as it is known by now (for the registry)."""
        found = GaugeMetricFamily(
            "subsetd_consumer_partition_lag_records",
            "Records (of a file or a slot: bytes) behind a partition's end.",
            labels=["topic", "partition"],
        )
        for (topic, partition), behind in (self._lag or {}).items():
            found.add_metric([topic, str(partition)], behind)
        yield found

    def lag_seconds(self) -> float:
        """Return for how long nothing was committed while the feed has more, or may have; 0 when nothing waits."""
        return 0.0 if self.lag == 0 else self._clock() - self._current_at

    def beginning(self, feed: str) -> None:
        self.feed = feed

    def told(self, bound: float) -> str:
        """Say how far the consumer is behind, and since when, where it may be so for `bound` seconds."""
        lag = "What waits is not known: the feed is away, not read yet, or a micro-batch is at work"
        if self.lag is not None:
            lag = f"{self.lag} {self.lag_unit} behind the feed's end"
        return f"{lag}; current {self.lag_seconds():.1f} s ago (bound {bound:.0f} s)."

    def fault(self, bound: float) -> str | None:
        """Say what failed last, or how far it is behind for longer than `bound` seconds; None while all is well."""
        return self.last_error or (self.told(bound) if self.lag_seconds() > bound else None)

    def following(
        self, version: int, committed_at: datetime | None, tables: int, clusters: int, positions: Positions
    ) -> None:
        self.last_error = None
        self.following_since = self._clock()
        if version != self._version:  # else it is known better here: the time of a commit is of a clock that may jump
            # Not since now: one that is ended and started again and again is not current for being new.
            age = 0.0 if committed_at is None else max(0.0, self._now() - committed_at.timestamp())
            self._current_at = self.following_since - age
            self._version = version
        log.info("following", version=version, tables=tables, clusters=clusters)
        for (topic, partition), offset in positions.items():
            log.info("goes on at", topic=topic, partition=partition, offset=offset)

    def committed(self, report: BatchReport) -> None:
        self._current_at = self._clock()
        self._version = report.version
        self._lag = report.lag
        for outcome, counter in self._records.items():
            counter.inc(getattr(report.counts, outcome))
        for reason, count in report.skipped.items():
            self._skipped.labels(reason).inc(count)
        self._batches.observe(report.counts.records)
        for step, seconds in report.seconds.items():
            self._steps.labels(step).observe(seconds)
        self._hits.inc(report.cache_hits)
        self._misses.inc(report.cache_misses)
        self._entries.set(report.cache_entries)
        self._cache_bytes.set(report.cache_bytes)
        self._read.inc(report.accesses.read)
        self._written.inc(report.accesses.written)
        log.debug("committed", version=report.version, records=report.counts.records, values=report.accesses.values)
        if report.counts.dead:
            log.warning("records set aside", version=report.version, dead=report.counts.dead)

    def waiting(self, lag: Positions | None) -> None:
        self._lag = lag
        if self.lag == 0:
            self._current_at = self._clock()

    def schema_changed(self, table: Table, added: Sequence[tuple[str, str]], left: Sequence[str]) -> None:
        told: dict[str, object] = {"table": str(table), "new_or_of_another_type": dict(added)}
        if left:
            told["no_longer_current"] = list(left)
            told["way_out"] = "bootstrap the source again with --replace"
        log.warning("columns changed", **told)

    def retrying(self, error: SubsetdError) -> None:
        self.last_error = str(error)
        self._retries.inc()
        log.warning("database failed, loading the state anew", error=str(error))

    def transitions_told(self, fault: str | None) -> None:
        """Hear why transitions do not go out to their topic, or (None) that they do again."""
        self.transitions_fault = fault
        if fault is None:
            log.info("transitions are sent again")
        else:
            log.warning("transitions not sent", error=fault)

    def shards_away(self, told: Sequence[str]) -> None:
        self.last_error = "; ".join(told) or None
        if told:
            log.warning("shards are away, the others go on", error=self.last_error)
        else:
            log.info("all shards are there again")


class RefreshObserver:
    """Implement refresh_corpora.Observer with a logger; metrics come from the database, see api/corpus_metrics.py."""

    def began(self, refresh: Refresh) -> None:
        log_refreshes.info("refresh began", **_of(refresh), attempt=refresh.attempt, full=refresh.full)

    def landed(self, refresh: Refresh) -> None:
        report = refresh.report or {}
        told = {name: report[name] for name in ("tables", "inds", "appeared", "went") if name in report}
        log_refreshes.info("refresh landed", **_of(refresh), generation=refresh.generation, **told)

    def failed(self, refresh: Refresh, fault: str, again_at: datetime | None) -> None:
        again = {} if again_at is None else {"again_at": again_at.isoformat()}
        log_refreshes.error("refresh failed", **_of(refresh), attempt=refresh.attempt, error=fault, **again)

    def cancelled(self, refresh: Refresh) -> None:
        log_refreshes.info("refresh cancelled", **_of(refresh))


def tell_audit(exit_code: int, said: str) -> None:
    """Tell what became of a scheduled audit."""
    if exit_code:
        log_audits.error("audit found differences, or failed", exit_code=exit_code, said=said)
    else:
        # Before it stands what it told of its progress.
        log_audits.info("audited", found=said[said.find("version ") :].partition("\n")[0])


def tell_cleaned(dropped: Sequence[str]) -> None:
    """Tell what was left over of corpora and is dropped now."""
    if dropped:
        log_refreshes.info("leftovers dropped", tables=list(dropped))


def _of(refresh: Refresh) -> dict[str, object]:
    return {"corpus": refresh.corpus, "refresh": refresh.refresh_id}
