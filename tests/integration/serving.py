"""Own how tests serve an app: real uvicorn on a free loopback port, in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve the app and give its address; it takes connections at once, and answers when it has started."""
    # With the protocol named asyncio sets TCP_NODELAY; without it each answer waits 40 ms for an acknowledgement.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()
