"""A backup of a database that wants TLS, or is newer than the pg_dump that comes with us."""

from __future__ import annotations

import select
import shlex
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import make_url

from service.core.errors import StateError
from service.store.backup import back_up
from service.store.embedded import programs
from tests import states
from tests.following import shop_tables

CERTIFICATE = Path(__file__).parents[1] / "data" / "loopback.pem"


class TlsInFront:
    """Postgres' way to TLS, in front of a server that has none: what a client asks for first, then bytes to and fro."""

    ASKED = bytes.fromhex("0000000804d2162f")

    def __init__(self, socket_path: str) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE)
        self._socket_path = socket_path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with suppress(OSError), plain, socket.socket(socket.AF_UNIX) as server:
            if plain.recv(8) != self.ASKED:
                return
            plain.sendall(b"S")
            server.connect(self._socket_path)
            with self._context.wrap_socket(plain, server_side=True) as client:
                while True:
                    for ready in [client] if client.pending() else select.select([client, server], [], [])[0]:
                        sent = ready.recv(1 << 16)
                        if not sent:
                            return
                        (server if ready is client else client).sendall(sent)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def tls_url(database_url: str) -> Iterator[str]:
    """Give the test's database, with a state, as one that is reached over TLS alone."""
    states.store(database_url, shop_tables())
    own = make_url(database_url)
    ((port,),) = states.query(database_url, "select current_setting('port')")
    with closing(TlsInFront(f"{own.query['host']}/.s.PGSQL.{port}")) as front:
        address = own.set(host="127.0.0.1", port=front.port, query={"sslmode": "require"})
        yield address.render_as_string(hide_password=False)


def test_a_pg_dump_without_tls_says_what_to_put_on_the_path(
    tls_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StateError, match=r"SSL .* not compiled in\. .* put one on the PATH, of Postgres \d+ or"):
        back_up(tls_url, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_pg_dump_on_the_path_is_asked_where_that_of_the_wheel_cannot(
    tls_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of this test reads by the socket what it is told to read over TLS."""
    mine = tmp_path / "bin" / "pg_dump"
    mine.parent.mkdir()
    plain = make_url(database_url).render_as_string(hide_password=False)
    mine.write_text(f'#!/bin/sh\nPATH=; exec {programs() / "pg_dump"} "$@" --dbname={shlex.quote(plain)}\n')
    mine.chmod(0o700)
    monkeypatch.setenv("PATH", str(mine.parent))
    assert back_up(tls_url, tmp_path / "b").tables > 1
