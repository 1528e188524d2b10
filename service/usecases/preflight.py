"""Own what would go wrong with a feed, told before it does: pure rules over facts that others gather."""

from __future__ import annotations

from collections.abc import Iterator

from service.core.model import told_anew
from service.usecases.preflight_connector import check_connector
from service.usecases.preflight_facts import Facts, Finding, FollowedTable, Level, StateFacts, TopicFacts
from service.usecases.preflight_source import check_slots, check_source, check_tables

DAY_MS = 24 * 60 * 60 * 1000


def check(facts: Facts) -> list[Finding]:
    """Find what is wrong, and what is well, in the order: state, source, connectors, topics."""
    found: list[Finding] = []
    if facts.state is not None:
        # Who is about to read a database and follow it has none yet; whoever follows topics needs what they go on from.
        begins = facts.source is not None and facts.topics is None and facts.connectors is None
        found += _state(facts.state, Level.WARN if begins else Level.FAIL)
    if facts.source is not None:
        found += check_source(facts.source)
        found += check_tables(facts.source, facts.state)
        found += check_slots(facts.source, facts)
    for connector in facts.connectors or ():
        found += check_connector(connector, facts)
    if facts.connectors is not None and not facts.connectors:
        found.append(Finding(Level.FAIL, "Kafka Connect", "has no Debezium connector", "POST one to /connectors"))
    for topic in facts.topics or ():
        found += _topic(topic, facts)
    return found


def _state(state: StateFacts, of_none: Level) -> Iterator[Finding]:
    if not state.sources:
        yield Finding(
            of_none,
            "state",
            "no source was bootstrapped yet",
            "subsetd bootstrap SOURCE --name NAME, or subsetd follow",
        )
        return
    yield Finding(Level.OK, "state", f"version {state.version}, {len(state.tables)} tables are followed")
    if state.dead_letters:
        yield Finding(
            Level.WARN,
            "state",
            f"{state.dead_letters} records are set aside",
            "subsetd dead-letters says why; then subsetd dead-letters retry --all, or drop ID",
        )
    for name in state.stale:
        yield Finding(
            Level.WARN,
            name,
            "is stale: it is not kept current",
            f"subsetd attribute drop {name}, or bootstrap --replace",
        )


def _topic(topic: TopicFacts, facts: Facts) -> Iterator[Finding]:
    about = f"topic {topic.name}"
    if topic.partitions == 0:
        yield Finding(Level.FAIL, about, "is not there", "create it, or start the connector that does")
        return
    alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} --add-config"
    tables = _tables_of(topic, facts.state)
    if "compact" in topic.cleanup and (tables or facts.state is None):
        yield _compaction(topic, all(table.row_images for table in tables), alter)
    if "delete" in topic.cleanup:
        yield _retention(topic, alter)
    if topic.partitions > 1:
        if topic.is_keyed is False:
            yield Finding(
                Level.FAIL,
                about,
                "has records without a key: the changes of one row are in no order",
                "give the table a primary key or message.key.columns, or the topic one partition",
            )
        yield Finding(
            Level.WARN,
            about,
            f"has {topic.partitions} partitions: a TRUNCATE is in one of them, in no order with the others' changes",
            "one partition for tables that are emptied by TRUNCATE",
        )
    for partition, first in topic.begins.items():
        at = None if facts.state is None else facts.state.positions.get((facts.feed or "", topic.name, partition))
        if at is not None and at < first:
            yield Finding(
                Level.FAIL,
                about,
                f"partition {partition}: the state stands at {at}, and what is there begins at {first}",
                told_anew(facts.feed or ""),
            )


def _compaction(topic: TopicFacts, has_row_images: bool, alter: str) -> Finding:
    about, lag = f"topic {topic.name}", topic.compaction_lag_ms
    if not has_row_images:
        return Finding(
            Level.FAIL,
            about,
            "is compacted: changes between the first and the last of a row vanish",
            f"{alter} cleanup.policy=delete; or bootstrap with --row-images always",
        )
    if lag < DAY_MS:
        when = f"after {lag // 60_000} minutes" if lag else "at once"
        return Finding(
            Level.WARN,
            about,
            f"is compacted {when}: a consumer that is away for longer misses deletes, and cells that a later change of "
            f"the row did not send",
            f"{alter} min.compaction.lag.ms={7 * DAY_MS}",
        )
    return Finding(Level.OK, about, f"is compacted after {lag / DAY_MS:.0f} days")


def _retention(topic: TopicFacts, alter: str) -> Finding:
    about, retention = f"topic {topic.name}", topic.retention_ms
    if 0 <= retention < DAY_MS:
        return Finding(
            Level.WARN,
            about,
            f"keeps records for {retention // 60_000} minutes: a consumer that is away for longer loses some",
            f"{alter} retention.ms={7 * DAY_MS}",
        )
    kept = "without a bound" if retention < 0 else f"for {retention / DAY_MS:.0f} days"
    return Finding(Level.OK, about, f"{topic.partitions} partitions, records are kept {kept}")


def _tables_of(topic: TopicFacts, state: StateFacts | None) -> list[FollowedTable]:
    """Find the tables whose changes a topic has by its name's last two parts."""
    parts = tuple(topic.name.rsplit(".", 2)[-2:])
    return [] if state is None else [t for t in state.tables if (t.schema, t.name) == parts]
