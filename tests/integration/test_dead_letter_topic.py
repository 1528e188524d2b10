"""The topic of dead letters, on a real broker: each letter is there before its batch is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from service.core.errors import FeedAwayError, FeedError
from service.core.model import BadRecord, RawRecord, RecordError
from service.stream.kafka_dead_letters import DeadLetterTopic, headers
from service.stream.kafka_producer import Outgoing
from service.stream.kafka_sockets import CLOSING
from service.usecases.batches import ErrorPolicy
from service.usecases.withheld import Withholding
from tests import states
from tests.broker import KafkaBroker
from tests.events import tracked_table
from tests.following import COLUMNS, Stream, consume
from tests.states import Tables


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = Tables(COLUMNS)
    tables.add("orders", ["10", "1", "first"])
    states.store(database_url, tables)
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables)


def test_letters_go_to_the_topic_with_the_headers_of_kafka_connect(
    database_url: str, stream: Stream, broker: KafkaBroker, topic: str
) -> None:
    stream.change("orders", None, ["11", "1", None])
    at = stream.write(b"[1]")
    sink = DeadLetterTopic(f"kafka://{broker.bootstrap_servers}/{topic}")
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE, sink=sink)
    sink.close()
    reader = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        proxy_url=CLOSING,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    letter = next(reader)
    reader.close()
    assert letter.value == b"[1]"
    told = dict(letter.headers)
    ((message,),) = states.query(database_url, "select message from dead_letter")
    assert told == {
        "__connect.errors.topic": str(stream.path).encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": str(at).encode(),
        "__connect.errors.exception.class.name": b"RecordError",
        "__connect.errors.exception.message": message.encode(),
    }


def test_nothing_is_stored_of_a_batch_whose_letters_cannot_be_sent(
    database_url: str, stream: Stream, broker: KafkaBroker, topic: str
) -> None:
    stream.change("orders", None, ["11", "1", None])
    stream.write(b"[1]")
    with pytest.raises(FeedAwayError, match=r"kafka://127\.0\.0\.1:1/letters.*SUBSETD_DEAD_LETTER_TOPIC"):
        consume(
            database_url,
            stream,
            on_error=ErrorPolicy.SET_ASIDE,
            sink=DeadLetterTopic("kafka://127.0.0.1:1/letters", timeout=0.5),
        )
    assert states.query(database_url, "select max(version) from state_version") == [(1,)]
    sink = DeadLetterTopic(f"kafka://{broker.bootstrap_servers}/{topic}")
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE, sink=sink)
    sink.close()
    assert states.read(database_url) == states.expected(stream.tables)


def test_the_headers_of_the_record_stay() -> None:
    record = RawRecord("t", 3, 7, b"k", b"v", 0, [("__debezium.newkey", b"x")])
    (first, *others) = headers(BadRecord(record, RecordError("no")))
    assert first == ("__debezium.newkey", b"x")
    assert len(others) == 5


def test_a_letter_of_which_the_place_alone_is_kept_is_sent_with_an_empty_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's producer takes no record with neither key nor value, and says so by a ValueError."""
    sent: list[Outgoing] = []
    sink = DeadLetterTopic("kafka://h:1/letters")
    monkeypatch.setattr(sink._producer, "send", sent.extend)
    hidden = replace(tracked_table("s", "orders", {"id": "text"}), wire=(None, "s", "orders"))
    hidden = replace(hidden, attributes=(replace(hidden.attributes[0], shown_characters=0),))
    records = [RawRecord("t", 3, 7, b"k", b"v", 0), RawRecord("t", 3, 8, None, b"w", 0)]
    bad = [BadRecord(record, RecordError("no")) for record in records]
    sink.send([*bad, *Withholding([hidden]).letters(bad)])
    assert [(one.key, one.value) for one in sent] == [(b"k", b"v"), (None, b"w"), (None, b""), (None, b"")]
    assert [dict(one.headers)["__connect.errors.offset"] for one in sent] == [b"7", b"8", b"7", b"8"]


@pytest.mark.parametrize("address", ["file:/x", "kafka://h:1/a,b", "kafka://h:1/?prefix=a"])
def test_an_address_of_other_than_one_topic_is_refused(address: str) -> None:
    with pytest.raises(FeedError, match="kafka://host:port/topic"):
        DeadLetterTopic(address)
