"""Alerts go out for real: over HTTP, SMTP and Kafka on loopback, at least once, under one id, whatever fails."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from itertools import chain
from typing import Any

import orjson
import pytest
from kafka import KafkaConsumer, TopicPartition

from service.channels import mail, webhook
from service.channels.mail import MailServer
from service.channels.webhook import WebhookSender
from service.core.errors import StateError
from service.store.database import make_engine
from service.store.watch_outbox import PostgresAlertOutbox
from service.stream.kafka_alerts import AlertTopic
from service.stream.kafka_sockets import CLOSING
from service.usecases import watch_sender
from service.usecases.watch_sender import LONGEST_PAUSE, WatchSender, pause
from service.usecases.watches import MOST_ATTEMPTS, AlertState, Channel, ChannelKind, Channels
from service.watch_runner import _check
from tests import states
from tests.broker import KafkaBroker
from tests.following import COLUMNS
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for
from tests.watching import (
    LOOPBACK,
    MailBox,
    Receiver,
    Watching,
    channels_to,
    mail_server,
    new_watch,
    pair_rule,
    receiving,
)

SECRET = "a secret of the test"


@pytest.fixture
def watching(database_url: str) -> Iterator[Watching]:
    """Give a state in which a pair does not hold, so that each new watch has something to tell."""
    tables = Tables(dict(COLUMNS))
    states.store(database_url, tables.add("customers", ["1", "Ada"]).add("orders", ["10", "9", None]))
    engine = make_engine(database_url, "test-watches")
    made = Watching(engine)
    yield made
    made.looks.close()
    engine.dispose()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def box() -> Iterator[MailBox]:
    with mail_server() as found:
        yield found


def add(watching: Watching, channel: Channel, name: str = "w") -> None:
    watching.watches.add(new_watch(pair_rule(), name, channel=channel))


@contextmanager
def delivering(sender: WatchSender) -> Iterator[WatchSender]:
    try:
        yield sender
    finally:
        sender.close()


def deliver(watching: Watching, sender: WatchSender) -> None:
    """Look, and wait until what is on its way has ended in one way or the other."""
    sender.look()
    assert sender.fault is None
    settle(sender)


def settle(sender: WatchSender) -> None:
    wait_for(lambda: all(one.done() for one in sender._on_its_way.values()))


@contextmanager
def read_only(url: str, watching: Watching) -> Iterator[None]:
    """Let the database take no writes, as one does that became a standby."""
    name = watching.engine.url.database
    watching.looks.close()
    watching.engine.dispose()
    states.execute(url, f"alter database {name} set default_transaction_read_only = on")
    try:
        yield
    finally:
        states.execute(url, f"set transaction read write; alter database {name} reset default_transaction_read_only")
        watching.looks.close()
        watching.engine.dispose()


def test_a_webhook_gets_signed_json_once(watching: Watching, receiver: Receiver) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, f"{receiver.url}?a=1", secret=SECRET))
    channels = channels_to(WebhookSender(LOOPBACK, lambda: 1234.5))
    with delivering(watching.sender(channels)) as sender:
        deliver(watching, sender)
        deliver(watching, sender)
    ((path, headers, message),) = receiver.requests
    (alert,) = watching.alerts()
    assert path == "/hook?a=1"
    assert (alert.state, alert.attempts, alert.fault) == (AlertState.DELIVERED, 1, None)
    assert headers["X-Subsetd-Delivery"] == message["id"] == str(alert.delivery_id)
    assert (message["watch"], message["kind"], message["version"]) == ("w", "fired", 1)
    assert message["subjects"][0]["name"] == "s.orders.customer ⊆ s.customers.id"
    told = dict(part.split("=", 1) for part in headers["X-Subsetd-Signature"].split(","))
    signed = f"{told['t']}.{headers['body']}".encode()
    assert told["v1"] == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert told["t"] == "1234"


def test_slack_gets_a_text_in_which_nothing_is_a_link(watching: Watching, receiver: Receiver) -> None:
    watching.watches.add(new_watch(pair_rule(), "<!channel> & co", channel=Channel(ChannelKind.SLACK, receiver.url)))
    with delivering(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
    ((_, headers, message),) = receiver.requests
    assert message["text"].startswith("&lt;!channel&gt; &amp; co: fired\n")
    assert "X-Subsetd-Signature" not in headers


def test_mail_comes_with_an_id_that_is_the_same_when_it_comes_again(watching: Watching, box: MailBox) -> None:
    add(watching, Channel(ChannelKind.EMAIL, to=("ada@example.org", "bob@example.org")), "orders ⊆ customers")
    server = MailServer.of(f"smtp+plain://me:p%40ss@127.0.0.1:{box.port}")
    box.refuses = "451 later"
    with delivering(watching.sender(channels_to(mail=(server, "subsetd@example.org")))) as sender:
        deliver(watching, sender)
        assert "451" in (watching.alerts()[0].fault or "")
        box.refuses = None
        watching.clock.now += 1
        deliver(watching, sender)
    ((to, text),) = box.mails
    (alert,) = watching.alerts()
    parsed = message_from_string(text)
    assert to == ["ada@example.org", "bob@example.org"]
    assert parsed["Message-ID"] == f"<{alert.delivery_id}@subsetd>"
    assert base64.b64decode(box.logins[0]) == b"\0me\0p@ss"
    assert (alert.state, alert.attempts) == (AlertState.DELIVERED, 2)


def test_a_mail_that_some_of_its_receivers_got_is_not_sent_again(watching: Watching, box: MailBox) -> None:
    add(watching, Channel(ChannelKind.EMAIL, to=("ada@example.org", "gone@example.org")))
    server = MailServer.of(f"smtp+plain://127.0.0.1:{box.port}")
    box.unknown = ["gone@example.org"]
    with delivering(watching.sender(channels_to(mail=(server, "subsetd@example.org")))) as sender:
        for _ in range(2):
            deliver(watching, sender)
            watching.clock.now += LONGEST_PAUSE
    (alert,) = watching.alerts()
    assert [to for to, _ in box.mails] == [["ada@example.org"]]
    assert (alert.state, alert.attempts) == (AlertState.FAILED, 1)
    assert "refused 1 of 2 receivers" in (alert.fault or "")


@pytest.mark.parametrize(("unknown", "state"), [([], AlertState.DELIVERED), (["gone@example.org"], AlertState.FAILED)])
def test_a_mail_that_was_taken_is_not_sent_again_whatever_the_server_says_at_the_end(
    watching: Watching, box: MailBox, unknown: list[str], state: AlertState
) -> None:
    add(watching, Channel(ChannelKind.EMAIL, to=("ada@example.org", "gone@example.org")))
    server = MailServer.of(f"smtp+plain://127.0.0.1:{box.port}")
    box.unknown, box.goodbye = unknown, "421 too many connections"
    with delivering(watching.sender(channels_to(mail=(server, "subsetd@example.org")))) as sender:
        deliver(watching, sender)
    (alert,) = watching.alerts()
    assert (len(box.mails), alert.state, alert.attempts) == (1, state, 1)


def test_a_topic_gets_json_under_the_watch(watching: Watching, broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    add(watching, Channel(ChannelKind.KAFKA, topic=topic))
    channels = channels_to(topic=lambda name: AlertTopic(broker.bootstrap_servers, name, timeout=BOUND_SECONDS))
    with delivering(watching.sender(channels)) as sender:
        deliver(watching, sender)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, proxy_url=CLOSING, auto_offset_reset="earliest"
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[Any] = []
        wait_for(lambda: found.extend(chain(*consumer.poll(timeout_ms=500).values())) or found)
    finally:
        consumer.close()
    (record,) = found
    assert record.key == b"watch|1"
    assert orjson.loads(record.value)["id"] == str(watching.alerts()[0].delivery_id)


def test_what_fails_is_tried_again_later_and_later_and_given_up_with_a_record(
    watching: Watching, receiver: Receiver
) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
    receiver.answer = lambda: (500, {})
    with delivering(watching.sender(channels_to())) as sender:
        for attempt in range(1, MOST_ATTEMPTS + 1):
            deliver(watching, sender)
            deliver(watching, sender)
            assert len(receiver.requests) == attempt, "it is not tried again at once"
            watching.clock.now += pause(attempt, 1.0)
        deliver(watching, sender)
    (alert,) = watching.alerts()
    assert (alert.state, alert.attempts) == (AlertState.FAILED, MOST_ATTEMPTS)
    assert alert.fault == "127.0.0.1 answered 500"
    assert len({headers["X-Subsetd-Delivery"] for _, headers, _ in receiver.requests}) == 1
    assert len({headers["body"] for _, headers, _ in receiver.requests}) == 1
    assert watching.watches.health()[:2] == (0, 1)


def test_each_of_many_that_fail_keeps_its_pause(
    database_url: str, watching: Watching, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_sender, "AT_ONCE", 2)
    many = 12
    for i in range(many):
        add(watching, Channel(ChannelKind.WEBHOOK, receiver.url), f"w{i}")
    watching.look()
    states.execute(database_url, "update watch_alert set attempts = 10")  # the next pause is one of minutes
    receiver.answer = lambda: (500, {})
    with delivering(watching.sender(channels_to())) as sender:
        for _ in range(many):
            deliver(watching, sender)
            watching.clock.now += 1
    assert [one.attempts for one in watching.alerts()] == [11] * many


def test_pauses_grow_to_a_bound_and_half_of_each_is_chance() -> None:
    assert [pause(n, 1.0) for n in (1, 2, 3)] == [1, 2, 4]
    assert [pause(n, 0.0) for n in (1, 2, 3)] == [0.5, 1, 2]
    assert pause(1000, 1.0) == LONGEST_PAUSE
    assert 1800 < sum(pause(n, 0.5) for n in range(1, MOST_ATTEMPTS)) < 7200


def test_a_crash_between_sending_and_remembering_sends_twice_under_one_id(
    watching: Watching, receiver: Receiver
) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))

    class Crashing(PostgresAlertOutbox):
        def delivered(self, alert_id: int) -> None:
            raise StateError("the plug was pulled")

    with delivering(watching.sender(channels_to(), outbox=Crashing(watching.engine))) as sender:
        deliver(watching, sender)
    watching.restart()
    with delivering(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
    assert [message["id"] for _, _, message in receiver.requests] == [str(watching.alerts()[0].delivery_id)] * 2
    assert watching.alerts()[0].state is AlertState.DELIVERED


def test_a_database_that_goes_away_between_keeps_what_is_on_its_way(watching: Watching, receiver: Receiver) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
    faults: list[str] = []

    class Away(PostgresAlertOutbox):
        def pending(self, *_: Any) -> Any:
            raise StateError("the database is away")

    with delivering(watching.sender(channels_to(), outbox=Away(watching.engine), failed=faults.append)) as sender:
        sender.look()
        sender.look()
        assert (sender.fault, faults) == ("the database is away", ["the database is away"])
    watching.restart()
    with delivering(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(("status", "state"), [(204, AlertState.DELIVERED), (500, AlertState.PENDING)])
def test_while_the_database_takes_no_writes_an_alert_is_sent_once_and_what_became_of_it_is_kept(
    database_url: str, watching: Watching, receiver: Receiver, status: int, state: AlertState
) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
    watching.look()
    receiver.answer = lambda: (status, {})
    faults: list[str] = []
    told: list[tuple[str, str, str | None]] = []
    begun, channels = watching.clock.now, channels_to()
    with delivering(watching.sender(channels, failed=faults.append, told=lambda *one: told.append(one))) as sender:
        with read_only(database_url, watching):
            for _ in range(5):
                sender.look()
                settle(sender)
                watching.clock.now += LONGEST_PAUSE
            assert len(receiver.requests) == 1
            assert (watching.alerts()[0].state, watching.alerts()[0].attempts) == (AlertState.PENDING, 0)
            check = _check(sender, watching.watches)
            assert (check.ok, "what became of alert 1 is not in the history" in check.detail) == (False, True)
            assert (len(faults), told) == (1, []), "it is logged once"
        sender.look()
        settle(sender)
        watching.clock.now = begun  # the next attempt is not due
        deliver(watching, sender)
    assert (watching.alerts()[0].state, watching.alerts()[0].attempts, len(receiver.requests)) == (state, 1, 1)
    assert len(told) == 1


def test_one_that_hangs_and_a_mail_server_that_is_down_hold_up_no_other(
    watching: Watching, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as gone:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        down = MailServer.of(f"smtp+plain://127.0.0.1:{gone.getsockname()[1]}")
        add(watching, Channel(ChannelKind.WEBHOOK, hanging), "hangs")
        add(watching, Channel(ChannelKind.EMAIL, to=("ada@example.org",)), "down")
        add(watching, Channel(ChannelKind.WEBHOOK, receiver.url), "well")
        channels = channels_to(WebhookSender(LOOPBACK, time.time, seconds=BOUND_SECONDS), mail=(down, "me@example.org"))
        with delivering(watching.sender(channels)) as sender:
            sender.look()
            wait_for(lambda: receiver.requests)
            states_then = {one.watch: one.state for one in watching.alerts()}
            assert states_then["hangs"] is AlertState.PENDING
            silent.accept()[0].close()  # not by a bound, which the one that is well would have to keep as well
            settle(sender)
    found = {one.watch: one for one in watching.alerts()}
    assert (found["well"].state, found["hangs"].attempts, found["down"].attempts) == (AlertState.DELIVERED, 1, 1)
    assert watching.watches.health()[0] == 2


def test_alerts_of_one_watch_go_out_in_their_order(watching: Watching, receiver: Receiver) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
    watching.look()
    tests = [watching.watches.test(1) for _ in range(3)]
    receiver.answer = lambda: (500 if len(receiver.requests) == 1 else 204, {})
    with delivering(watching.sender(channels_to())) as sender:
        for _ in range(6):
            deliver(watching, sender)
            watching.clock.now += 1
    kinds = [message["kind"] for _, _, message in receiver.requests]
    assert kinds == ["fired", "fired", "test", "test", "test"]
    assert [message["id"] for _, _, message in receiver.requests[2:]] == [str(one.delivery_id) for one in tests]


def test_a_test_that_fails_is_not_tried_again(watching: Watching, receiver: Receiver) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
    with delivering(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
        receiver.answer = lambda: (404, {})
        watching.watches.test(1)
        deliver(watching, sender)
    assert watching.alerts()[0].state is AlertState.FAILED
    assert watching.watches.health() == (0, 0, None)


def test_redirects_are_not_followed(watching: Watching, receiver: Receiver) -> None:
    with receiving() as other:
        receiver.answer = lambda: (307, {"Location": other.url})
        add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
        with delivering(watching.sender(channels_to())) as sender:
            deliver(watching, sender)
        assert other.requests == []
    assert watching.alerts()[0].fault == "127.0.0.1 answered 307; redirects are not followed"


def test_a_server_that_answers_a_byte_now_and_then_is_cut_off(watching: Watching) -> None:
    stop = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000:
                if stop.wait(0.05):
                    return
                try:
                    connection.send(bytes([byte]))
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        add(watching, Channel(ChannelKind.WEBHOOK, f"http://127.0.0.1:{server.getsockname()[1]}/"))
        with delivering(watching.sender(channels_to(WebhookSender(LOOPBACK, time.time, seconds=0.5)))) as sender:
            deliver(watching, sender)
        stop.set()
        thread.join()
    assert "did not take it within 0.5 s" in (watching.alerts()[0].fault or "")


def test_a_defect_of_a_channel_is_a_failed_attempt(watching: Watching) -> None:
    class Broken:
        def check(self, channel: Channel) -> None: ...

        def send(self, *_: object) -> None:
            raise ZeroDivisionError("a secret")

        def close(self) -> None: ...

    channels: Channels = Broken()
    add(watching, Channel(ChannelKind.WEBHOOK, "http://x/"))
    with delivering(watching.sender(channels)) as sender:
        deliver(watching, sender)
    assert watching.alerts()[0].fault == "a defect: ZeroDivisionError"


def test_a_host_of_this_network_is_refused_when_it_is_sent_to_until_a_process_sends_that_may_reach_it(
    watching: Watching, receiver: Receiver
) -> None:
    add(watching, Channel(ChannelKind.WEBHOOK, receiver.url))
    with delivering(watching.sender(channels_to(WebhookSender([], time.time)))) as sender:
        deliver(watching, sender)
    (alert,) = watching.alerts()
    assert receiver.requests == []
    assert (alert.state, alert.attempts) == (AlertState.PENDING, 1)
    assert "set SUBSETD_WEBHOOK_ALLOW" in (alert.fault or "")
    watching.restart()
    with delivering(watching.sender(channels_to())) as sender:
        deliver(watching, sender)
    (alert,) = watching.alerts()
    assert (alert.state, alert.attempts, len(receiver.requests)) == (AlertState.DELIVERED, 2, 1)


def test_the_signature_is_the_documented_one() -> None:
    expected = hmac.new(b"key", b'7.{"a":1}', hashlib.sha256).hexdigest()
    assert webhook.sign("key", 7, b'{"a":1}') == f"t=7,v1={expected}"
