"""Own what the doctor looks at: the machine, the settings, the state's database, and each feed that is followed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import Engine

from service import wiring
from service.config import ConfigError, Settings, is_loopback
from service.core.errors import FeedError, SourceError, StateError
from service.feed_wiring import require_other_topics
from service.scheduler import next_time
from service.store.doctor_facts import read_database, read_feeds, read_operation
from service.store.preflight_facts import read_source_facts, read_state_facts
from service.stream.postgres_address import parse_address, source_of
from service.usecases.doctor import DiskFacts, FeedFacts, Gathered, OperationFacts, diagnose, stands_still
from service.usecases.preflight import check
from service.usecases.preflight_facts import Facts, Finding, Level, StateFacts, TopicFacts

SECOND_LOOK_SECONDS = 10.0
"""How long a consumer that has records before it is given for a first commit: they may have come just now."""

FIND_JAVA = "from spark_jobs.java_runtime import find_java; find_java()"


def examine(settings: Settings) -> list[Finding]:
    """Look at everything, and find what is wrong; what cannot be looked at is a finding as well."""
    gathered = Gathered(
        python=sys.version_info[:2],
        java=_java_fault(),
        disks=[_disk("the data folder", settings.data_dir)],
        keeps_history=settings.history_days is not None,
        settings=dict(_contradictions(settings)),
    )
    found: list[Finding] = []
    try:
        if not wiring.is_there(settings):
            raise StateError(
                f"none is in {settings.data_dir}; run subsetd bootstrap, or set SUBSETD_DATA_DIR to the state's folder"
            )
        with wiring.database_as_it_is(settings) as url, wiring.reading_engine(url, settings) as engine:
            database, folder = read_database(engine)
            gathered = replace(gathered, database=database)
            if settings.database_url is not None and folder is not None and Path(folder).is_dir():
                gathered = replace(gathered, disks=[*gathered.disks, _disk("Postgres", Path(folder))])
            if database.revision == database.expected:
                gathered, found = _examine_state(settings, engine, gathered)
                if not is_loopback(settings.host) and not wiring.make_access(engine, settings).look_for_keys():
                    told = (
                        f"is {settings.host} and there is no key: the service does not start, as others could reach it"
                    )
                    way_out = "set SUBSETD_API_KEY, make a key with subsetd api-key create, or SUBSETD_HOST=127.0.0.1"
                    found.append(Finding(Level.WARN, "SUBSETD_HOST", told, way_out))
    except StateError as error:
        found.append(Finding(Level.FAIL, "state", str(error)))
    return diagnose(gathered) + found


def _examine_state(settings: Settings, engine: Engine, gathered: Gathered) -> tuple[Gathered, list[Finding]]:
    """Look at the state and its feeds; what preflight has rules for is told by these."""
    state = read_state_facts(engine)
    operation: OperationFacts = read_operation(engine, _sinks(settings), next_time)
    found, feeds = check(Facts(state=state)), []
    for name, address, is_paused, is_followed, fault in read_feeds(engine):
        try:
            feed, told = _feed(settings, state, name, address)
        except (FeedError, SourceError) as error:
            feed, told = FeedFacts(name, False), [Finding(Level.FAIL, f"feed {name}", str(error))]
        feeds.append(replace(feed, is_paused=is_paused, is_followed=is_followed, fault=fault))
        found += told
    may_have_begun = any(one.has_records and one.is_followed and not one.is_paused for one in feeds)
    until = time.monotonic() + SECOND_LOOK_SECONDS
    while may_have_begun and stands_still(operation) and time.monotonic() < until:
        time.sleep(0.2)
        operation = read_operation(engine, _sinks(settings), next_time)
    return replace(gathered, operation=operation, feeds=feeds), found


def _feed(settings: Settings, state: StateFacts, name: str, address: str) -> tuple[FeedFacts, list[Finding]]:
    """Look at what a feed is read from; raise FeedError or SourceError where it does not let itself be looked at."""
    facts = Facts(feed=name)
    if address.startswith("kafka://"):
        from service.stream.topic_facts import read_topics

        # The address that a feed is kept with names the brokers alone.
        followed = sorted({topic for feed, topic, _ in state.positions if feed == name})
        if not followed:
            return FeedFacts(name, False), []
        _, topics = read_topics(f"{address}/{','.join(followed)}", settings.feed_start_seconds)
        gone = [topic.name for topic in topics if topic.partitions == 0]
        topics = [topic for topic in topics if topic.partitions > 0]
        # Preflight's rules look for topics' positions in the state, which is told of once.
        told = [finding for finding in check(replace(facts, state=state, topics=topics)) if _is_of_topic(finding)]
        waiting = _waiting(name, state, topics)
        # A transaction's marker stays behind the last record of a partition, and is none.
        has_records = waiting > sum(len(topic.ends) for topic in topics)
        return FeedFacts(name, False, waiting, has_records=has_records, gone=gone), told
    if address.startswith("postgres"):
        # What the state keeps has no password; the setting may.
        is_set = settings.feed is not None and source_of(settings.feed) == source_of(name)
        source = parse_address(settings.feed if settings.feed is not None and is_set else address)
        seen = read_source_facts(source.url, "SUBSETD_FEED")
        slots = [slot for slot in seen.slots if slot.name == source.slot]
        if not slots:
            return FeedFacts(name, False, lost=f"its slot {source.slot} is gone from the {source.place}"), []
        told = [
            finding
            for finding in check(replace(facts, source=replace(seen, slots=slots)))
            if finding.level is not Level.OK or finding.about.startswith("slot")
        ]
        return FeedFacts(name, False, slots[0].held_bytes, "bytes of its source's log"), told
    path = Path(address.removeprefix("file:"))
    at = next((offset for (feed, *_), offset in state.positions.items() if feed == name), 0)
    if not path.is_file():
        return FeedFacts(name, False, lost=f"the file {path} is gone"), []
    size = path.stat().st_size
    lost = f"the file {path} has {size} bytes, {at} were applied: it was cut" if size < at else None
    with path.open("rb") as file:
        file.seek(at)
        has_records = any(line.endswith(b"\n") and line.strip() for line in file)
    return FeedFacts(name, False, max(size - at, 0), "bytes", lost, has_records), []


def _waiting(name: str, state: StateFacts, topics: list[TopicFacts]) -> int:
    return sum(
        end - max(state.positions.get((name, topic.name, partition), 0), topic.begins.get(partition, 0))
        for topic in topics
        for partition, end in topic.ends.items()
    )


def _is_of_topic(finding: Finding) -> bool:
    return finding.about.startswith("topic ")


def _sinks(settings: Settings) -> set[str]:
    """Give the names, as the state has them, of where transitions are sent to."""
    if settings.transitions_topic is None:
        return set()
    from service.stream.kafka_transitions import TransitionTopic

    with closing(TransitionTopic(settings.transitions_topic)) as sink:
        return {sink.name}


def _java_fault() -> str | None:
    """Ask the Spark jobs for their Java, as a process of its own: nothing of the service imports them."""
    asked = subprocess.run([sys.executable, "-c", FIND_JAVA], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else (asked.stderr.strip().splitlines() or ["it does not start"])[-1]


def _disk(about: str, folder: Path) -> DiskFacts:
    """Look at the disk of a folder, or of the first one above it that is there."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    usage = shutil.disk_usage(there)
    return DiskFacts(about, str(there), usage.total, usage.free)


def _contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Find settings that do not go together."""
    if settings.dead_letter_topic is not None and settings.on_error == "none":
        yield (
            "SUBSETD_DEAD_LETTER_TOPIC",
            "is set, and SUBSETD_ON_ERROR=none sets no record aside: none will come there",
        )
    if settings.feed is not None:
        try:
            require_other_topics(settings.feed, settings)
        except (ConfigError, FeedError) as error:
            yield "SUBSETD_FEED", str(error)
    if settings.schema_registry is not None and find_spec("fastavro") is None:
        yield "SUBSETD_SCHEMA_REGISTRY", "is set, and fastavro is not there: pip install 'fastavro>=1.12'"
    if settings.sketch_error is not None and settings.sketches == "off":
        yield "SUBSETD_SKETCH_ERROR", "is set, and SUBSETD_SKETCHES=off makes none"
    if settings.ready_lag_seconds * 1000 <= settings.batch_wait_ms:
        yield (
            "SUBSETD_READY_LAG_SECONDS",
            "is no longer than SUBSETD_BATCH_WAIT_MS: /readyz says no between two batches",
        )
    for name in ("audit_schedule", "foreign_key_schedule"):
        try:
            if (schedule := getattr(settings, name)) is not None:
                next_time(schedule, datetime.now(UTC))
        except SourceError as error:
            yield f"SUBSETD_{name.upper()}", str(error)
