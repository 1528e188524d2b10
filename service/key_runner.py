"""Own what tracks keys that a service is asked for, each as a Spark job, and drops them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import structlog

from service import feed_wiring
from service.config import Settings
from service.core.foreign_keys.sides import Side
from service.job_process import JobProcess, spark_command
from service.scheduler import running_every
from service.usecases.key_values import KeyKind
from service.usecases.tracked_keys import TrackedKeys

log = structlog.get_logger("subsetd")


@contextmanager
def tracking_keys(url: str, settings: Settings) -> Iterator[TrackedKeys]:
    """Track the keys that are asked for, beside the service; a job that runs at the end is ended."""

    def start(key: Side, source: str | None) -> JobProcess:
        told, secrets = track_told(key, source)
        return JobProcess(spark_command("spark_jobs.backfill", settings.spark_master, told), [url, *secrets])

    def drop(key: Side) -> int:
        return feed_wiring.drop_key(url, *key, log.info)

    tracked = TrackedKeys(start, drop, partial(datetime.now, UTC))
    try:
        with running_every({"tracking of keys": (1.0, tracked.look)}):
            yield tracked
    finally:
        tracked.close()


def track_told(key: Side, source: str | None) -> tuple[list[str], list[str]]:
    """Give the options of the job that tracks a key, and what it is to read from its standard input."""
    return backfill_told([json.dumps([key.schema, key.table, *key.columns])], source, KeyKind.PINNED)


def backfill_told(keys: Sequence[str], source: str | None, kind: KeyKind) -> tuple[list[str], list[str]]:
    """Give the options of the job that tracks keys, each a JSON array, and what it reads from its standard input."""
    told = [f"--kind={kind}", *(f"--key={key}" for key in keys)]
    return ([*told, "--source", "-"], [source]) if source is not None else (told, [])
