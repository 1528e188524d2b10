"""Own a proxy in front of a Postgres that cuts a connection in the middle of a COPY."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Pass connections on to a server's unix socket; once armed, cut the one that sends the next `phrase`.

    The phrase is in lower case. The statement goes through whole, of the data behind it a part only.
    """

    def __init__(self, socket_path: str, phrase: bytes) -> None:
        self.cuts = 0
        self._path = socket_path
        self._phrase = phrase
        self._armed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="proxy")]
        self._threads[0].start()

    def arm(self) -> None:
        """Cut at the next COPY."""
        self._armed.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            self._cut(each)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._path)
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pass_on, args=ends, name="proxy")
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                if self._phrase in data.lower() and self._armed.is_set():
                    self._armed.clear()
                    rest = source.recv(1 << 16)
                    sink.sendall(rest[: len(rest) // 2])
                    self.cuts += 1
                    break
        self._cut(source)
        self._cut(sink)

    @staticmethod
    def _cut(end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
