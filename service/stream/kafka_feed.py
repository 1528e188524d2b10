"""Own the feed from Kafka: all partitions of some topics, read from the positions that the state gives."""

from __future__ import annotations

import difflib
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from service.core.errors import FeedError
from service.core.model import FeedDescription, RawRecord, StoredPosition, told_anew
from service.stream.kafka_clients import REQUEST_SECONDS, connect

SILENT_CHECK_SECONDS = 1.0
BUSY_CHECK_SECONDS = 10.0
HINT_SECONDS = 1.0

log = structlog.get_logger(__name__)


class RemadeTopicError(FeedError):
    """A topic is not the one that was followed, though its name is the same."""


class KafkaFeed:
    """Follow all partitions of the named topics, and of those whose names begin with `prefix`.

    Partitions are assigned by hand: the state's lock sees to it that there is one reader. Where to read is told by
    the state alone; the offsets of `group_id` are written for lag tools and never read. Only committed records of
    the broker's transactions are read. A partition without a stored position is read from its earliest record, and
    so is a partition that appears later.

    While the broker is away `poll` returns nothing and `disconnected` is True; reading goes on by itself.

    Among the stored positions the feed is known by the id of the brokers' cluster, whatever address it has today, and
    a topic by the id that the cluster gave it, so that one that was deleted and made anew is told from the old one.
    """

    lag_unit: Final = "records"

    def __init__(
        self,
        servers: Sequence[str],
        topics: Sequence[str],
        *,
        prefix: str | None = None,
        start_timeout: float = 10.0,
        group_id: str | None = "subsetd",
        client_options: Mapping[str, object] | None = None,
    ) -> None:
        self.servers = list(servers)
        self.topics = list(topics)
        self.prefix = prefix
        self.start_timeout = start_timeout
        self.group_id = group_id
        self.address = "kafka://" + ",".join(servers)
        self.disconnected = False
        self._client_options = dict(client_options or {})
        self._consumer: KafkaConsumer | None = None
        self._admin: KafkaAdminClient | None = None
        self._cluster_id: str | None = None
        self._topic_ids: dict[str, str] = {}
        self._pending: deque[RawRecord] = deque()
        self._stored: dict[tuple[str, int], int] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._end_at_start: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._next_check = 0.0
        self._missing_since: float | None = None
        self._gone: set[str] = set()
        """Topics that begin with `prefix`, were followed, and are not there."""
        self._hints: dict[tuple[str, int], int] = {}
        self._next_hint = 0.0
        self._hint_fault = ""

    @property
    def name(self) -> str:
        """Give `kafka:` and the cluster's id, which is asked for once; raise FeedError if no broker answers."""
        if self._cluster_id is None:
            with self._connected():
                assert self._admin is not None
                self._cluster_id = str(self._admin.describe_cluster()["cluster_id"])
        return f"kafka:{self._cluster_id}"

    def describe(self) -> FeedDescription:
        """Say where the brokers are, their cluster's id, and the ids of the topics."""
        return FeedDescription(self.address, {"cluster_id": self._cluster_id}, dict(self._topic_ids))

    def start(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Connect and stand where `positions` says.

        Raises FeedError within about `start_timeout` seconds if no broker answers, and at once if a topic is
        missing or a stored position is outside of what the broker still has.
        """
        self._topic_ids |= {topic: at.topic_id for (topic, _), at in positions.items() if at.topic_id is not None}
        with self._connected():
            partitions = self._find_partitions()
            if not partitions:
                raise FeedError(f"feed {self.address}: no topic begins with {self.prefix!r}; check the prefix")
            self._stored = {place: at.next_offset for place, at in positions.items()}
            self._assign(partitions)
            self._warn_of_missing(partitions)
        # A hint that could not be written died with the feed before; and a group that was silent for long is forgotten.
        self._hints = {place: at for place, at in self._positions.items() if place in self._stored}

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Sequence[RawRecord]:
        """Return the next records; wait up to `timeout` seconds for the first.

        Ends at `max_records`, or with the record that reaches `max_bytes`. Records of one partition come in order.
        """
        if not self._pending:
            self._fetch(max_records, timeout)
        records: list[RawRecord] = []
        taken = 0
        while self._pending and len(records) < max_records and taken < max_bytes:
            record = self._pending.popleft()
            taken += len(record.value or b"") + len(record.key or b"")
            records.append(record)
        self._note_positions()
        if records:
            self._say_connected()
        now = time.monotonic()
        if now >= self._next_check:
            self._check_cluster()
            silent = not records or self.disconnected
            self._next_check = time.monotonic() + (SILENT_CHECK_SECONDS if silent else BUSY_CHECK_SECONDS)
        elif not records:
            self._next_check = min(self._next_check, now + SILENT_CHECK_SECONDS)
        if not records and self._hints:
            self.committed({})
        return records

    @property
    def gone(self) -> Collection[str]:
        """Name topics that were followed by the prefix, and of which the broker does not tell now; it may again."""
        return self._gone

    def positions(self) -> dict[tuple[str, int], int]:
        """Give the next offset of each partition after the last poll, the broker's own markers passed over."""
        return dict(self._positions)

    def source_positions(
        self, positions: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], Mapping[str, object]]:
        """Say nothing: offsets are all there is to know."""
        return {}

    def extent(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Give where each partition began and ended at the start, for a feed that was started without positions."""
        return {place: (self._positions[place], end) for place, end in self._end_at_start.items()}

    def compacted(self, topics: Collection[str]) -> set[str]:
        """Name those of the topics of which the broker keeps the last record of each key."""
        assert self._admin is not None
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in sorted(topics)]
        try:
            described = self._admin.describe_configs(resources, config_filter="all")["topic"]
        except KafkaError as error:
            raise FeedError(f"feed {self.address} does not tell its topics' settings: {error!r}") from error
        return {topic for topic, settings in described.items() if "compact" in settings["cleanup.policy"]["value"]}

    def at_end(self) -> bool:
        """Tell whether all committed records that were there at the start, and still are, have been polled."""
        ends = ((place, end) for place, end in self._end_at_start.items() if place[0] not in self._gone)
        return all(self._positions[place] >= end for place, end in ends)

    def is_whole(self, positions: Mapping[tuple[str, int], int]) -> bool | None:
        """Say nothing: the transaction topic tells (see usecases/transactions.py)."""
        return None

    def lag(self) -> dict[tuple[str, int], int] | None:
        """Count the offsets behind the last known ends of the partitions; None before the start and without a broker.

        No request is made.
        """
        consumer = self._consumer
        if consumer is None or self.disconnected:
            return None
        ends = {place: consumer.highwater(TopicPartition(*place)) or 0 for place in self._positions}
        return {
            place: 0 if place[0] in self._gone else max(0, max(ends[place], self._ends.get(place, 0)) - position)
            for place, position in self._positions.items()
        }

    def rest(self) -> None:
        """Ask where the partitions end, so that `lag` grows although nothing is read."""
        if self._consumer is None:
            raise FeedError(f"feed {self.address} is not started")
        self._check_cluster()
        if self.disconnected:
            return
        # A client waits for all, and a topic that is gone never tells.
        partitions = [TopicPartition(*place) for place in self._positions if place[0] not in self._gone]
        try:
            ends = self._consumer.end_offsets(partitions, timeout_ms=int(REQUEST_SECONDS * 1000))
        except KafkaError as error:
            log.info("feed retries", feed=self.address, error=repr(error))
            return
        self._ends.update({(p.topic, p.partition): end for p, end in ends.items()})
        if self._hints:
            self.committed({})

    def committed(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Show lag tools what the state has committed, once a second at most; a failure is logged and forgotten."""
        self._hints.update(positions)
        if time.monotonic() >= self._next_hint and not self.disconnected:
            self._write_hints()

    def close(self) -> None:
        """Write the last hint and leave the broker; a second call does nothing."""
        if self._hints and not self.disconnected:
            self._write_hints()
        consumer, admin = self._consumer, self._admin
        self._consumer = self._admin = None
        for client in (consumer, admin):
            if client is None:
                continue
            try:
                client.close()
            except KafkaError as error:
                log.warning("feed not closed", feed=self.address, error=repr(error))

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Make both clients unless they are there; what fails with them is a FeedError, and they are closed again."""
        try:
            if self._consumer is None:
                self._connect()
            yield
        except KafkaError as error:
            self.close()
            raise FeedError(f"feed {self.address} cannot be started: {error!r}") from error
        except FeedError:
            self.close()
            raise

    def _connect(self) -> None:
        self._admin, self._consumer = connect(self.servers, self.start_timeout, self._client_options)

    def _find_partitions(self) -> set[TopicPartition]:
        """Ask the broker for the topics' partitions; raise FeedError naming a topic that is missing."""
        assert self._admin is not None
        topics = self._admin.describe_topics(None if self.prefix else self.topics)
        wanted = [
            topic
            for topic in topics
            if topic["error_code"] == 0
            and (topic["name"] in self.topics or (self.prefix and topic["name"].startswith(self.prefix)))
        ]
        missing = sorted(set(self.topics) - {topic["name"] for topic in wanted})
        if missing:
            known = [name for name in self._admin.list_topics() if not name.startswith("__")]
            near = difflib.get_close_matches(missing[0], known, n=3) or sorted(known)[:5]
            raise FeedError(
                f"feed {self.address} has no topic {', '.join(map(repr, missing))}; "
                f"{'there are: ' + ', '.join(near) if near else 'it has no topics'}; check the name, or create it first"
            )
        self._note_topic_ids({topic["name"]: str(topic["topic_id"]) for topic in wanted})
        return {
            TopicPartition(topic["name"], partition["partition_index"])
            for topic in wanted
            for partition in topic["partitions"]
        }

    def _note_topic_ids(self, found: Mapping[str, str]) -> None:
        """Remember the topics' ids; raise RemadeTopicError for one that is no longer what it was."""
        for topic, topic_id in found.items():
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise RemadeTopicError(
                    f"feed {self.address}, topic {topic!r}: it was deleted and made anew (its id was "
                    f"{self._topic_ids[topic]}, now it is {topic_id}), so the state's position says nothing of it; "
                    f"{told_anew(self.name)}"
                )

    def _warn_of_missing(self, found: Collection[TopicPartition]) -> None:
        """Warn of topics that were followed by the prefix and are not there: what was not read of them may be lost."""
        followed = {topic for topic, _ in {**self._stored, **self._positions} if topic not in self.topics}
        gone = {topic for topic in followed if self.prefix and topic.startswith(self.prefix)}
        gone -= {partition.topic for partition in found}
        if gone - self._gone:
            log.warning("feed topics missing", feed=self.address, topics=sorted(gone))
        self._gone = gone

    def _assign(self, partitions: set[TopicPartition]) -> None:
        """Assign `partitions` and seek those that were not assigned before; raise FeedError for a lost position."""
        assert self._consumer is not None
        first = not self._positions
        new = sorted(p for p in partitions if (p.topic, p.partition) not in self._positions)
        begins = self._consumer.beginning_offsets(new, timeout_ms=int(REQUEST_SECONDS * 1000))
        ends = self._consumer.end_offsets(new, timeout_ms=int(REQUEST_SECONDS * 1000))
        seeks = {}
        for partition in new:
            begin, end = begins[partition], ends[partition]
            position = self._stored.get((partition.topic, partition.partition), begin)
            if not begin <= position <= end:
                self._raise_lost(partition, position, begin, end)
            seeks[partition] = position
        self._consumer.assign(sorted(partitions | set(self._consumer.assignment())))
        for partition, position in seeks.items():
            self._consumer.seek(partition, position)
            self._positions[partition.topic, partition.partition] = position
            self._ends[partition.topic, partition.partition] = ends[partition]
            if first:
                self._end_at_start[partition.topic, partition.partition] = ends[partition]

    def _raise_lost(self, partition: TopicPartition, position: int, begin: int, end: int) -> None:
        place = f"feed {self.address}, topic {partition.topic!r}, partition {partition.partition}"
        if position < begin:
            raise FeedError(
                f"{place}: the state stands at offset {position}, but the broker's log now begins at {begin}: "
                f"{begin - position} offsets were removed before they were read; keep the topic's records "
                f"longer (retention.ms, retention.bytes), and {told_anew(self.name)}"
            )
        raise FeedError(
            f"{place}: the state stands at offset {position}, but the broker's log ends at {end}: the topic was made "
            f"anew or the broker lost records; {told_anew(self.name)}"
        )

    def _fetch(self, max_records: int, timeout: float) -> None:
        """Fill `_pending` with at most `max_records` records."""
        if self._consumer is None:
            raise FeedError(f"feed {self.address} is not started")
        try:
            batches = self._consumer.poll(timeout_ms=int(timeout * 1000), max_records=max_records)
        except OffsetOutOfRangeError as error:
            self._explain_out_of_range(error)
            return
        except KafkaError as error:
            if not error.retriable:
                raise self._ended_by(error) from error
            log.info("feed retries", feed=self.address, error=repr(error))
            return
        for partition, records in batches.items():
            topic, number = partition
            # The client reads by name: what it has learned of the topic since is looked at before its records are used.
            if (topic_id := self._consumer._cluster.topic_id(topic)) is not None:
                self._note_topic_ids({topic: str(topic_id)})
            self._pending.extend(
                RawRecord(
                    topic,
                    number,
                    record.offset,
                    record.key,
                    record.value,
                    max(0, record.timestamp or 0),
                    record.headers,
                )
                for record in records
            )

    def _explain_out_of_range(self, error: OffsetOutOfRangeError) -> None:
        assert self._consumer is not None
        for partition, position in dict(error.args[0]).items():
            try:
                begin = self._consumer.beginning_offsets([partition], timeout_ms=5000)[partition]
                end = self._consumer.end_offsets([partition], timeout_ms=5000)[partition]
            except KafkaError as away:
                raise FeedError(f"feed {self.address}: offset {position} of {partition} is out of range") from away
            if not begin <= position <= end:
                self._raise_lost(partition, position, begin, end)
            self._consumer.seek(partition, position)

    def _ended_by(self, error: KafkaError) -> FeedError:
        if not isinstance(error, LogTruncationError):
            return FeedError(f"feed {self.address} cannot be followed: {error!r}")
        places = sorted(f"topic {p.topic!r}, partition {p.partition}" for p in error.divergent_offsets)
        return FeedError(
            f"feed {self.address}: the brokers lost records that were read before ({'; '.join(places)}), as a replica "
            f"without them became the leader; {told_anew(self.name)}"
        )

    def _note_positions(self) -> None:
        assert self._consumer is not None
        try:
            for topic, partition in self._positions:
                # All were sought, so there is nothing to wait for: whether a new leader has all that was read is
                # asked beside, and told later.
                position = self._consumer.position(TopicPartition(topic, partition), timeout_ms=0)
                if position is not None:
                    self._positions[topic, partition] = position
        except KafkaError as error:
            raise self._ended_by(error) from error
        for record in reversed(self._pending):
            self._positions[record.topic, record.partition] = record.offset

    def _check_cluster(self) -> None:
        """Ask the broker whether it is there, and for partitions that appeared; silence alone tells nothing."""
        try:
            partitions = self._find_partitions()
            if any((p.topic, p.partition) not in self._positions for p in partitions):
                self._assign(partitions)
                log.info("feed partitions added", feed=self.address, partitions=len(self._positions))
            self._warn_of_missing(partitions)
            self._missing_since = None
            self._say_connected()
        except RemadeTopicError:
            raise
        except FeedError:
            # A broker that has just come back may not know all topics yet.
            now = time.monotonic()
            self._missing_since = self._missing_since or now
            if now - self._missing_since > self.start_timeout:
                raise
        except KafkaError as error:
            if not self.disconnected:
                log.warning("feed disconnected", feed=self.address, error=repr(error))
            self.disconnected = True

    def _say_connected(self) -> None:
        if self.disconnected:
            log.info("feed connected again", feed=self.address)
            self.disconnected = False

    def _write_hints(self) -> None:
        if self._admin is None or self.group_id is None:
            return
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in self._hints.items()}
        try:
            results = self._admin.alter_group_offsets(self.group_id, offsets)
            fault = ", ".join(sorted({error.__name__ for error in results.values() if error.errno != 0}))
        except KafkaError as error:
            fault = repr(error)
        if not fault:
            self._hints.clear()
        elif fault != self._hint_fault:
            log.info("feed hint not written", feed=self.address, group=self.group_id, error=fault)
        self._hint_fault = fault
        self._next_hint = time.monotonic() + HINT_SECONDS
