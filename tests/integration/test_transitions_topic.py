"""Transitions go out: every one at least once, in order, to a real topic; what failed is sent later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import orjson
import pytest
from kafka import KafkaConsumer, TopicPartition
from sqlalchemy import Engine

from service.core.errors import FeedAwayError, FeedError
from service.core.foreign_keys.sides import ForeignKey
from service.core.model import AttributeName
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.store.outbox import PostgresOutbox
from service.store.reader import PostgresStateReader
from service.store.retention import drop_piece
from service.stream.kafka_sockets import CLOSING
from service.stream.kafka_transitions import TransitionTopic
from service.usecases import send_transitions
from service.usecases.answers import TransitionFilter
from service.usecases.foreign_key_decisions import EXACT
from service.usecases.send_transitions import TransitionSender, as_message, contract_message
from tests import states
from tests.broker import KafkaBroker
from tests.descriptors import high_descriptors
from tests.following import COLUMNS, Stream, consume
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for

LISTENS = """
select from pg_stat_activity where datname = current_database() and query like 'listen %' and state = 'idle'
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, "test")
    yield made
    made.dispose()


@pytest.fixture
def stream(tmp_path, database_url: str) -> Stream:  # type: ignore[no-untyped-def]
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", None])
    states.store(database_url, tables)
    (tmp_path / "feed.jsonl").touch()
    return Stream(tmp_path / "feed.jsonl", tables)


class Sending:
    """Send the transitions of a state to a topic, and read what is in it."""

    def __init__(self, engine: Engine, broker: KafkaBroker, timeout: float) -> None:
        self.broker, self.reader = broker, PostgresStateReader(engine)
        self.topic = broker.create_topic()
        self.address = f"kafka://{broker.bootstrap_servers}/{self.topic}"
        self.outbox = PostgresOutbox(engine)
        self.sink = TransitionTopic(self.address, timeout=timeout)
        self.faults: list[str | None] = []
        self.sender = TransitionSender(self.reader, self.outbox, self.sink, self.faults.append)

    def received(self) -> list[tuple[str, dict[str, object]]]:
        """Read the topic from its beginning to its end."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap_servers, proxy_url=CLOSING, auto_offset_reset="earliest"
        )
        try:
            partition = TopicPartition(self.topic, 0)
            consumer.assign([partition])
            end = consumer.end_offsets([partition], timeout_ms=10_000)[partition]
            records = []
            while len(records) < end:
                records += consumer.poll(timeout_ms=500).get(partition, [])
            return [(record.key.decode(), orjson.loads(record.value)) for record in records]
        finally:
            consumer.close()

    def of_contracts(self) -> list[dict[str, object]]:
        with self.reader.snapshot() as snapshot:
            found = snapshot.contract_events(None, (0, 0), 10_000)
        return [orjson.loads(orjson.dumps(contract_message(one))) for one in found]

    def expected(self) -> list[dict[str, object]]:
        with self.reader.snapshot() as snapshot:
            found = snapshot.transitions(TransitionFilter(), None, 10_000)
        return [orjson.loads(orjson.dumps(as_message(one))) for one in found]

    def close(self) -> None:
        self.sink.close()
        self.outbox.close()


@pytest.fixture
def sending(engine: Engine, broker: KafkaBroker, request: pytest.FixtureRequest) -> Iterator[Sending]:
    """Give what sends, waiting for the broker as long as a busy machine takes, or as the test's parameter says."""
    made = Sending(engine, broker, getattr(request, "param", BOUND_SECONDS))
    yield made
    made.close()


def break_and_mend(url: str, stream: Stream, times: int) -> None:
    """Let a dependency break and appear again, a version each time."""
    for _ in range(times):
        stream.change("orders", None, ["11", "9", None])
        consume(url, stream)
        stream.change("orders", ["11", "9", None], None)
        consume(url, stream)


@pytest.mark.parametrize("page", [1, 1000])
def test_every_transition_is_sent_once_in_order_as_the_api_gives_it(
    database_url: str, stream: Stream, sending: Sending, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_transitions, "PAGE", page)
    break_and_mend(database_url, stream, 2)
    assert sending.sender.send_new() == len(sending.expected()) > 3
    break_and_mend(database_url, stream, 1)
    assert sending.sender.send_new() > 0
    assert sending.sender.send_new() == 0
    received = sending.received()
    assert [message for _, message in received] == sending.expected()
    key, message = next((k, m) for k, m in received if m["kind"] == "broke")
    assert key == "s.orders.customer|s.customers.id"
    assert (message["dependent"], message["witness_value"]) == (
        {"attribute_id": 2, "name": "s.orders.customer", "parts": ["s", "orders", "customer"]},
        "9",
    )


def test_a_crash_between_sending_and_remembering_sends_twice_and_the_version_tells(
    database_url: str, stream: Stream, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_and_mend(database_url, stream, 1)

    def crash(sink: str, version: int) -> None:
        if version:
            raise RuntimeError("the plug was pulled")

    with monkeypatch.context() as patched:
        patched.setattr(sending.outbox, "advance", crash)
        with pytest.raises(RuntimeError):
            sending.sender.send_new()
    sending.sender.send_new()
    messages = [message for _, message in sending.received()]
    assert messages == sending.expected() * 2
    assert len({(m["version"], m["dependent"]["name"], m["referenced"]["name"]) for m in messages}) * 2 == len(messages)  # type: ignore[index]


def test_a_commit_is_heard_of_and_its_transitions_are_sent_until_the_end(
    database_url: str, stream: Stream, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_transitions, "LOOK_SECONDS", BOUND_SECONDS)  # only LISTEN can be in time
    stop, goes_on, wait = threading.Event(), threading.Event(), sending.outbox.wait

    def wait_and_rest(seconds: float) -> None:
        wait(seconds)
        goes_on.wait(BOUND_SECONDS)

    monkeypatch.setattr(sending.outbox, "wait", wait_and_rest)
    goes_on.set()
    thread = threading.Thread(target=sending.sender.run, args=(stop,))
    thread.start()
    try:
        wait_for(lambda: states.query(database_url, LISTENS))
        for times in (1, 2):
            break_and_mend(database_url, stream, 1)
            wait_for(lambda times=times: sending.outbox.sent(sending.sink.name) == 1 + 2 * times)
    finally:
        # What woke it last may wake it once more: it must not see its end before there is something left to be sent.
        goes_on.clear()
        stream.change("orders", None, ["11", "9", None])
        consume(database_url, stream)  # wakes the sender, which then ends
        stop.set()
        goes_on.set()
        thread.join(BOUND_SECONDS)
    assert not thread.is_alive()
    assert sending.sender.send_new() == 0, "what was left was sent at the end"
    assert [message for _, message in sending.received()] == sending.expected()


@pytest.mark.parametrize("sending", [2.0], indirect=True)
def test_a_broker_that_is_away_stops_nothing_and_gets_all_when_it_is_back(
    database_url: str, stream: Stream, sending: Sending, broker: KafkaBroker
) -> None:
    broker.kill()
    stop = threading.Event()
    thread = threading.Thread(target=sending.sender.run, args=(stop,))
    thread.start()
    try:
        wait_for(lambda: sending.outbox.sent(sending.sink.name) == 1)  # it has looked, and there was nothing to send
        break_and_mend(database_url, stream, 2)
        wait_for(lambda: sending.faults)
        assert sending.outbox.sent(sending.sink.name) == 1
        broker.start()
        wait_for(lambda: sending.outbox.sent(sending.sink.name) == 5)
    finally:
        stop.set()
        thread.join(BOUND_SECONDS)
    assert "does not take them" in (sending.faults[0] or "")
    assert "They are kept and sent later" in (sending.faults[0] or "")
    assert sending.faults[-1] is None, "it goes again"
    received = [message for _, message in sending.received()]
    # A broker that has just started may take longer to say that it has them, and be sent them once more.
    assert [message for at, message in enumerate(received) if message not in received[:at]] == sending.expected()


@pytest.mark.parametrize("sending", [1.0], indirect=True)
def test_what_a_topic_that_never_got_anything_waits_for_is_kept_however_old_it_is(
    database_url: str, engine: Engine, stream: Stream, sending: Sending, broker: KafkaBroker
) -> None:
    break_and_mend(database_url, stream, 2)
    broker.kill()
    with pytest.raises(FeedAwayError):
        sending.sender.send_new()
    states.execute(database_url, "update state_version set committed_at = committed_at - interval '9 days'")
    expected = sending.expected()
    assert drop_piece(engine, 86_400) == 0
    broker.start()
    sending.sink.close()
    sink = TransitionTopic(sending.address, timeout=BOUND_SECONDS)
    TransitionSender(sending.reader, sending.outbox, sink, sending.faults.append).send_new()
    sink.close()
    assert [message for _, message in sending.received()] == expected != []


def test_a_defect_is_told_and_ends_no_sending(
    database_url: str, stream: Stream, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, wait = threading.Event(), sending.outbox.wait

    def fail_once(seconds: float) -> None:
        if not sending.faults:
            raise ValueError("what nobody thought of")
        wait(seconds)

    monkeypatch.setattr(sending.outbox, "wait", fail_once)
    thread = threading.Thread(target=sending.sender.run, args=(stop,))
    thread.start()
    try:
        wait_for(lambda: sending.faults or not thread.is_alive())
        break_and_mend(database_url, stream, 1)
    finally:
        stop.set()
        thread.join(BOUND_SECONDS)
    assert "what nobody thought of" in (sending.faults[0] or "")
    assert [message for _, message in sending.received()] == sending.expected()


def test_a_commit_is_waited_for_on_any_descriptor(engine: Engine) -> None:
    with high_descriptors(), closing(PostgresOutbox(engine)) as outbox:
        outbox.wait(0.01)


def test_a_topic_that_is_not_there_and_an_address_of_none_are_told(sending: Sending, stream: Stream) -> None:
    missing = TransitionTopic(sending.address + "-missing", timeout=0.5)
    with pytest.raises(FeedAwayError, match=r"-missing, does not take them.*make the topic"):
        missing.send([("a|b", {})])
    missing.close()
    with pytest.raises(FeedError):
        TransitionTopic("file:x")


ORDERS_OF_CUSTOMERS = ForeignKey.of([AttributeName("s", "orders", "customer")], [AttributeName("s", "customers", "id")])
CUSTOMERS_OF_ORDERS = ForeignKey.of([AttributeName("s", "customers", "id")], [AttributeName("s", "orders", "customer")])


@pytest.mark.parametrize("page", [1, 1000])
def test_transitions_of_contracts_go_out_with_those_of_dependencies_in_the_order_of_versions(
    database_url: str, stream: Stream, engine: Engine, sending: Sending, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_transitions, "PAGE", page)
    made = PostgresContracts(engine).add(ORDERS_OF_CUSTOMERS, EXACT, "Ada")
    break_and_mend(database_url, stream, 2)
    sending.sender.send_new()
    received = [message for _, message in sending.received()]
    assert [m["version"] for m in received] == sorted(m["version"] for m in received)  # type: ignore[type-var]
    of_contracts = [m for m in received if "contract_id" in m]
    assert of_contracts == sending.of_contracts()
    assert [m for m in received if m not in of_contracts] == sending.expected()
    assert [(m["kind"], m["witness_value"]) for m in of_contracts] == [("violated", "9"), ("mended", "9")] * 2
    assert of_contracts[0]["dependent"] == [["s", "orders", "customer"]]
    assert {key for key, m in sending.received() if "contract_id" in m} == {f"contract|{made.contract_id}"}
    break_and_mend(database_url, stream, 1)
    sending.sender.send_new()
    assert [m for _, m in sending.received() if "contract_id" in m] == sending.of_contracts()
    assert len(sending.of_contracts()) == 6


def test_a_contract_that_is_violated_when_it_is_added_is_told_though_its_version_was_sent_before(
    database_url: str, stream: Stream, engine: Engine, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    contracts = PostgresContracts(engine)
    break_and_mend(database_url, stream, 1)
    sending.sender.send_new()
    contracts.add(ORDERS_OF_CUSTOMERS, EXACT, "Ada")
    contracts.add(CUSTOMERS_OF_ORDERS, EXACT, "Ada")

    def crash(sink: str, version: int) -> None:
        raise RuntimeError("the plug was pulled")

    with monkeypatch.context() as patched:
        patched.setattr(sending.outbox, "advance", crash)
        with pytest.raises(RuntimeError):
            sending.sender.send_new()
    assert sending.sender.send_new() == 1
    assert sending.sender.send_new() == 0
    (added,) = sending.of_contracts()
    assert (added["contract_id"], added["version"], added["kind"], added["position"]) == (2, 3, "violated", None)
    assert [m for _, m in sending.received()] == [*sending.expected(), added, added]
    contracts.remove(2)
    stream.change("customers", None, ["9", "Eve"])
    consume(database_url, stream)
    assert sending.sender.send_new() == 0, "what is forgotten is not told, and nothing else is"
