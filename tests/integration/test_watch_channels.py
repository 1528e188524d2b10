"""What channels refuse, and how long they may take in all: names, connections, handshakes and answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest

from service.channels import mail
from service.channels.mail import MailServer, send_mail
from service.channels.webhook import WebhookSender
from service.core.watch_rules import WatchError
from service.stream import kafka_alerts
from service.stream.kafka_alerts import AlertTopic
from service.usecases.watches import AlertState, Channel, ChannelError, ChannelKind
from tests.broker import KafkaBroker
from tests.integration.test_watch_delivery import deliver, delivering, watching
from tests.waiting import BOUND_SECONDS, wait_for
from tests.watching import LOOPBACK, Watching, channels_to, new_watch, pair_rule

__all__ = ["watching"]


def test_a_name_that_nobody_answers_for_is_cut_off() -> None:
    goes_on = threading.Event()

    def never(host: str, port: int) -> Sequence[str]:
        goes_on.wait()
        return ["127.0.0.1"]

    sender = WebhookSender(LOOPBACK, lambda: 0.0, seconds=0.2, resolving=never)
    try:
        with pytest.raises(ChannelError, match=r"The host slow\.test cannot be resolved: .*timed out"):
            sender.send("http://slow.test/x", b"{}", "id", None)
    finally:
        goes_on.set()


@contextmanager
def dripping(start: bytes) -> Iterator[tuple[int, threading.Event]]:
    """Be a server that says something and then a byte now and then; gives its port, and what tells that it was left."""
    stop, is_left = threading.Event(), threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            try:
                connection.sendall(start)
                while not stop.wait(0.05):
                    connection.sendall(b"x")
            except OSError:
                is_left.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        yield server.getsockname()[1], is_left
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("scheme", "start"),
    [("smtp+plain", b"220 "), ("smtp+plain", b"220 test\r\n250 "), ("smtps", b"\x16\x03\x03\x3f\xff")],
)
def test_a_mail_server_that_says_a_byte_now_and_then_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, scheme: str, start: bytes
) -> None:
    monkeypatch.setattr(mail, "WHOLE_SECONDS", 0.5)
    with dripping(start) as (port, is_left):
        server = MailServer.of(f"{scheme}://127.0.0.1:{port}")
        with pytest.raises(ChannelError, match=r"127\.0\.0\.1:\d+ did not take it: timed out"):
            send_mail(server, "me@example.org", ("ada@example.org",), "subject", "text", {})
        assert is_left.wait(60), "nobody goes on to listen"


def test_a_mail_server_that_is_reached_when_the_time_is_over_is_left() -> None:
    """Nobody waits for the connection any more, which would stay open until it is found in the garbage."""
    line = mail._Line()
    line.cut()
    late, server = socket.socketpair()
    with server, late:
        with pytest.raises(TimeoutError):
            line.hold(late)
        assert late.fileno() == -1
        assert server.recv(1) == b"", "nor does the line hold it"


def test_a_broker_that_is_away_is_a_failed_attempt(watching: Watching) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    watching.watches.add(new_watch(pair_rule(), channel=Channel(ChannelKind.KAFKA, topic="alerts")))
    channels = channels_to(topic=lambda name: AlertTopic(address, name, timeout=1))
    with delivering(watching.sender(channels)) as sender:
        deliver(watching, sender)
    (alert,) = watching.alerts()
    assert (alert.state, alert.attempts) == (AlertState.PENDING, 1)
    assert alert.fault == f"The topic kafka://{address}/alerts did not take it: ConnectionRefusedError"


def test_an_alert_waits_no_longer_than_its_turn_for_one_that_a_broker_does_not_take(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_alerts, "TURN_SECONDS", 0.1)
    topic = AlertTopic(broker.bootstrap_servers, broker.create_topic(), timeout=BOUND_SECONDS)
    with closing(topic), ThreadPoolExecutor(1) as pool:
        with broker.hanging():
            first = pool.submit(topic.send, "watch|1", {})
            wait_for(topic._lock.locked)
            with pytest.raises(ChannelError, match="has not taken another alert yet"):
                topic.send("watch|2", {})
        first.result(BOUND_SECONDS)
        topic.send("watch|2", {})


def test_a_topic_is_opened_once_whoever_sends_to_it_first(watching: Watching) -> None:
    both = threading.Barrier(2)
    opened: list[str] = []

    class Taking:
        def send(self, *_: object) -> None: ...

        def close(self) -> None: ...

    def open_topic(name: str) -> Taking:
        opened.append(name)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # for another that opens it as well
        return Taking()

    for name in ("first", "second"):
        watching.watches.add(new_watch(pair_rule(), name, channel=Channel(ChannelKind.KAFKA, topic="alerts")))
    with delivering(watching.sender(channels_to(topic=open_topic))) as sender:
        deliver(watching, sender)
    assert opened == ["alerts"]


@pytest.mark.parametrize(
    "address",
    [
        "a@b.c\r\nBcc: d@e.f",
        "a@b.c\nSubject: x",
        "a@b.c, d@e.f",
        "Ada <a@b.c>",
        "a b@c.d",
        "a@",
        "@b",
        "a@b@c",
        "ä@b.c",
        "a" * 255,
    ],
)
def test_an_address_of_mail_ends_no_header_and_names_no_other(address: str) -> None:
    channels = channels_to(mail=(MailServer.of("smtp+plain://127.0.0.1:1"), "me@example.org"))
    channels.check(Channel(ChannelKind.EMAIL, to=("ada@example.org",)))
    with pytest.raises(WatchError, match="name@host, without blanks"):
        channels.check(Channel(ChannelKind.EMAIL, to=("ada@example.org", address)))
