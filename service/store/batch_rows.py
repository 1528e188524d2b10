"""Own what a batch writes beside its generator records: version, clusters, counters, transitions, positions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from psycopg2.extras import execute_values

from service.core.canonical import stored_value
from service.core.model import Cause, TransitionKind
from service.usecases.live_state import BatchCommit, StateDelta

COUNTERS = """
update attribute set row_count = new.row_count, null_count = new.null_count, distinct_count = new.distinct_count,
    repeated_count = new.repeated_count
from unnest(%s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    as new (attribute_id, row_count, null_count, distinct_count, repeated_count)
where attribute.attribute_id = new.attribute_id
"""


def write_version(cursor: Any, commit: BatchCommit) -> None:
    """Write the version of a batch."""
    counts = commit.counts
    cursor.execute(
        "insert into state_version (version, generation, kind, feed, records, inserted, updated, deleted, skipped, "
        "dead, newest_source_ms, transaction_consistent) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, "
        # What was set aside is missing until it is applied or dropped.
        "%s and not exists (select from dead_letter where feed = %s))",
        (
            commit.version,
            commit.generation,
            "schema" if commit.dropped_attributes or commit.new_tuples else "batch",
            commit.feed,
            counts.records,
            counts.inserted,
            counts.updated,
            counts.deleted,
            counts.skipped,
            counts.dead,
            commit.newest_source_ms,
            commit.transaction_consistent,
            commit.feed if commit.transaction_consistent else None,
        ),
    )


def write_counters(cursor: Any, delta: StateDelta) -> None:
    """Write the counters of attributes that changed."""
    if delta.counters:
        rows = [(a, c.row_count, c.null_count, c.distinct_count, c.repeated_count) for a, c in delta.counters.items()]
        cursor.execute(COUNTERS, [list(column) for column in zip(*rows, strict=True)])


def write_transitions(cursor: Any, commit: BatchCommit) -> None:
    """Write which dependencies appeared and which broke, and their intervals."""
    transitions = commit.delta.transitions
    if not transitions:
        return
    # What is no batch of a feed has no causes.
    causes: Sequence[Cause | None] = commit.causes or [None] * len(transitions)
    execute_values(
        cursor,
        "insert into ind_transition (version, dependent_id, referenced_id, kind, witness_key, witness_value, "
        "cause_count, position, changed_row) values %s",
        [
            (
                commit.version,
                t.dependent_id,
                t.referenced_id,
                t.kind.value,
                None if t.witness is None else t.witness.hex(),
                None if t.witness is None else shown_witness(commit.delta, t.dependent_id, t.witness),
                t.cause_count,
                *json_of_cause(cause),
            )
            for t, cause in zip(transitions, causes, strict=True)
        ],
        template="(%s, %s, %s, %s, %s::uuid, %s, %s, %s::jsonb, %s::jsonb)",
        page_size=1000,
    )
    appeared = [t for t in transitions if t.kind is TransitionKind.APPEARED]
    if appeared:
        execute_values(
            cursor,
            "insert into uind (dependent_id, referenced_id, since_version) values %s",
            [(t.dependent_id, t.referenced_id, commit.version) for t in appeared],
            page_size=1000,
        )
    broke = [t for t in transitions if t.kind is TransitionKind.BROKE]
    if broke:
        execute_values(
            cursor,
            f"update uind set until_version = {commit.version} from (values %s) as gone (dependent_id, referenced_id) "
            "where uind.dependent_id = gone.dependent_id and uind.referenced_id = gone.referenced_id "
            "and until_version is null",
            [(t.dependent_id, t.referenced_id) for t in broke],
            page_size=1000,
        )


def json_of_cause(cause: Cause | None) -> tuple[str | None, str | None]:
    """Give a cause's position and row as JSON."""
    if cause is None:
        return None, None
    return json.dumps(cause.position._asdict()), None if cause.row is None else json.dumps(cause.row)


def shown_witness(delta: StateDelta, dependent_id: int, witness: bytes) -> str | None:
    """Give what may be shown of a value that made or broke an inclusion of an attribute."""
    text = delta.shown.text(dependent_id, delta.witnesses[witness])
    return None if text is None else stored_value(text)


def write_positions(cursor: Any, commit: BatchCommit) -> None:
    """Write where the feed stands behind the batch, and that the batch led there."""
    if not commit.positions:
        return
    moved = [(topic, partition, first, after) for (topic, partition), (first, after) in commit.positions.items()]
    execute_values(
        cursor,
        "insert into batch_position (version, feed, topic, partition, first_offset, next_offset) values %s",
        [(commit.version, commit.feed, *place) for place in moved],
    )
    execute_values(
        cursor,
        "insert into feed_position (feed, topic, partition, next_offset, source_position, version, topic_id) values %s "
        "on conflict (feed, topic, partition) do update set next_offset = excluded.next_offset, "
        "source_position = case excluded.source_position when '{}' then feed_position.source_position "
        "else excluded.source_position end, version = excluded.version, topic_id = excluded.topic_id",
        [
            (
                commit.feed,
                topic,
                partition,
                after,
                json.dumps(commit.source_positions.get((topic, partition), {}), default=str),
                commit.version,
                commit.topic_ids.get(topic),
            )
            for topic, partition, _, after in moved
        ],
    )
