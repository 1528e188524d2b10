"""Own the crash at every step: runs that end at one of their steps, and what the state holds when they have gone on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress

from service.core.canonical import value_keys
from service.core.histogram_changes import switches_from_bytes
from service.core.model import Table
from service.store import dead_letters
from service.store.database import make_engine
from service.store.outbox import PostgresOutbox
from service.store.reader import PostgresStateReader
from service.stream.envelope import Decoder
from service.usecases import ports
from service.usecases.batches import BatchLimits, ErrorPolicy
from service.usecases.follow_feed import Consumer
from service.usecases.ports import DeadLetterSink, Feed, TransitionSink
from service.usecases.retry_dead_letters import DeadLetterFeed
from service.usecases.send_transitions import TransitionSender
from tests import states
from tests.endurance.counting import CountedWriter, Crash, Point, Steps, count_statements
from tests.endurance.following import broken_invariants
from tests.following import Watch
from tests.waiting import wait_for

Run = Callable[[str, Steps], None]
"""Do all that is to be done with a state, taking steps; it may be done over and over."""

Copy = Callable[[], AbstractContextManager[str]]
"""Give a copy of the state that a run begins with."""


def follow(
    url: str,
    steps: Steps,
    open_feed: Callable[[], Feed],
    sink: DeadLetterSink | None = None,
    make_decoder: Callable[[Sequence[Table]], ports.Decoder] = Decoder,
) -> None:
    """Follow a feed to its end."""
    consumer = Consumer(
        CountedWriter(url, steps),
        open_feed,
        make_decoder,
        value_keys,
        Watch(),
        limits=BatchLimits(records=12),
        on_error=ErrorPolicy.SET_ASIDE,
        cache_bytes=0,
        retry_seconds=0.0,
        dead_letter_sink=sink,
    )
    consumer.run(threading.Event(), until_end=True)


def retry(url: str, steps: Steps, value: bytes) -> None:
    """Try a dead letter again, if it is still there."""
    engine = make_engine(url, "test")
    try:
        letters = [letter for letter in dead_letters.read(engine) if letter.record.value == value]
    finally:
        engine.dispose()
    if letters:
        follow(url, steps, lambda: DeadLetterFeed(letters[0].feed, lambda after: [] if after else letters))


def send(url: str, steps: Steps, sink: TransitionSink) -> None:
    """Send the transitions that were not sent yet."""
    engine = make_engine(url, "test")
    count_statements(engine, steps, "sender: ")
    with closing(PostgresOutbox(engine)) as outbox:
        TransitionSender(PostgresStateReader(engine), outbox, sink, lambda _: None).send_new()
    engine.dispose()


def crash_at(point: Point, url: str, run: Run) -> None:
    """Let a run end at a point, which it must come to, and then run to the end."""
    steps = Steps(point)
    with suppress(Crash):
        complete(run, url, steps)
    assert steps.has_crashed, f"the run did not come to this point: {point}"
    complete(run, url, Steps())


def complete(run: Run, url: str, steps: Steps) -> None:
    """Let a run come to its end, and wait until its sessions are gone."""
    try:
        run(url, steps)
    finally:
        steps.close()
        others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        wait_for(lambda: not states.query(url, f"{others} and backend_type = 'client backend'"))


def found(url: str) -> dict[str, object]:
    """Give everything of a state that must not depend on crashes; versions and cluster ids may."""
    tables = {
        "positions": "select feed, topic, partition, next_offset from feed_position order by 1, 2, 3",
        "dead letters": "select topic, partition, record_offset, message from dead_letter order by 1, 2, 3",
        "rows": "select table_id, row_key, cells from row_image order by 1, 2",
        "stale": "select column_name from attribute where stale_version is not null order by 1",
        "contracts": "select contract_id, violated_since is not null, array(select array[kind, witness_value] "
        "from contract_transition t where t.contract_id = c.contract_id order by version) from contract c order by 1",
        "counts": "select sum(records), sum(inserted), sum(updated), sum(deleted), sum(skipped), sum(dead) "
        "from state_version",
    }
    found = {name: states.query(url, query) for name, query in tables.items()}
    rows = states.query(url, "select table_id, row_keys from join_change")
    changed = {(table_id, keys[at : at + 16]) for table_id, keys in rows for at in range(0, len(keys), 16)}
    return {"state": states.read(url), "logged": _logged(url), "rows to index": changed, **found}


def _logged(url: str) -> tuple[object, ...]:
    """Give what is logged of followed attributes since they were, netted: of the batches that it came in nothing."""
    since = dict(states.query(url, "select attribute_id, since_version from followed_attribute"))
    netted: Counter[tuple[int, str]] = Counter()
    for version, changes in states.query(url, "select version, changes from value_change"):
        for attribute_id, (came, gone) in switches_from_bytes(bytes(changes)).items():
            if version > since[attribute_id]:
                netted.update((attribute_id, value) for value in came)
                netted.subtract((attribute_id, value) for value in gone)
    kept = states.query(url, "select key_id from key_histogram order by key_id")
    return sorted(since), {one: count for one, count in netted.items() if count}, kept


def crash_at_each(
    points: Iterable[Point], copy: Copy, run: Run
) -> Iterator[tuple[Point, dict[str, object], list[str]]]:
    """Let a run crash at each point in turn, on a copy of the state of its own, and then run to the end.

    Gives each point, what the state then holds, and which invariants do not hold.
    """
    for point in points:
        with copy() as url:
            crash_at(point, url, run)
            yield point, found(url), broken_invariants(url)
