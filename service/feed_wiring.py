"""Own the composition of what follows feeds, and of what else changes the state as its writer."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import structlog
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from service import wiring
from service.config import ConfigError, Settings
from service.core.canonical import value_keys
from service.core.cell_decoding import WireSettings
from service.core.errors import ConflictError, FeedError, NotFoundError, SourceError, StateError
from service.core.model import Table, slot_feed
from service.observe import ConsumerObserver
from service.store import dead_letters, feeds, shard_dealing
from service.store.database import connect
from service.store.demo_source import DemoSource, demo_source
from service.store.feed_start import FeedStart
from service.store.generation import find_source
from service.store.masking import mask
from service.store.migrate import found_revision, require_current
from service.store.outbox import PostgresOutbox
from service.store.preflight_facts import read_source_facts, read_state_facts
from service.store.schema_changes import COMMAND_NAME, rename
from service.store.shard_servers import read_map
from service.store.shown_values import read_shown
from service.store.sketch_compaction import PostgresSketchLog
from service.store.source_reader import SourceSnapshot
from service.store.writer import PostgresWriter
from service.store.writer_lock import releasing_locks, take_bootstrap_lock, take_writer_lock
from service.stream.addresses import open_feed
from service.stream.connect_rest import read_connectors
from service.stream.envelope import Decoder
from service.stream.pgoutput import PgoutputDecoder
from service.stream.postgres_address import SourceAway, parse_address, source_of
from service.stream.postgres_catalog import Root
from service.stream.postgres_slot import drop, how_to_drop, new_slot, require_published
from service.stream.schema_registry import HttpSchemaRegistry
from service.usecases import ports, said_before, schema_changes, track_keys
from service.usecases.batches import BatchLimits, ErrorPolicy, Totals
from service.usecases.compact_sketches import SketchCompactor
from service.usecases.follow_feed import Consumer
from service.usecases.preflight import check
from service.usecases.preflight_facts import Facts, Finding, Level, StateFacts
from service.usecases.retry_dead_letters import DeadLetter, DeadLetterFeed, Tried, tried
from service.usecases.send_transitions import TransitionSender
from service.usecases.transactions import WaitLimits
from service.usecases.warm_up import WarmUpPolicy

log = structlog.get_logger("subsetd")


def settle_process() -> None:
    """Set the interpreter up beside a busy consumer: what is loaded stays, answers get through between its turns."""
    gc.collect()
    gc.freeze()
    # Old objects are looked at when a quarter has come to those of the last look: of none now, not of all that is kept.
    gc.collect()
    sys.setswitchinterval(0.001)


def tune_process() -> None:
    """Set the interpreter up for a consumer: a batch makes a hundred thousand small objects and no cycles.

    With the default thresholds the garbage collector takes more than half of the time that a batch is applied in. With
    much higher ones than these a cycle that a library leaves behind now and then would stay with all that it holds.
    """
    settle_process()
    gc.set_threshold(20_000, 10, 10)


def decoding(settings: Settings, feed: str = "") -> Callable[[Sequence[Table]], ports.Decoder]:
    """Give what makes the decoder of tables' changes in a feed, given by its name or address.

    Raises FeedError for a schema registry that cannot be used.
    """
    source = source_of(feed)
    if source is not None:
        return lambda tables: PgoutputDecoder(tables, source, settings.unknown_tables)
    registry = None if settings.schema_registry is None else HttpSchemaRegistry(settings.schema_registry)
    wire = WireSettings(settings.decimal_handling, settings.binary_handling, settings.time_precision)
    Decoder((), wire, registry)  # what is missing for Avro is told before anything else is opened
    return lambda tables: Decoder(_of_sources(tables, settings), wire, registry, settings.unknown_tables)


def _of_sources(tables: Sequence[Table], settings: Settings) -> Sequence[Table]:
    """Keep the tables of the sources that the feed is of; raise FeedError for a source that has none."""
    wanted = wanted_sources(settings)
    for name in sorted(wanted or ()):
        if all(table.source != name for table in tables):
            known = ", ".join(sorted({table.source for table in tables}))
            raise FeedError(
                f"The state has no table of a source {name!r} (--source, SUBSETD_FEED_SOURCES); it has {known}."
            )
    return [table for table in tables if wanted is None or table.source in wanted]


def wanted_sources(settings: Settings) -> frozenset[str] | None:
    """Name the sources that the feed is of; None for all."""
    return None if settings.feed_sources is None else frozenset(map(str.strip, settings.feed_sources.split(",")))


def require_feed(feed: str) -> None:
    """Raise FeedError for an address that is none, before anything else is opened."""
    open_feed(feed).close()


def lag_unit(feed: str) -> ports.LagUnit:
    """Give what the lag of an address's feed is counted in."""
    return open_feed(feed).lag_unit


def make_consumer(url: str, feed: str, settings: Settings, observer: ConsumerObserver) -> Consumer:
    """Make the consumer of a feed's address.

    Raises FeedError for one that is none, and ConfigError as `require_other_topics` does.
    """
    require_feed(feed)
    require_other_topics(feed, settings)
    seen_roots: dict[int, Root] = {}  # after a change of columns another feed goes on
    return Consumer(
        PostgresWriter(url),
        lambda: open_feed(
            feed,
            start_timeout=settings.feed_start_seconds,
            retry_seconds=settings.database_retry_seconds,
            slot_warning_bytes=settings.slot_warning_mb << 20,
            transaction_records=settings.transaction_records,
            transaction_wait_seconds=settings.transaction_wait_seconds,
            tell_held_back=observer.slot_holds_back,
            seen_roots=seen_roots,
        ),
        decoding(settings, feed),
        value_keys,
        observer,
        limits=BatchLimits(settings.batch_records, settings.batch_bytes, settings.batch_wait_ms / 1000),
        on_error=ErrorPolicy(settings.on_error),
        cache_bytes=settings.cache_bytes,
        warm_up=WarmUpPolicy(settings.warm_up),
        retry_seconds=settings.database_retry_seconds,
        dead_letter_sink=None if settings.dead_letter_topic is None else _dead_letter_topic(settings.dead_letter_topic),
        wait_limits=WaitLimits(settings.transaction_records, settings.transaction_wait_seconds),
    )


def require_other_topics(feed: str, settings: Settings) -> None:
    """Raise ConfigError where what is written for others would be read as changes: its topic is one of the feed's."""
    from service.stream.kafka_address import may_be_one_cluster, names_topic, parse_topic

    for name in ("dead_letter_topic", "transitions_topic"):
        address = getattr(settings, name)
        if address is None:
            continue
        servers, topic = parse_topic(address)
        if names_topic(feed, topic) and may_be_one_cluster(",".join(servers), feed):
            raise ConfigError(
                f"SUBSETD_{name.upper()}: {topic!r} is a topic of the feed {feed}, which would read what "
                f"is written there: give one with another name, or another beginning than its prefix"
            )


@contextmanager
def running_consumer(consumer: Consumer) -> Iterator[threading.Event]:
    """Run a consumer on a thread; gives an event that is set when it fails, and raises its error at the end."""
    failed = threading.Event()
    errors: list[BaseException] = []

    def body(stop: threading.Event) -> None:
        try:
            consumer.run(stop)
        except BaseException as error:  # told to the caller below
            errors.append(error)
            failed.set()

    with beside(body, "subsetd-consumer"):
        yield failed
    if errors:
        raise errors[0]


@contextmanager
def sending_transitions(url: str, settings: Settings, observer: ConsumerObserver) -> Iterator[None]:
    """Send transitions to the topic of the settings, if there is one, on a thread beside the consumer.

    `observer` hears of what fails, and when it goes again. At the end what is left is sent, once. Raises FeedError for
    an address that names no topic.
    """
    if settings.transitions_topic is None:
        yield
        return
    from service.stream.kafka_transitions import TransitionTopic

    with (
        closing(TransitionTopic(settings.transitions_topic)) as sink,
        wiring.reading_engine(url) as engine,
        closing(PostgresOutbox(engine)) as outbox,
    ):
        sender = TransitionSender(wiring.make_reader(engine), outbox, sink, observer.transitions_told)
        with beside(sender.run, "subsetd-transitions"):
            yield


@contextmanager
def compacting_sketches(url: str) -> Iterator[None]:
    """Keep the log of the sketches short, on a thread beside the consumer."""
    with closing(PostgresSketchLog(url)) as sketches:
        compactor = SketchCompactor(sketches, lambda fault: log.warning("sketches not as they should be", error=fault))
        with beside(compactor.run, "subsetd-sketches"):
            yield


@contextmanager
def beside(run: Callable[[threading.Event], object], name: str) -> Iterator[None]:
    """Run something on a thread of this name, until the end."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,), name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def retry_dead_letters(
    url: str, settings: Settings, ids: Sequence[int] | None, asking: Callable[[str], None]
) -> list[Totals]:
    """Try dead letters again, these or all, feed by feed; a running consumer hands the state over meanwhile."""
    with wiring.reading_engine(url) as engine:
        consumers = [
            Consumer(
                PostgresWriter(url, "subsetd dead-letters retry", asking),
                # Read when the state is this consumer's: nobody else tries them then.
                partial(_open_dead_letters, engine, ids, feed),
                decoding(settings, feed),
                value_keys,
                ConsumerObserver(CollectorRegistry()),
                limits=BatchLimits(settings.batch_records, settings.batch_bytes, 0),
                on_error=ErrorPolicy.SET_ASIDE,
                cache_bytes=settings.cache_bytes,
                warm_up=WarmUpPolicy.OFF,
                retry_seconds=settings.database_retry_seconds,
            )
            for feed in dead_letters.feeds_of(engine, ids)
        ]
        return [consumer.run(threading.Event(), until_end=True) for consumer in consumers]


def retry_dead_letter(url: str, settings: Settings, dead_letter_id: int) -> Tried:
    """Try a dead letter again; raise NotFoundError when there is none of this id, ConflictError if it goes now."""
    runs = retry_dead_letters(url, settings, [dead_letter_id], lambda _: None)
    if not runs or not runs[0].records:
        raise ConflictError(f"Somebody else has tried dead letter {dead_letter_id} meanwhile: look again.")
    return tried(dead_letter_id, runs[0])


def _open_dead_letters(engine: Engine, ids: Sequence[int] | None, feed: str) -> DeadLetterFeed:
    return DeadLetterFeed(feed, lambda after: dead_letters.read(engine, ids, feed, after, dead_letters.PORTION))


def read_dead_letters(engine: Engine, ids: Sequence[int]) -> list[DeadLetter]:
    """Read dead letters whole."""
    return dead_letters.read(engine, ids)


def drop_dead_letters(engine: Engine, ids: Sequence[int]) -> None:
    """Delete dead letters."""
    dead_letters.drop(engine, ids)


def is_followed(url: str, source: str, name: str) -> bool:
    """Tell whether the state follows a Postgres source; raise FeedError when its publication lacks a table of it."""
    address = parse_address(source, name)
    with wiring.reading_engine(url) as engine:
        if not feeds.is_followed(engine, slot_feed(name)):
            return False
        require_published(address, feeds.tables_of(engine, name))
        return True


def excluded_before(url: str, name: str) -> list[str]:
    """Give the tables that were left out when a source was read."""
    with connect(url, COMMAND_NAME) as connection:
        found = find_source(connection, name)
    return [] if found is None else list(found[0].get("exclude", ()))


def require_said(url: str, name: str, exclude: Sequence[str], store_values: str | None, masks: Sequence[str]) -> None:
    """Raise SourceError where more is kept of a source than is said of it now."""
    with wiring.reading_engine(url) as engine, connect(url, COMMAND_NAME) as connection:
        tables, shown = feeds.tables_of(engine, name), read_shown(connection, name)
    said_before.require_said(name, tables, *shown, exclude, store_values, masks)


def source_url(source: str, name: str) -> str:
    """Give the address of a Postgres source alone, with its password."""
    return parse_address(source, name).url


def feed_address(source: str, name: str) -> str:
    """Give the address of a Postgres source's feed, with its password."""
    address = parse_address(source, name)
    return f"{address.url}{'&' if '?' in address.url else '?'}name={quote(name, safe='')}"


@contextmanager
def new_postgres_feed(url: str, source: str, name: str, exclude: Sequence[str], replace: bool) -> Iterator[list[str]]:
    """Make a Postgres source's publication and slot, and give what the bootstrap in its snapshot is to be told.

    When what is inside fails, both are dropped again, unless the state begins there: what failed was behind that.
    """
    address = parse_address(source, name)
    with closing(SourceSnapshot(address.url)) as snapshot:
        tables = [(table.schema, table.name) for table in snapshot.chosen(snapshot.tables(), exclude)]
    failed: BaseException | None = None
    with new_slot(address, tables, replace=replace) as start:
        begin = FeedStart(start.feed, start.topic, start.position.source_position)
        told = [f"--snapshot={start.snapshot}", f"--feed-start={begin}", "--published"]
        try:
            yield [*told, *(f"--only-table={schema}.{table}" for schema, table in tables)]
        except BaseException as error:
            if not _has_begun(url, begin):
                raise
            failed = error
    if failed is not None:
        raise failed


def _has_begun(url: str, start: FeedStart) -> bool:
    """Tell whether the state follows a feed from this start on; a state that cannot be asked may."""
    try:
        with wiring.reading_engine(url) as engine:
            return feeds.begins_at(engine, start)
    except StateError:
        return True


def unfollow(url: str, name: str, source: str | None) -> bool:
    """Drop slot and publication of a followed source, and forget its feed; tell whether there was one of them.

    Raises FeedError when the source cannot be reached, and says how to drop them there.
    """
    feed = slot_feed(name)
    with wiring.reading_engine(url) as engine:
        known = source or feeds.address_of(engine, feed, name)
        if known is None:
            raise NotFoundError(f"No source {name!r} is followed; `subsetd status` lists the feeds that are.")
        address = parse_address(known, name)
        try:
            was_there = drop(address)
        except SourceAway as error:
            raise FeedError(
                f"{error} Its slot holds back log until it is dropped there: {how_to_drop(address)}"
            ) from error
        feeds.forget(engine, feed)
    return was_there


def forget_feed(url: str, name: str) -> str:
    """Forget where a feed stands, by its name or that of its source, without asking it; give its name.

    Raises NotFoundError where there is none, StateError while a consumer is at work.
    """
    with (
        connect(url, COMMAND_NAME) as connection,
        wiring.reading_engine(url) as engine,
        releasing_locks(connection),
    ):
        take_writer_lock(connection)
        found = next((feed for feed in (name, slot_feed(name)) if feeds.is_known(engine, feed)), None)
        if found is None:
            raise NotFoundError(f"There is no feed {name!r}; `subsetd status` lists those there are.")
        feeds.forget(engine, found)
    return found


@contextmanager
def demonstration(settings: Settings, schema: str, folder: Path) -> Iterator[DemoSource]:
    """Run the database that the demonstration follows, with the tables of a folder of CSV files."""
    with demo_source(settings.data_dir, schema, folder) as source:
        yield source


def feed_name(address: str, settings: Settings) -> str:
    """Give the name under which the state knows the feed of an address; of Kafka a broker is asked for it."""
    feed = open_feed(address, start_timeout=settings.feed_start_seconds)
    try:
        return feed.name
    finally:
        feed.close()


def set_paused(url: str, feed: str | None, paused: bool) -> list[str]:
    """Pause or resume a feed, or all; give the names of those that it concerns."""
    if feed is not None:
        with suppress(FeedError), closing(open_feed(feed)) as named:  # any other name is one of a feed
            source = source_of(feed)  # which may be away, and is not asked
            feed = slot_feed(source) if source is not None else named.describe().address
    with wiring.reading_engine(url) as engine:
        return feeds.set_paused(engine, feed, paused)


def _state_as_it_is(settings: Settings) -> StateFacts:
    """Read what there is of a state, and make or migrate none; raise StateError for one of another revision."""
    none_yet = StateFacts(0, [], [], {})
    if not wiring.is_there(settings):
        return none_yet
    with wiring.database_as_it_is(settings) as url, wiring.reading_engine(url) as engine:
        if found_revision(url) is None:
            return none_yet
        require_current(url)
        return read_state_facts(engine)


def preflight(settings: Settings, source: str | None, feed: str | None, connect: str | None) -> list[Finding]:
    """Look at the state, and at what is named beside it; what cannot be looked at is a finding as well."""
    found: list[Finding] = []
    has_registry = settings.schema_registry is not None
    facts = Facts(feed=feed, has_registry=has_registry, binary_handling=settings.binary_handling)
    try:
        facts = replace(facts, state=_state_as_it_is(settings))
    except StateError as error:
        found.append(Finding(Level.FAIL, "state", str(error)))
    try:
        if source is not None:
            facts = replace(facts, source=read_source_facts(source))
    except SourceError as error:
        found.append(Finding(Level.FAIL, "source", str(error)))
    try:
        if connect is not None:
            facts = replace(facts, connectors=read_connectors(connect))
    except FeedError as error:
        found.append(Finding(Level.FAIL, "Kafka Connect", str(error)))
    try:
        if feed is not None and feed.startswith("kafka://"):
            from service.stream.topic_facts import read_topics

            name, topics = read_topics(feed, settings.feed_start_seconds)
            facts = replace(facts, feed=name, topics=topics)
        elif feed is not None:
            open_feed(feed).close()
    except FeedError as error:
        found.append(Finding(Level.FAIL, "feed", str(error)))
    return found + check(facts)


def drop_attributes(
    url: str, name: str, force: bool, telling: Callable[[str], None]
) -> tuple[int, Sequence[schema_changes.KnownColumn]]:
    """Take an attribute or a table out of the state; `telling` hears when a consumer is waited for."""
    return schema_changes.drop(PostgresWriter(url, COMMAND_NAME, telling), name, force=force)


def drop_key(url: str, schema: str, table: str, columns: Sequence[str], telling: Callable[[str], None]) -> int:
    """Track a key no longer; return the version."""
    with connect(url, COMMAND_NAME) as connection, releasing_locks(connection):
        take_bootstrap_lock(connection)  # one that has begun would put the key in place again
        return track_keys.drop(PostgresWriter(url, COMMAND_NAME, telling), schema, table, columns)


def rename_attribute(url: str, old: str, new: str, telling: Callable[[str], None]) -> str:
    """Rename an attribute or a table of the state, and say what was done."""
    return rename(url, old, new, telling)


def read_shards(url: str) -> list[shard_dealing.ShardInfo]:
    """Say how the shards stand; the whole as one, where the state is in no more."""
    return shard_dealing.read_shards(url)


def set_shards(url: str, of: int, servers: Path | None, telling: Callable[[str], None]) -> int:
    """Deal the state out to so many shards, on the servers of a map, and return the version; `telling` hears of it."""
    return shard_dealing.set_shards(url, of, telling, () if servers is None else read_map(servers, of))


def mask_attribute(url: str, name: str, keep: str, telling: Callable[[str], None]) -> str:
    """Keep less of a column's values, and say what was done."""
    return mask(url, name, keep, telling)


def _dead_letter_topic(address: str) -> ports.DeadLetterSink:
    from service.stream.kafka_dead_letters import DeadLetterTopic

    return DeadLetterTopic(address)
