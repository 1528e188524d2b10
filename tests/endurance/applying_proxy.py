"""Own what the stand-in for a Kubernetes lacks: what is applied and not there is made, a new pod is pending."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes
from urllib.parse import urlsplit


@contextmanager
def applying(address: str) -> Iterator[str]:
    """Pass what clients ask on to the server at an address; give the address to ask at."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_accept, args=(listener, address), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _accept(listener: socket.socket, address: str) -> None:
    target = urlsplit(address)
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection((target.hostname, target.port))
        threading.Thread(target=_requests, args=(client, server, address), daemon=True).start()
        threading.Thread(target=_pass_on, args=(server.recv, client), daemon=True).start()


def _requests(client: socket.socket, server: socket.socket, address: str) -> None:
    """Pass requests on, one behind the other; behind one that asks for another protocol all that comes."""
    with suppress(OSError), client, server, client.makefile("rb") as asked:
        while line := asked.readline():
            head = b"".join(iter(asked.readline, b"\r\n"))
            told = message_from_bytes(head)
            assert "Transfer-Encoding" not in told
            body = asked.read(int(told.get("Content-Length", 0)))
            method, path, protocol = line.split()
            if method == b"PATCH" and b"force=true" in path and not _is_there(f"{address}{path.decode()}"):
                collection = path.partition(b"?")[0].rpartition(b"/")[0]
                line = b"POST %s %s\r\n" % (collection, protocol)
                head = head.replace(told["Content-Type"].encode(), b"application/json")
            elif method == b"POST" and path.endswith(b"/pods"):
                body = json.dumps(json.loads(body) | {"status": {"phase": "Pending"}}).encode()
                head = re.sub(rb"(?im)^content-length: *\d+", b"Content-Length: %d" % len(body), head)
            server.sendall(line + head + b"\r\n" + body)
            if "Upgrade" in told:
                break
        _pass_on(asked.read1, server)


def _is_there(address: str) -> bool:
    try:
        with urllib.request.urlopen(address.partition("?")[0], timeout=60):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise


def _pass_on(read: Callable[[int], bytes], sink: socket.socket) -> None:
    with suppress(OSError):
        while data := read(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)
