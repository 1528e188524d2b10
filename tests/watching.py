"""Own what tests of watches are made of: a clock, watches, and who receives alerts on loopback for real."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from typing import Any

from sqlalchemy import Engine

from service.channels.alert_channels import AlertChannels, Topic
from service.channels.mail import MailServer
from service.channels.webhook import WebhookSender
from service.core.watch_rules import Rule, RuleKind
from service.store.watch_looks import PostgresLooks
from service.store.watch_outbox import PostgresAlertOutbox
from service.store.watches import PostgresWatches
from service.usecases.watch_evaluation import Evaluator
from service.usecases.watch_sender import WatchSender
from service.usecases.watches import Alert, Channel, ChannelKind, Channels, NewWatch

LOOPBACK = [ip_network("127.0.0.0/8")]
NOWHERE = Channel(ChannelKind.WEBHOOK, "https://alerts.example/x")


class Clock:
    """Give the time that a test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pair_rule(dependent: str = "s.orders.customer", referenced: str = "s.customers.id", when: str = "") -> Rule:
    return Rule(RuleKind.IND, when, dependent, referenced).checked()


def new_watch(rule: Rule, name: str = "w", debounce: float = 0, channel: Channel = NOWHERE, **more: Any) -> NewWatch:
    fields = {"tell_resolved": True, "with_values": False, "created_by": "Ada", **more}
    return NewWatch(name, rule, channel, debounce, **fields)


def below(bound: str, margin: str = "0") -> Rule:
    of_orders = {"dependent": "s.orders.customer", "referenced": "s.customers.id"}
    return Rule(RuleKind.COEFFICIENT, **of_orders, bound=Decimal(bound), margin=Decimal(margin)).checked()


class Watching:
    """Let watches look at a state by a clock that a test moves."""

    def __init__(self, engine: Engine) -> None:
        self.clock = Clock()
        self.engine = engine
        self.watches = PostgresWatches(engine)
        self.looks = PostgresLooks(engine)
        self.evaluator = Evaluator(self.looks, self.clock)

    def look(self, seconds: float = 0) -> list[tuple[str, int, int]]:
        """Let so much time pass and look; give what alerts came: kind, how many fired, how many are mended."""
        before = {one.alert_id for one in self.alerts()}
        self.clock.now += seconds
        assert self.evaluator.evaluate()
        new = [one for one in self.alerts() if one.alert_id not in before]
        return [(one.kind.value, one.body["fired"], one.body["resolved"]) for one in reversed(new)]

    def alerts(self) -> list[Alert]:
        """List all alerts, newest first."""
        return self.watches.alerts(None, None, None, 1000)

    def restart(self) -> None:
        """Be another process."""
        self.looks.close()
        self.evaluator = Evaluator(self.looks, self.clock)

    def sender(self, channels: Channels, **more: Any) -> WatchSender:
        """Make what delivers as well."""
        outbox = more.pop("outbox", None) or PostgresAlertOutbox(self.engine)
        fields = {"told": lambda *_: None, "failed": lambda _: None, **more}
        return WatchSender(self.evaluator, outbox, channels, self.clock, lambda: 1.0, **fields)


def channels_to(
    webhooks: WebhookSender | None = None,
    mail: tuple[MailServer, str] | None = None,
    topic: Callable[[str], Topic] | None = None,
) -> AlertChannels:
    return AlertChannels(webhooks or WebhookSender(LOOPBACK, lambda: 0.0), mail, topic)


@dataclass
class Receiver:
    """Take webhooks, and answer as `answer` says: a status, and headers."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    answer: Callable[[], tuple[int, dict[str, str]]] = lambda: (204, {})


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve a receiver of webhooks on a free port of loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, dict(self.headers), json.loads(body)))
            receiver.requests[-1][1]["body"] = body.decode()
            status, headers = receiver.answer()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with _running(server):
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        yield receiver


@dataclass
class MailBox:
    """Keep the mail that came: who it is to, and its lines. `refuses` is what the server says in place of taking it.

    Of the receivers `unknown` are refused. `goodbye` is the answer to QUIT. `in_clear` are the commands that everybody
    between could read.
    """

    port: int = 0
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    refuses: str | None = None
    unknown: Sequence[str] = ()
    goodbye: str = "221 bye"
    in_clear: list[str] = field(default_factory=list)


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None, *, from_the_first_byte: bool = False) -> Iterator[MailBox]:
    """Serve enough of SMTP (RFC 5321) for one that sends, on a free port of loopback; with `tls` after STARTTLS."""
    box = MailBox()

    class Handler(socketserver.StreamRequestHandler):
        is_secured = False

        def handle(self) -> None:
            with suppress(ssl.SSLError, ConnectionError):  # who does not trust the certificate leaves
                if from_the_first_byte:
                    self.secure()
                self.talk()
            self.connection.close()

        def secure(self) -> None:
            assert tls is not None
            self.connection = tls.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", 0)
            self.is_secured = True

        def talk(self) -> None:
            self.say("220 test")
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                verb = line.upper()
                if not self.is_secured:
                    box.in_clear.append(verb.split()[0])
                if verb.startswith("EHLO"):
                    offered = "STARTTLS" if tls is not None and not self.is_secured else "8BITMIME"
                    self.say(f"250-test\r\n250-{offered}\r\n250 AUTH PLAIN")
                elif verb == "STARTTLS":
                    self.say("220 go on")
                    self.secure()
                elif verb.startswith("AUTH PLAIN"):
                    box.logins.append(line.split()[2])
                    self.say("235 ok")
                elif verb.startswith("RCPT TO:"):
                    receiver = line[8:].strip("<> ")
                    if receiver in box.unknown:
                        self.say("550 unknown")
                        continue
                    to.append(receiver)
                    self.say("250 ok")
                elif verb == "DATA":
                    self.say("354 go on")
                    lines = iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ".")
                    text = "\n".join(lines)
                    if box.refuses is None:
                        box.mails.append((to, text))
                    self.say(box.refuses or "250 taken")
                elif verb == "QUIT":
                    self.say(box.goodbye)
                    return
                else:
                    self.say("250 ok")

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    with _running(server):
        box.port = server.server_address[1]
        yield box


@contextmanager
def _running(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
