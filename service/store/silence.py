"""Own how long a server may say nothing: a kernel answers for one that hangs, so TCP never gives it up."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psycopg2

SILENT_SECONDS = 120.0
"""What no statement of a batch takes, however slow the disk."""


class Silence:
    """Cut connections at their sockets, so that whoever waits there is told, when nothing was heard for so long."""

    def __init__(self, connections: Callable[[], Iterable[Any]]) -> None:
        self._connections = connections
        self._timer: threading.Timer | None = None

    def heard(self) -> None:
        """Begin to count, or begin anew."""
        self.end()
        self._timer = threading.Timer(SILENT_SECONDS, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _cut(self) -> None:
        for connection in self._connections():
            with suppress(psycopg2.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as its_socket:
                its_socket.shutdown(socket.SHUT_RDWR)
