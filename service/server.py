"""Own the HTTP server's life: a port that is taken is said plainly, and a failed consumer ends it."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from service.core.errors import SubsetdError
from service.signals import ending_on_signals

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI


UVICORN: dict[str, Any] = {
    "log_config": None,
    "access_log": False,
    "proxy_headers": False,  # who believes a proxy names it in the settings; uvicorn believes all of this machine
    "loop": "uvloop",
    "http": "service.http_protocol:BoundedHttp",
    "ws": "none",
}
"""How uvicorn runs the service: the same wherever it runs, and whatever else is installed there."""


class PortError(SubsetdError):
    """The address to listen on cannot be had."""


def serve_until(
    service: FastAPI, host: str, port: int, failed: threading.Event, on_started: Callable[[int], None]
) -> None:
    """Serve until SIGINT, SIGTERM, or until `failed` is set; `on_started` hears the port once requests are taken.

    Raises PortError when the address is taken or is not this machine's.
    """
    import uvicorn

    with _listen(host, port) as listening:
        server = uvicorn.Server(uvicorn.Config(service, timeout_graceful_shutdown=10, **UVICORN))
        end_streams_with(server, service)
        ended = threading.Event()

        def watch() -> None:
            while not server.started and not ended.wait(0.02):
                pass
            if server.started:
                # Where the disk is full, or nobody reads, `failed` is to be looked at all the same.
                with suppress(OSError, SystemExit):
                    on_started(listening.getsockname()[1])
            while not ended.is_set():
                if failed.wait(0.2):
                    server.should_exit = True
                    return

        # Uvicorn would raise the signal again at its end and kill us before the consumer has ended its batch.
        server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]
        watcher = threading.Thread(target=watch, name="subsetd-watch")
        with ending_on_signals(lambda: setattr(server, "should_exit", True)):
            watcher.start()
            try:
                server.run(sockets=[listening])
            finally:
                ended.set()
                watcher.join()


def end_streams_with(server: uvicorn.Server, service: FastAPI) -> None:
    """Let the clients of streams go when the server ends: it waits for answers under way, and theirs have no end."""
    end = server.shutdown

    async def shutdown(sockets: list[socket.socket] | None = None) -> None:
        service.state.stream.end()
        await end(sockets)
        service.state.newest.close()

    server.shutdown = shutdown  # type: ignore[method-assign]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: asyncio then sends without delay (TCP_NODELAY); otherwise every answer waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror or error})"
        raise PortError(f"{host}:{port} {why}: stop who listens there, or set SUBSETD_PORT to another port.") from error
    listening.listen(128)
    return listening
