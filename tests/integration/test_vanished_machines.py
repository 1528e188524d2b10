"""Machines that vanish without a word: who waits for them notices in a minute, on either side of a connection."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.stream.postgres_address import parse_address
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
    with connection.cursor() as cursor:
        found = {}
        for name in OF_THE_SERVER:
            cursor.execute(f"show {name}")
            (found[name],) = cursor.fetchone()
    return found


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
