"""What is told to a terminal, to another host, or in a message, has nothing in it that was not to go there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from service.core.corpus import CorpusKind
from service.core.errors import FeedError, SourceError
from service.stream.addresses import open_feed
from service.stream.connect_rest import read_connectors
from service.stream.kafka_address import without_password
from service.stream.schema_registry import HttpSchemaRegistry
from service.terminal import print_table, printable
from service.usecases.register_corpora import _check_location, has_key


@contextmanager
def answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Answer every request alike, on loopback; gives host and port, and the logins that came."""
    logins: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            logins.append(self.headers["Authorization"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", logins
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_login_does_not_follow_a_redirect_to_another_host() -> None:
    schema = json.dumps({"schema": '"string"'}).encode()
    with (
        answering(200, {}, schema) as (elsewhere, overheard),
        answering(302, {"Location": f"http://{elsewhere}/schemas/ids/1"}, b"") as (place, told),
    ):
        assert HttpSchemaRegistry(f"http://me:geheim@{place}").schema(1) == '"string"'
        with pytest.raises(FeedError, match="does not answer as Kafka Connect does"):
            read_connectors(f"http://me:geheim@{place}")
    assert None not in told
    assert overheard == [None, None]


@pytest.mark.parametrize(
    "address",
    [
        "kafka://me:ge/heim@h:9092/t",
        "kafka://me:g@heim@h:9092/t",
        "kafka://me:geheim@h:9092/t",
        "postgresq://me:g/heim@h",
    ],
)
def test_a_feed_s_address_is_shown_without_its_password(address: str) -> None:
    assert "heim" not in without_password(address)
    with pytest.raises(FeedError) as told:
        open_feed(address)
    assert "heim" not in str(told.value)


def test_keys_are_looked_for_before_a_location_is_shown() -> None:
    for location, kind in (
        ("postgresql://me:geheim@h/db", CorpusKind.CSV),
        ("s3://KEY:geheim@bucket/lake", CorpusKind.POSTGRES),
        ("abfs://c@a.dfs.core.windows.net/x?tenant_id=1&client_id=2&client_secret=geheim", CorpusKind.CSV),
        ("abfs://c@a.dfs.core.windows.net/x?sv=2024&sig=geheim", CorpusKind.PARQUET),
    ):
        with pytest.raises(SourceError, match="keeps no passwords") as told:
            _check_location(location, kind)
        assert "geheim" not in str(told.value)
    assert not has_key("abfs://c@a.dfs.core.windows.net/x?tenant_id=1")


def test_no_name_of_a_source_acts_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["attribute", "rows"], [["a\x1b[2Jb\nc\x9b", 12_000], ["Größe 木", None]])
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()[1:]] == [["a\\x1b[2Jb\\nc\\x9b", "12,000"], ["Größe", "木"]]
    assert printable("an ordinary one") == "an ordinary one"
