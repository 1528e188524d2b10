"""Shards that apply a batch in transactions of their own, on a real Postgres: exactly once, whoever dies and when."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg2
import pytest

from service.core.canonical import value_keys
from service.core.errors import ConflictError, RecordError, StateError
from service.core.model import RawRecord, RowChange
from service.core.shards import cuts, part_of_deltas
from service.core.value_order import ValueOrder
from service.shard_commands import list_, set_
from service.store.database import make_engine
from service.store.reader import PostgresSnapshot, PostgresStateReader
from service.store.shard_coordinator import ShardCoordinator
from service.store.shard_dealing import deal, deal_again, read_shards, set_shards
from service.store.shards import ShardStore
from service.store.writer import PostgresWriter
from service.stream.envelope import Decoder
from service.stream.file_feed import FileFeed
from service.terminal import Format
from service.usecases.answers import Key, MissingValue, Page
from service.usecases.batches import ErrorPolicy
from service.usecases.foreign_key_ports import WantedGrid
from service.usecases.live_state import BatchCommit, BatchCounts, LiveState
from service.usecases.netting import net
from service.usecases.queries import page_of, walk
from service.usecases.shards import ShardBatch, ShardSummary, conclude
from service.usecases.warm_up import WarmUpPolicy
from tests import states
from tests.following import Stream, consume, random_changes, shop_tables
from tests.integration.test_verify import findings
from tests.states import Tables

SHARDS = 3


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    states.deal(database_url, SHARDS)
    return Stream.empty(tmp_path, tables)


@dataclass
class Driver:
    """Follow a file as a cluster would: each shard applies its part through a store of its own, the driver sums up."""

    url: str
    stream: Stream
    warm_up: WarmUpPolicy = WarmUpPolicy.OFF
    stores: list[ShardStore] = field(default_factory=list)
    looked_up: list[int] = field(default_factory=list)
    """Of each batch how many values its shards looked up in the database."""

    def __enter__(self) -> Driver:
        self.writer = PostgresWriter(self.url)
        self.writer.acquire()
        self.state = LiveState(self.writer.load(), 0)
        self.coordinator = ShardCoordinator(self.writer, self.url)
        self.stores = [ShardStore(place, 1 << 20, self.warm_up) for place in self.coordinator.places]
        self.feed = FileFeed(str(self.stream.path))
        self.feed.start(self.writer.positions(self.feed.name))
        self.begun = self.feed.positions()
        self.parts: list[ShardBatch] = []
        return self

    def __exit__(self, *_: object) -> None:
        for store in self.stores:
            store.close()
        self.feed.close()
        self.writer.close()

    def read(self, records: int) -> list[RawRecord]:
        """Read and deal out a batch, and begin it."""
        found = list(self.feed.poll(records, 1 << 20, 0.0))
        if not found:
            return []
        decoder = Decoder(self.state.tables)
        changes = [decoder.decode(record) for record in found]
        assert all(isinstance(change, RowChange) for change in changes)
        self.netted = net(changes, value_keys)  # type: ignore[arg-type]
        deltas = self.netted.deltas
        own = [part_of_deltas(deltas, start, end) for start, end in pairwise(cuts(deltas.keys, SHARDS))]
        number = self.state.version + 1
        uncounted = self.state.uncounted
        self.parts = [
            ShardBatch(number, place.batch, self.state.version, part, self.netted.texts_of(part.keys), uncounted)
            for place, part in zip(self.coordinator.places, own, strict=True)
        ]
        self.coordinator.begin()
        return found

    def apply(self, shards: Sequence[int] = range(SHARDS)) -> list[ShardSummary]:
        return [self.stores[shard].apply(self.parts[shard]) for shard in shards]

    def commit(self, records: Sequence[RawRecord], summaries: Sequence[ShardSummary]) -> None:
        delta = conclude(self.state, summaries, self.netted.rows, self.netted.nulls, self.netted.sketched)
        self.state.version += 1
        after = self.feed.positions()
        self.writer.register(self.feed.name, self.feed.describe())
        commit = BatchCommit(
            self.state.version,
            self.state.generation,
            self.feed.name,
            {place: (self.begun.get(place, 0), offset) for place, offset in after.items()},
            delta,
            BatchCounts(records=len(records)),
        )
        self.writer.begin().commit(commit)
        self.begun = after
        self.coordinator.end()

    def follow(self, records: int) -> None:
        while found := self.read(records):
            summaries = self.apply()
            self.looked_up.append(sum(summary.accesses.read for summary in summaries))
            self.commit(found, summaries)
            for store in self.stores:
                while store.warm():
                    pass


def require_true(url: str, stream: Stream) -> None:
    assert states.read(url) == states.expected(stream.tables)
    assert all(finding.holds for finding in findings(url))


@pytest.mark.parametrize("records", [1, 7])
def test_shards_that_commit_alone_make_the_state_that_recomputing_makes(
    database_url: str, stream: Stream, records: int
) -> None:
    rng = random.Random(records)
    for _ in range(2):
        random_changes(stream, rng, 20)
        with Driver(database_url, stream) as driver:
            driver.follow(records)
        require_true(database_url, stream)
        random_changes(stream, rng, 20)
        consume(database_url, stream, records=records)  # the ordinary consumer and shards take turns
        require_true(database_url, stream)


@pytest.mark.parametrize(("warm_up", "cold"), [("before", 0), ("beside", 2)])
def test_a_shard_that_is_filled_looks_nothing_up(database_url: str, stream: Stream, warm_up: str, cold: int) -> None:
    """Beside the batches it is filled once its memory has served: another executor may get the shard's next batch."""
    random_changes(stream, random.Random(warm_up), 50)
    with Driver(database_url, stream, WarmUpPolicy(warm_up)) as driver:
        driver.follow(5)
        assert all(driver.looked_up[:cold])
        assert not any(driver.looked_up[cold:])
    require_true(database_url, stream)


def values_of(url: str, milliseconds: int = 60_000) -> int:
    """Read values, and give of which version they are."""
    engine = make_engine(url, "test", statement_timeout_ms=milliseconds)
    try:
        with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
            return snapshot.head.version
    finally:
        engine.dispose()


@pytest.mark.parametrize("committed", range(SHARDS + 1))
def test_a_driver_that_dies_between_any_two_commits_leaves_no_trace(
    database_url: str, stream: Stream, committed: int
) -> None:
    rng = random.Random(committed)
    random_changes(stream, rng, 15)
    before = states.read(database_url) if committed == 0 else None
    with Driver(database_url, stream) as driver:
        driver.read(15)
        driver.apply(range(committed))
        stale = ShardStore(driver.stores[0].place, 1 << 20), driver.parts[0]
    if committed:
        with pytest.raises(StateError, match=r"Shard 0 holds version 2 and the state 1"):
            values_of(database_url)
        with pytest.raises(StateError, match="following ended between the two"):
            findings(database_url)
    else:
        assert states.read(database_url) == before
    assert states.query(database_url, "select max(version) from state_version") == [(1,)]
    random_changes(stream, rng, 5)  # the next batch need not be cut where that one was
    with Driver(database_url, stream) as driver:
        assert values_of(database_url) == 1, "whoever becomes the writer has undone it"
        with closing(stale[0]), pytest.raises(ConflictError, match="Another has become the state's writer"):
            stale[0].apply(stale[1])
        driver.follow(4)
    require_true(database_url, stream)


def test_a_task_that_is_run_again_says_what_it_said(database_url: str, stream: Stream) -> None:
    random_changes(stream, random.Random(1), 20)
    with Driver(database_url, stream) as driver:
        found = driver.read(20)
        first = driver.apply()
        again = [ShardStore(place, 0) for place in driver.coordinator.places]
        for store, part, summary in zip(again, driver.parts, first, strict=True):
            with closing(store):
                assert store.apply(part).to_bytes() == summary.to_bytes()
        driver.commit(found, first)
        late = driver.parts[0]
        random_changes(stream, random.Random(2), 20)
        driver.follow(20)
        with pytest.raises(ConflictError, match=f"{late.number} comes too late"):
            driver.stores[0].apply(late)
    require_true(database_url, stream)


def test_two_tasks_at_once_are_one(database_url: str, stream: Stream) -> None:
    random_changes(stream, random.Random(9), 20)
    with Driver(database_url, stream) as driver:
        found = driver.read(20)
        twins = [ShardStore(place, 0) for place in driver.coordinator.places]
        with ThreadPoolExecutor(2 * SHARDS) as pool:
            told = list(pool.map(ShardStore.apply, [*driver.stores, *twins], driver.parts * 2))
        for store in twins:
            store.close()
        assert [one.to_bytes() for one in told[:SHARDS]] == [one.to_bytes() for one in told[SHARDS:]]
        driver.commit(found, told[:SHARDS])
    require_true(database_url, stream)


def test_who_asks_for_values_waits_for_a_batch_under_way(database_url: str, stream: Stream) -> None:
    random_changes(stream, random.Random(3), 20)
    with Driver(database_url, stream) as driver:
        found = driver.read(20)
        summaries = driver.apply()
        with pytest.raises(StateError, match="longer than its time limit"):
            values_of(database_url, milliseconds=200)
        driver.commit(found, summaries)
        assert values_of(database_url) == 2


def test_a_shard_that_lacks_a_cell_does_nothing_and_the_others_go_back(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["13", "1", "new"])
    stream.append("customers", ["99", "nobody"], None)
    with Driver(database_url, stream) as driver:
        driver.read(20)
        summaries = driver.apply()
        assert [len(summary.missing) for summary in summaries].count(0) < SHARDS
        assert sum(len(summary.missing) for summary in summaries) == 2
        driver.coordinator.undo()
        assert values_of(database_url) == 1
        with pytest.raises(ConflictError):
            driver.stores[0].apply(driver.parts[0])
    with pytest.raises(RecordError):
        consume(database_url, stream)
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    require_true(database_url, stream)


def test_from_any_number_of_shards_to_any_other(database_url: str, stream: Stream) -> None:
    rng = random.Random(5)
    before = states.query(database_url, "select epoch from shard where shard = 0")
    for shards in (7, 2, 1, 4, 1):
        states.deal(database_url, shards)
        assert states.query(database_url, "select count(*) from shard") == [(shards if shards > 1 else 0,)]
        require_true(database_url, stream)
        random_changes(stream, rng, 10)
        consume(database_url, stream, records=4)
        require_true(database_url, stream)
    assert states.query(database_url, "select cluster_id from gen_rec except select cluster_id from cluster") == []
    states.deal(database_url, 2)
    assert states.query(database_url, "select epoch from shard where shard = 0") > before, "no number serves twice"
    with pytest.raises(ConflictError, match="1 to 1024 shards"):
        states.deal(database_url, 1025)


def test_what_was_left_half_done_is_undone_before_keys_are_dealt_anew(database_url: str, stream: Stream) -> None:
    before = states.read(database_url)
    random_changes(stream, random.Random(6), 20)
    with Driver(database_url, stream) as driver:
        driver.read(20)
        driver.apply([0, 2])
    assert [(one.shard, one.ahead) for one in read_shards(database_url)] == [(0, 2), (1, None), (2, 2)]
    told: list[str] = []
    assert set_shards(database_url, 5, told.append) == 2
    assert len(told) == 5
    assert states.read(database_url) == before
    found = read_shards(database_url)
    assert [(one.shard, one.ahead) for one in found] == [(shard, None) for shard in range(5)]
    assert sum(one.values for one in found) == len(before.records)
    consume(database_url, stream)
    require_true(database_url, stream)


def test_shards_that_do_not_add_up_are_found(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update cluster set value_count = value_count + 1 where cluster_id = 1")
    (counts,) = [finding for finding in findings(database_url) if finding.invariant == "I2"]
    assert counts.violations == 1
    assert counts.examples[0].startswith("cluster 1 counts ")


def test_a_bootstrap_keeps_the_number_of_shards(database_url: str, stream: Stream) -> None:
    epochs = states.query(database_url, "select epoch from shard")
    with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("create temporary table kept as select * from shard")
        deal(cursor, 1, lambda _: None)  # records have the ids of the whole's clusters, as a bootstrap writes them
        cursor.execute("insert into shard select * from kept")
        deal_again(cursor)
    assert [one.shard for one in read_shards(database_url)] == [0, 1, 2]
    assert states.query(database_url, "select epoch from shard") != epochs
    random_changes(stream, random.Random(7), 20)
    consume(database_url, stream)
    require_true(database_url, stream)
    assert [one.shard for one in read_shards(database_url)] == [0, 1, 2]
    states.deal(database_url, 1)
    (one,) = read_shards(database_url)
    assert (one.shard, one.values) == (0, len(states.read(database_url).records))


def test_the_command_deals_and_lists(
    database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    set_(2, None)
    assert "Shard 1 of 2" in capsys.readouterr().err
    list_(Format.JSON)
    found = json.loads(capsys.readouterr().out)
    assert [one["shard"] for one in found] == [0, 1]
    assert sum(one["values"] for one in found) == len(states.read(database_url).records)
    with closing(PostgresWriter(database_url, "test")) as other:
        other.acquire()
        with pytest.raises(StateError, match="another writer: test"):
            set_(1, None)
    states.execute(database_url, "truncate state_version, shard, shard_cluster cascade")
    with pytest.raises(StateError, match="There is no state yet"):
        set_(3, None)


def asked(url: str, tables: Tables) -> dict[str, object]:
    """Ask all that reads values; missing ones page by page, in no order."""
    ids = range(1, len(tables.names()) + 1)
    engine = make_engine(url, "test")
    try:
        with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
            found: dict[str, object] = {}
            for a in ids:
                for b in ids:
                    missing = list(walk(lambda after, a=a, b=b: page(snapshot, a, b, after)))
                    found[f"{a} without {b}"] = sorted((one.value_key, one.value, one.frequency) for one in missing)
                counters = snapshot.attribute(a)
                assert counters is not None
                distinct = counters.distinct_count or 0
                found[f"hashes of {a}"] = sorted(h for part in snapshot.hashes(a, distinct) for h in part.tolist())
                found[f"repeated of {a}"] = snapshot.repeated_values(a, 100)
                grid = WantedGrid(a, (a,), (distinct,), (ValueOrder.LEXICOGRAPHIC,), 3)
                key, others = snapshot.spreads(grid, [b for b in ids if b != a])
                found[f"spread over {a}"] = repr((key, sorted(others.items())))
            found["statistics"] = list(snapshot.value_statistics(list(ids)))
            found["overlaps"] = [sorted((b, n) for b, n, _ in snapshot.overlaps(a)) for a in ids]
            return found
    finally:
        engine.dispose()


def page(snapshot: PostgresSnapshot, a: int, b: int, after: Key | None) -> Page[MissingValue]:
    found = snapshot.missing_values(a, b, after, 3)
    return page_of(found, 2, lambda one: (one.cluster_id, one.value_key))


def test_what_reads_values_is_answered_as_without_shards(database_url: str, stream: Stream) -> None:
    random_changes(stream, random.Random(8), 60)
    consume(database_url, stream)
    sharded = asked(database_url, stream.tables)
    states.deal(database_url, 1)
    assert sharded == asked(database_url, stream.tables)
    held = states.expected(stream.tables).records
    names = [f"s.{table}.{column}" for table, column in stream.tables.names()]
    assert [key.replace("-", "") for key, *_ in sharded["2 without 4"]] == sorted(  # type: ignore[attr-defined]
        key for key, (_, members) in held.items() if names[1] in members and names[3] not in members
    )
