"""A consumer on the real broker: what a feed is known by, its headers, its pause, its lag, its transactions."""

from __future__ import annotations

import gc
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from uuid import uuid4

import orjson
import psycopg2
import pytest
from kafka import TopicPartition
from kafka.errors import RetriableError
from prometheus_client import CollectorRegistry

from service.core.canonical import value_keys
from service.core.contracts import ContractKind
from service.core.errors import FeedError, NotFoundError, StateError
from service.core.foreign_keys.sides import ForeignKey
from service.core.model import AttributeName, Table
from service.feed_wiring import forget_feed
from service.observe import ConsumerObserver
from service.store.catch_up import put_positions
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.store.feeds import set_paused
from service.store.reader import PostgresStateReader
from service.store.writer import PostgresWriter
from service.stream.addresses import open_feed
from service.stream.envelope import Decoder
from service.stream.kafka_feed import KafkaFeed
from service.usecases.batches import BatchLimits, Totals
from service.usecases.feed_session import Session
from service.usecases.follow_feed import Consumer
from service.usecases.following import Following
from service.usecases.foreign_key_decisions import EXACT, ContractState
from service.usecases.transactions import WaitLimits
from tests import states
from tests.cluster import Cluster
from tests.events import envelope
from tests.following import COLUMNS, Watch
from tests.integration.test_kafka_feed import follow, to_the_end
from tests.states import Row, Tables
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["follow"]


class Shop:
    """Keep tables in step with topics of their changes, one topic a table, as a connector writes them."""

    def __init__(self, url: str, cluster: Cluster, tuples: dict[str, list[tuple[str, ...]]] | None = None) -> None:
        self.url = url
        self.cluster = cluster
        self.tables = Tables(COLUMNS, tuples=tuples or {})
        self.tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", None])
        states.store(url, self.tables)
        self.prefix = f"app{uuid4().hex}"
        for table in COLUMNS:
            cluster.topic(name=f"{self.prefix}.s.{table}")
        self.feed = f"kafka://{cluster.servers}/?prefix={self.prefix}."
        self.orders: dict[str, int] = {}

    def insert(self, table: str, row: Row, transaction: str | None = None) -> None:
        self.tables.add(table, row)
        value = orjson.loads(envelope("c", "s", table, None, dict(zip(COLUMNS[table], row, strict=True))))
        if transaction is not None:
            order = self.orders[transaction] = self.orders.get(transaction, 0) + 1
            value["transaction"] = {
                "id": f"{transaction}:{order}",
                "total_order": order,
                "data_collection_order": order,
            }
        self.cluster.send(f"{self.prefix}.s.{table}", [orjson.dumps(value)])

    def end(self, transaction: str, **counts: int) -> None:
        collections = [{"data_collection": f"s.{table}", "event_count": count} for table, count in counts.items()]
        mark = {"status": "END", "id": f"{transaction}:99", "data_collections": collections}
        self.cluster.send(f"{self.prefix}.transaction", [orjson.dumps(mark)])

    def consumer(self, address: str | None = None, **options: object) -> Consumer:
        return Consumer(
            PostgresWriter(self.url),
            lambda: open_feed(address or self.feed, group_id=None),
            Decoder,
            value_keys,
            **{"observer": Watch(), **options},  # type: ignore[arg-type]
        )

    def consume(self, address: str | None = None, **options: object) -> Totals:
        return self.consumer(address, **options).run(threading.Event(), until_end=True)

    def one(self, statement: str) -> object:
        return states.query(self.url, statement)[0][0]

    def check(self) -> None:
        assert states.read(self.url) == states.expected(self.tables)


@pytest.fixture
def shop(database_url: str, cluster: Cluster) -> Shop:
    return Shop(database_url, cluster)


@pytest.fixture
def make_shop(database_url: str, cluster: Cluster) -> Callable[[dict[str, list[tuple[str, ...]]]], Shop]:
    """Give what makes a shop with tuples that are tracked."""
    return partial(Shop, database_url, cluster)


@contextmanager
def running(consumer: Consumer) -> Iterator[Callable[[], bool]]:
    """Run a consumer on a thread; give a function that tells whether it still runs; raise its error in the end."""
    stop, errors = threading.Event(), []

    def body() -> None:
        try:
            consumer.run(stop)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        stop.set()
        thread.join(BOUND_SECONDS)
    if errors:
        raise errors[0]


# What a feed is known by


def test_the_same_brokers_under_another_address_are_the_same_feed(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])
    shop.consume()
    shop.insert("customers", ["4", "Dora"])
    shop.consume(shop.feed.replace("127.0.0.1", "localhost"))
    shop.check()
    ((name, address, identity),) = states.query(shop.url, "select feed, address, identity from feed")
    assert name == f"kafka:{identity['cluster_id']}"
    assert "localhost" in address, "where it was reached last"


def test_other_brokers_under_the_same_address_are_refused(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])
    shop.consume()
    states.execute(shop.url, "update feed set feed = 'kafka:other'")
    states.execute(shop.url, "update feed_position set feed = 'kafka:other'")
    with pytest.raises(StateError, match=r"it was kafka:other and is kafka:.* now.*--feed-position"):
        shop.consume()
    shop.check()


def test_topics_are_known_by_their_ids_and_one_made_anew_is_refused_at_the_start(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])
    shop.consume()
    topic = f"{shop.prefix}.s.customers"
    before = shop.one(f"select topic_id from feed_position where topic = '{topic}'")
    (described,) = shop.cluster.admin.describe_topics([topic])
    assert before == str(described["topic_id"])
    remake(shop.cluster, topic)
    shop.cluster.send(topic, [b"{}"] * 5)
    with pytest.raises(FeedError, match=rf"'{topic}': it was deleted and made anew.*{before}.*--replace"):
        shop.consume()
    shop.check()


def test_a_topic_made_anew_is_followed_from_the_position_that_a_new_bootstrap_gives(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])
    shop.consume()
    topic = f"{shop.prefix}.s.customers"
    remake(shop.cluster, topic)
    shop.cluster.send(topic, [b"read by the bootstrap"])
    with closing(psycopg2.connect(shop.url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("select feed from feed")
        (feed,) = cursor.fetchone() or ("",)
        cursor.execute(
            "insert into source (name, kind, location, bootstrapped_version) values ('other', 'csv', '-', 1) "
            "returning source_id"
        )
        cursor.execute("select source_id from source where name = 's'")
        (source_id,) = cursor.fetchone() or (0,)
        put_positions(cursor, source_id, "s", 3, [(feed, topic, 0, 1)], None)
    shop.insert("customers", ["4", "Dora"])
    shop.consume()
    shop.check()


def test_a_feed_whose_records_are_gone_begins_anew_beside_another_source_as_its_message_says(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])
    shop.consume()
    topic = f"{shop.prefix}.s.customers"
    shop.cluster.send(topic, [b"unread"] * 3)
    shop.cluster.admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(FeedError, match=r"stands at offset 1.*begins at 4") as refused:
        shop.consume()
    (feed,) = re.findall("`subsetd unfollow (.*) --gone`, and bootstrap each of its sources", str(refused.value))
    assert forget_feed(shop.url, feed) == feed
    with closing(psycopg2.connect(shop.url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "insert into source (name, kind, location, bootstrapped_version) values ('other', 'csv', '-', 1)"
        )
        cursor.execute("select source_id from source where name = 's'")
        (source_id,) = cursor.fetchone() or (0,)
        put_positions(cursor, source_id, "s", 3, [(feed, topic, 0, 4)], None)
    shop.insert("customers", ["4", "Dora"])
    shop.consume()
    shop.check()


def test_a_topic_made_anew_while_it_is_followed_stops_the_feed(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])

    def remake_under_the_consumer() -> None:
        watch = Watch()
        with running(shop.consumer(observer=watch)) as is_running:
            wait_for(lambda: watch.reports)
            topic = f"{shop.prefix}.s.customers"
            remake(shop.cluster, topic)
            shop.cluster.send(topic, [b"{}"] * 5)
            wait_for(lambda: not is_running())

    with pytest.raises(FeedError, match="it was deleted and made anew"):
        remake_under_the_consumer()
    shop.check()


def remake(cluster: Cluster, topic: str) -> None:
    """Delete a topic and make one of the same name."""
    cluster.admin.delete_topics([topic])
    wait_for(lambda: topic not in cluster.admin.list_topics())
    cluster.topic(name=topic)


def test_headers_come_with_their_records(cluster: Cluster, follow: Callable[..., KafkaFeed]) -> None:
    topic = cluster.topic()
    headers = [("__debezium.newkey", b'{"id":2}'), ("empty", b"")]
    cluster.producer.send(topic, b"x", partition=0, headers=headers).get(timeout=BOUND_SECONDS)
    (record,) = to_the_end(follow(topic))
    assert list(record.headers) == headers


# Pause and lag


def test_a_paused_consumer_ends_its_batch_keeps_its_lock_and_shows_a_growing_lag(shop: Shop) -> None:
    group = f"group-{uuid4().hex}"
    observer = ConsumerObserver(registry := CollectorRegistry())
    rests: list[float] = []

    class Watched(KafkaFeed):
        def rest(self) -> None:
            super().rest()
            rests.append(time.monotonic())

    consumer = shop.consumer(observer=observer)
    consumer.open_feed = lambda: Watched([shop.cluster.servers], [], prefix=shop.prefix, group_id=group)

    def metric(name: str) -> float:
        found = registry.get_sample_value(f"subsetd_consumer_lag_{name}")
        assert found is not None
        return found

    def lag_of_the_broker() -> int | None:
        """Sum up what lag tools tell: the end of each partition less the group's offset; None while it is not known."""
        try:
            return sum(lags_of_the_broker().values())
        except RetriableError:
            return None

    def lags_of_the_broker() -> dict[tuple[str, int], int]:
        committed = shop.cluster.admin.list_group_offsets([group])[group]
        ends = shop.cluster.admin.list_partition_offsets(dict.fromkeys(committed, -1))
        return {(p.topic, p.partition): ends[p].offset - committed[p].offset for p in committed}

    def lags_told() -> dict[tuple[str, int], float]:
        (found,) = (m for m in registry.collect() if m.name == "subsetd_consumer_partition_lag_records")
        return {(s.labels["topic"], int(s.labels["partition"])): s.value for s in found.samples}

    engine = make_engine(shop.url, "test")
    try:
        with pytest.raises(NotFoundError, match="No feed was followed yet"):
            set_paused(engine, None, True)
        with running(consumer):
            for table in COLUMNS:
                shop.insert(table, ["3", "x", None][: len(COLUMNS[table])])
            wait_for(lambda: shop.one("select sum(records) from state_version") == 2)
            wait_for(lambda: metric("records") == 0)
            (name,) = set_paused(engine, None, True)
            seen = len(rests)
            wait_for(lambda: len(rests) > seen + 1)  # the first may be of who has not looked since
            version = shop.one("select max(version) from state_version")
            shop.insert("customers", ["4", "Dora"])
            shop.insert("customers", ["5", "Emil"])
            shop.insert("orders", ["11", "5", None])
            wait_for(lambda: metric("records") == 3)
            wait_for(lambda: lag_of_the_broker() == 3)  # a new group's coordinator may take its time
            assert {place: lag for place, lag in lags_told().items() if lag} == {
                place: lag for place, lag in lags_of_the_broker().items() if lag
            }
            assert metric("seconds") > 0
            assert shop.one("select max(version) from state_version") == version
            with pytest.raises(StateError, match="another writer: subsetd consumer"):
                shop.consume()
            assert set_paused(engine, name, False) == [name]
            wait_for(lambda: metric("records") == 0)
            wait_for(lambda: lag_of_the_broker() == 0)
        shop.check()
    finally:
        engine.dispose()


def test_what_a_session_leaves_goes_with_it(shop: Shop) -> None:
    """A tuned collector looks at old objects hardly ever, and a closed feed is full of cycles: they would pile up."""
    clients: list[weakref.ref[object]] = []

    def begun(following: Following) -> Session:
        session = Session(following)
        assert isinstance(session._feed, KafkaFeed)
        clients.append(weakref.ref(session._feed._consumer))
        return session

    killed = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'subsetd consumer'"
    consumer = shop.consumer()
    consumer.make_session = begun
    gc.disable()
    try:
        with running(consumer):
            for number in range(1, 4):
                wait_for(lambda number=number: len(clients) == number)  # type: ignore[misc]
                assert states.query(shop.url, f"{killed} and datname = current_database()") != [(0,)]
            wait_for(lambda: len(clients) == 4)
            assert [one() is None for one in clients] == [True, True, True, False]
    finally:
        gc.enable()


# Transactions of the source


def whole(shop: Shop) -> list[tuple[int, int, bool | None]]:
    """Give of each batch its version, how many rows it inserted, and whether transactions are whole behind it."""
    return states.query(
        shop.url,
        "select version, inserted, transaction_consistent from state_version where kind = 'batch' order by version",
    )  # type: ignore[return-value]


def test_without_a_transaction_topic_nothing_is_said_of_transactions(shop: Shop) -> None:
    shop.insert("customers", ["3", "Cleo"])
    shop.consume()
    assert whole(shop) == [(2, 1, None)]


def test_a_transaction_is_applied_whole_or_not_at_all(shop: Shop) -> None:
    shop.cluster.topic(name=f"{shop.prefix}.transaction")
    with running(shop.consumer()):
        shop.insert("customers", ["3", "Cleo"], "7")
        shop.insert("orders", ["11", "3", None], "7")
        shop.insert("orders", ["12", "1", None], "8")
        shop.end("7", customers=1, orders=1, elsewhere=4)
        wait_for(lambda: shop.one("select sum(inserted) from state_version") == 2)
        assert shop.one("select bool_and(transaction_consistent) from state_version where kind = 'batch'")
        assert shop.one(f"select next_offset from feed_position where topic = '{shop.prefix}.s.orders'") == 1
        shop.end("8", orders=1)
        wait_for(lambda: shop.one("select sum(inserted) from state_version") == 3)
    shop.check()
    assert all(consistent for *_, consistent in whole(shop))


def test_a_transaction_that_is_too_large_is_cut_and_the_answer_says_so(shop: Shop) -> None:
    shop.cluster.topic(name=f"{shop.prefix}.transaction")
    for number in range(30):
        shop.insert("customers", [str(number + 3), None], "7")
    watch = Watch()
    options = {"observer": watch, "limits": BatchLimits(records=10), "wait_limits": WaitLimits(records=12)}
    with running(shop.consumer(**options)):
        wait_for(lambda: shop.one("select sum(inserted) from state_version") >= 20)
        assert {consistent for *_, consistent in whole(shop)} == {False}
        shop.end("7", customers=30)
        wait_for(lambda: shop.one("select transaction_consistent from state_version order by version desc limit 1"))
    shop.check()


def test_a_transaction_does_not_wait_for_tables_of_sources_that_the_feed_is_not_of(shop: Shop) -> None:
    def of_customers(tables: Sequence[Table]) -> Decoder:
        return Decoder([table for table in tables if table.name == "customers"], unknown_tables="ignore")

    shop.cluster.topic(name=f"{shop.prefix}.transaction")
    shop.insert("customers", ["3", "Cleo"], "7")
    shop.end("7", customers=1, orders=1)
    consumer = shop.consumer()
    consumer.make_decoder = of_customers
    consumer.run(threading.Event(), until_end=True)
    shop.check()
    assert all(consistent for *_, consistent in whole(shop))


def test_a_truncate_inside_a_transaction_is_a_version_of_its_own_that_is_not_whole(shop: Shop) -> None:
    shop.cluster.topic(name=f"{shop.prefix}.transaction")
    shop.insert("customers", ["3", "Cleo"], "7")
    truncate = orjson.loads(envelope("t", "s", "orders"))
    truncate["transaction"] = {"id": "7:2", "total_order": 2, "data_collection_order": 1}
    shop.cluster.send(f"{shop.prefix}.s.orders", [orjson.dumps(truncate)])
    shop.tables.rows["orders"].clear()
    shop.end("7", customers=1, orders=1)
    shop.consume()
    shop.check()
    consistent = [consistent for *_, consistent in whole(shop)]
    assert consistent[-1] is True
    assert consistent[:-1] == [False] * (len(consistent) - 1)
    assert len(consistent) > 1


def test_behind_a_column_that_comes_inside_a_transaction_nothing_waits_for_what_was_applied_before(shop: Shop) -> None:
    shop.cluster.topic(name=f"{shop.prefix}.transaction")
    shop.insert("customers", ["3", "Cleo"], "6")
    shop.insert("customers", ["4", "Dan"], "7")
    shop.insert("orders", ["11", "3", None], "7")
    columns = [*COLUMNS["orders"], "more"]
    shop.tables.columns = {**COLUMNS, "orders": columns}
    shop.tables.rows["orders"] = Counter({(*row, None): n for row, n in shop.tables.rows["orders"].items()})
    row = ["12", "4", None, "x"]
    value = orjson.loads(envelope("c", "s", "orders", None, dict(zip(columns, row, strict=True))))
    value["transaction"] = {"id": "7:3", "total_order": 3, "data_collection_order": 2}
    shop.cluster.send(f"{shop.prefix}.s.orders", [orjson.dumps(value)])
    shop.tables.add("orders", row)
    shop.end("6", customers=1)
    shop.end("7", customers=1, orders=2)
    shop.insert("customers", ["5", "Eve"], "8")
    shop.end("8", customers=1)
    shop.consume(wait_limits=WaitLimits(seconds=3600))
    shop.check()
    assert whole(shop)[-1][-1] is True


def test_a_tracked_composite_key_is_followed_over_topics_with_a_contract_on_it(
    make_shop: Callable[[dict[str, list[tuple[str, ...]]]], Shop], database_url: str
) -> None:
    """Tuples come and go as rows do, whichever topic is read first; what breaks their contract has its position."""
    shop = make_shop({"orders": [("id", "customer")], "customers": [("id", "name")]})
    shop.insert("customers", ["10", "1"])
    shop.consume()
    engine = make_engine(database_url, "test")
    sides = ([AttributeName("s", table, one) for one in of] for table, (of,) in shop.tables.tuples.items())
    made = PostgresContracts(engine).add(ForeignKey.of(*sides), EXACT, "Ada")
    assert made.state is ContractState.HELD
    shop.insert("orders", ["11", None, "no tuple"])
    shop.insert("orders", ["2", "Bob", "a customer"])
    shop.insert("orders", ["2", "Ada", "each half is there"])
    shop.consume()
    shop.insert("customers", ["2", "Ada"])
    shop.consume()
    shop.check()
    with PostgresStateReader(engine).snapshot() as snapshot:
        violated, mended = snapshot.contract_events(None, (0, 0), 10)
    engine.dispose()
    topic = f"{shop.prefix}.s.{{}}"
    assert (violated.kind, violated.witness_value) == (ContractKind.VIOLATED, '["2","Ada"]')
    assert violated.position == {"topic": topic.format("orders"), "partition": 0, "offset": 2}
    assert (mended.kind, mended.position) == (
        ContractKind.MENDED,
        {"topic": topic.format("customers"), "partition": 0, "offset": 1},
    )
