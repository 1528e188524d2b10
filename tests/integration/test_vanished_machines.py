"""Machines that vanish without a word: who waits for them notices in a minute, on either side of a connection.

Who is only idle has not vanished: no timeout of a server ends such a session.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from service.store.database import connect, make_engine
from service.store.embedded import EmbeddedPostgres
from service.stream.postgres_address import parse_address
from tests import states
from tests.in_memory import IN_MEMORY
from tests.ports import free_ports

OF_THE_SERVER = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Give the address of a server that is reached over TCP; over a socket of the file system nothing can vanish."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-tcp-", dir=IN_MEMORY))
    settings = {"wal_level": "logical", "max_wal_senders": "5"}
    (port,) = free_ports(1)
    with EmbeddedPostgres(folder, throw_away=True, extra_settings=settings, port=port) as server:
        yield server.url


def of_the_server(connection: Any) -> dict[str, str]:
    return {name: setting(connection, name) for name in OF_THE_SERVER}


def setting(connection: Any, name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"show {name}")
        return str(cursor.fetchone()[0])


def user_timeout(connection: Any) -> int:
    """Give how long, in milliseconds, what was sent may stay without an answer of the other machine."""
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as ours:
        return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


def test_the_state_s_server_gives_the_locks_of_a_vanished_machine_back_and_its_own_end_is_noticed(address: str) -> None:
    engine = make_engine(address, "test-vanished", statement_timeout_ms=60_000)
    with closing(engine.raw_connection()) as connection:
        assert of_the_server(connection.driver_connection) == OF_THE_SERVER
        assert user_timeout(connection.driver_connection) == 60_000
    engine.dispose()


def test_a_source_s_end_is_noticed_where_a_question_is_on_its_way(address: str) -> None:
    source = parse_address(address, "shop")
    with closing(source.connect()) as connection:
        assert user_timeout(connection) == 20_000
    with closing(source.connect_for_replication()) as connection:
        assert user_timeout(connection) == 20_000
        assert of_the_server(connection) == OF_THE_SERVER


def test_no_session_is_ended_for_being_idle(address: str) -> None:
    """One that holds a lock is idle while others work under it, one of a pool between questions, a new slot's too."""
    timeouts = ("idle_session_timeout", "idle_in_transaction_session_timeout")
    try:
        for timeout in timeouts:
            states.execute(address, f"alter database postgres set {timeout} = '5min'")
        with closing(psycopg2.connect(address)) as plain:
            assert [setting(plain, timeout) for timeout in timeouts] == ["5min", "5min"]
        engine = make_engine(address, "test-idle")
        with closing(engine.raw_connection()) as pooled, connect(address, "test-idle") as raw:
            assert setting(pooled.driver_connection, timeouts[0]) == "0"
            assert [setting(raw, timeout) for timeout in timeouts] == ["0", "0"]
        engine.dispose()
        source = parse_address(address, "shop")
        with closing(source.connect()) as asking, closing(source.connect_for_replication()) as sender:
            assert setting(asking, timeouts[0]) == "0"
            assert [setting(sender, timeout) for timeout in timeouts] == ["0", "0"]
    finally:
        for timeout in timeouts:
            states.execute(address, f"alter database postgres reset {timeout}")
