"""The whole way with a real Debezium: what the state holds is what a recomputation of the source holds."""

from __future__ import annotations

import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.broker import KafkaBroker
from tests.commands import Commands
from tests.connect import Connect, connecting
from tests.endurance.following import check, has_seen, mark
from tests.endurance.workload import ALTERATIONS, SCHEMA, TABLES, Workload
from tests.waiting import BOUND_SECONDS, wait_for


@pytest.fixture
def workload(source_url: str) -> Iterator[Workload]:
    made = Workload(source_url, "debezium", alterations=ALTERATIONS)
    made.make()
    yield made
    made.close()


@pytest.fixture
def connect(broker: KafkaBroker, source_url: str) -> Iterator[Connect]:
    with connecting(broker, source_url, with_schema=True) as made:
        yield made


@contextmanager
def writing(workload: Workload, wait_seconds: float) -> Iterator[Future[None]]:
    """Let the writers write for the time of the block, so fast; what fails them fails the block."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(workload.run, sys.maxsize, stop, lambda: stop.wait(wait_seconds))
        try:
            yield future
        finally:
            stop.set()
        future.result()


def test_debezium_over_writers_that_never_pause(
    source_url: str,
    database_url: str,
    workload: Workload,
    connect: Connect,
    subsetd: Commands,
    whole: bool,
    tell: Callable[..., None],
) -> None:
    """Bootstrap and connector meet without a gap; repeats of a killed connector and changed tables change nothing."""
    started = time.monotonic()
    changes, kills = (200_000, 20) if whole else (2_500, 1)
    patience = 1800.0 if whole else BOUND_SECONDS
    connect.make_slot()
    with writing(workload, 0.02) as writers:
        code, said = subsetd.run("bootstrap", source_url, "--name", "shop")
        assert code == 0, said
        connect.start()
        wait_for(lambda: len(connect.topics()) == len(TABLES) + 1 or writers.done())
        process = subsetd.start("run", "--feed", connect.feed)
        wait_for(lambda: "http://" in subsetd.said(process) or process.poll() is not None)
    workload.is_rebuilding = True
    with writing(workload, 0.0 if whole else 0.02) as writers:
        for kill in range(kills):
            at = changes * (kill + 1) // (kills + 1)
            wait_for(lambda at=at: workload.changes > at or writers.done() or process.poll() is not None, patience)
            connect.kill()
            connect.start()
        wait_for(lambda: workload.changes > changes or writers.done() or process.poll() is not None, patience)
    mark(source_url, 1)
    written = time.monotonic()
    wait_for(lambda: has_seen(database_url, 1) or process.poll() is not None, patience)
    assert process.poll() is None, subsetd.said(process)
    skipped = skipped_by_reason(subsetd.said(process))
    tell(
        **workload.counts,
        kills_of_the_connector=kills,
        repeats_skipped=skipped.get("repeated by the connector", 0),
        seconds=time.monotonic() - started,
        seconds_behind_the_writers=time.monotonic() - written,
    )
    subsetd.end(process)
    for column in dropped_columns(workload):
        assert subsetd.run("attribute", "drop", column)[0] == 0
    check(database_url, source_url)
    if whole:
        code, said = subsetd.run("verify", "--source", f"shop={source_url}", seconds=patience)
        assert code == 0, said
        assert "equal" in said


def skipped_by_reason(said: str) -> dict[str, int]:
    """Read what the running service counts of skipped records."""
    address = next(word for word in said.split() if word.startswith("http://"))
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        lines = re.findall(r'subsetd_skipped_records_total{reason="(.*)"} (.*)', answer.read().decode())
    return {reason: int(float(number)) for reason, number in lines}


def dropped_columns(workload: Workload) -> list[str]:
    """Name the columns that the writers have dropped: the state keeps their values until it is told."""
    done = ALTERATIONS[: workload.counts["alterations"]]
    return [f"{SCHEMA}.{table}.{column}" for _, table, _, gone in done for column in gone]
