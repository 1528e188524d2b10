"""The sockets of Kafka's clients are closed however the attempt to connect ends."""

from __future__ import annotations

import errno
import socket
import types

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.inet import KafkaNetSocket

from service.stream.kafka_sockets import CLOSING, ClosingSocket


class Refused(ClosingSocket):
    SCHEMES = ("refused",)
    code = errno.ECONNREFUSED

    def connect_ex(self, sock: socket.socket, sockaddr: object) -> int:
        return self.code


class Waiting(Refused):
    SCHEMES = ("waiting",)
    code = errno.EINPROGRESS


class Net:
    """An event loop whose sockets are never ready."""

    @staticmethod
    @types.coroutine
    def wait_write(sock: socket.socket, timeout_at: float | None = None):  # type: ignore[no-untyped-def]
        yield


def test_a_socket_that_could_not_connect_is_closed() -> None:
    with socket.socket() as sock:
        with pytest.raises(KafkaConnectionError, match="ECONNREFUSED"):
            Refused("refused://").sock_connect(Net(), sock, ("127.0.0.1", 1)).send(None)
        assert sock.fileno() == -1


def test_a_socket_that_connects_while_its_client_is_closed_is_closed_as_well() -> None:
    with socket.socket() as sock:
        attempt = Waiting("waiting://").sock_connect(Net(), sock, ("127.0.0.1", 1))
        attempt.send(None)
        assert sock.fileno() != -1
        attempt.close()
        assert sock.fileno() == -1


def test_the_address_of_the_proxy_stands_for_this_socket() -> None:
    assert type(KafkaNetSocket(CLOSING)) is ClosingSocket
