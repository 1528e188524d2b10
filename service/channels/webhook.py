"""Own the sending of JSON to a webhook: signed, to the address that was looked at, and in a bounded time."""

from __future__ import annotations

import errno
import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from service.channels.addresses import Network, Resolve, choose_address, resolve
from service.channels.bounds import within
from service.core.watch_rules import WatchError
from service.usecases.watches import ChannelError

SECONDS = 10.0
"""How long a webhook may take, from the question for its address to the status."""

PORTS = {"http": 80, "https": 443}


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Give the header X-Subsetd-Signature: HMAC-SHA256 over `timestamp.body`, as `t=…,v1=…`."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def check_url(url: str) -> None:
    """Raise WatchError for an address that no webhook can have; what it resolves to is looked at when it is sent to."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise WatchError(f"The address of a webhook cannot be read: {error}.") from None
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
        raise WatchError("The address of a webhook is http://host/path or https://host/path.")
    if parts.username is not None or parts.password is not None:
        raise WatchError("The address of a webhook has no user and password in it; let it know us by the signature.")
    if parts.fragment or any(one <= " " or one >= "\x7f" for one in url):
        raise WatchError("The address of a webhook is of ASCII without blanks, percent-encoded, without a fragment.")


class _Pinned(HTTPConnection):
    """Be a connection to one address of a host; TLS is with the host's name."""

    def __init__(self, host: str, port: int, address: str, is_secure: bool, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._address = address
        self._is_secure = is_secure
        self._is_cut = False

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._is_secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
        if self._is_cut:  # before there was a socket to cut
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def cut(self) -> None:
        """End whatever it waits for, or will."""
        self._is_cut = True
        if self.sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)  # below TLS, which another thread is in


class WebhookSender:
    """Post bodies to webhooks. `allowed` are networks beside the public ones; `now` gives seconds since 1970."""

    def __init__(
        self,
        allowed: Sequence[Network],
        now: Callable[[], float],
        *,
        seconds: float = SECONDS,
        resolving: Resolve = resolve,
    ) -> None:
        self._allowed = allowed
        self._now = now
        self._seconds = seconds
        self._resolving = resolving

    def send(self, url: str, body: bytes, delivery_id: str, secret: str | None) -> None:
        """Post a body; raise ChannelError unless the answer is a 2xx. Redirects are not followed."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or PORTS[parts.scheme]
        begun = time.monotonic()
        address = choose_address(host, port, self._allowed, self._resolve)
        left = max(self._seconds - (time.monotonic() - begun), 0.001)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "subsetd",
            "X-Subsetd-Delivery": delivery_id,
            "Connection": "close",
        }
        if secret is not None:
            headers["X-Subsetd-Signature"] = sign(secret, int(self._now()), body)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = _Pinned(host, port, address, parts.scheme == "https", left)
        # A server that sends a byte now and then would never be too late for the socket's own limit.
        watchdog = threading.Timer(left, connection.cut)
        watchdog.start()
        try:
            connection.request("POST", target, body, headers)
            status = connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            raise ChannelError(f"{host} did not take it within {self._seconds:g} s: {_said(error)}") from error
        finally:
            watchdog.cancel()
            connection.close()
        if not 200 <= status < 300:
            more = "; redirects are not followed" if 300 <= status < 400 else ""
            raise ChannelError(f"{host} answered {status}{more}")

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        return within(self._seconds, partial(self._resolving, host, port))


def _said(error: Exception) -> str:
    """Say what went wrong without what was sent or received, which may hold secrets."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__
