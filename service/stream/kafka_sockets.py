"""Own the closing of sockets that could not connect to Kafka.

kafka-python 3.0.12 drops such a socket in a cycle of objects, so it stays open until a full garbage collection: while a
broker is away that is three descriptors a second, and a process with a large, still heap runs out of them. Its table
of proxy schemes lets us put our own socket in: `proxy_url="closing://"` connects directly.
"""

from __future__ import annotations

import socket
from typing import Any

from kafka.net.inet import KafkaNetSocket

CLOSING = "closing://"


class ClosingSocket(KafkaNetSocket):
    """Connect directly, and close the socket if that fails."""

    SCHEMES = ("closing",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        """Connect `sock`; raise KafkaError with it closed.

        A client that is closed while it connects ends this coroutine by GeneratorExit, which is no Exception.
        """
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
