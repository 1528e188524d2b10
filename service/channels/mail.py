"""Own the sending of mail by SMTP: with STARTTLS, with TLS from the first byte, or plain where the settings say so."""

from __future__ import annotations

import smtplib
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from service.channels.bounds import within
from service.usecases.watches import ChannelError

SECONDS = 10.0
"""How long each answer of the server may take."""

WHOLE_SECONDS = 30.0
"""How long a mail may take in all, from the question for the server's address to its last answer."""

PORTS = {"smtp": 587, "smtps": 465, "smtp+plain": 25}


@dataclass(frozen=True, slots=True)
class MailServer:
    """Hold where mail goes out: `scheme` is smtp (STARTTLS), smtps (TLS) or smtp+plain (neither)."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None

    @classmethod
    def of(cls, address: str) -> MailServer:
        """Read `smtp://user:password@host:port`; raise ValueError, without the address, for one that is none."""
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError:
            raise ValueError("its port is no number") from None
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError("it is not smtp://, smtps:// or smtp+plain:// with user:password@host:port behind it")
        user, password = (None if one is None else unquote(one) for one in (parts.username, parts.password))
        return cls(parts.scheme, parts.hostname, port or PORTS[parts.scheme], user, password)


def send_mail(
    server: MailServer, sender: str, to: tuple[str, ...], subject: str, text: str, headers: dict[str, str]
) -> None:
    """Send a mail; raise ChannelError unless the server took it for all, a final one where it took it for some."""
    message = EmailMessage()
    message["From"], message["To"] = sender, ", ".join(to)
    message["Subject"] = " ".join(subject.split())[:200]
    message["Date"] = formatdate()
    for name, value in headers.items():
        message[name] = value
    message.set_content(text)
    line = _Line()
    try:
        refused = within(WHOLE_SECONDS, partial(_hand_over, server, message, line))
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise ChannelError(f"The mail server {server.host}:{server.port} did not take it: {_said(error)}") from error
    finally:
        line.cut()
    if refused:
        # The others have it: to try again would send it to them once more.
        raise ChannelError(
            f"The mail server {server.host}:{server.port} refused {len(refused)} of {len(to)} receivers", is_final=True
        )


class _Line:
    """Hold a connection from its first moment, so that it can be cut off at any, also amid a handshake of TLS.

    A server that sends a byte now and then would never be too late for the socket's own limit.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_cut = False

    def hold(self, connected: socket.socket) -> None:
        """Hold what has been connected; raise TimeoutError when it is cut off already."""
        self._socket = connected.dup()  # TLS takes the other one over
        if self._is_cut:
            self._socket.close()
            connected.close()
            raise TimeoutError

    def cut(self) -> None:
        """End whatever waits for it, or will; nothing where that has ended."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()


class _Connection(smtplib.SMTP):
    """Be a connection whose line is held."""

    def __init__(self, server: MailServer, line: _Line) -> None:
        self._line = line
        super().__init__(server.host, server.port, timeout=SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._line.hold(connected)
        return connected


class _SecureConnection(smtplib.SMTP_SSL, _Connection):
    """Be one with TLS from the first byte."""

    def __init__(self, server: MailServer, line: _Line) -> None:
        self._line = line
        context = ssl.create_default_context()
        smtplib.SMTP_SSL.__init__(self, server.host, server.port, timeout=SECONDS, context=context)


def _hand_over(server: MailServer, message: EmailMessage, line: _Line) -> dict[str, tuple[int, bytes]]:
    """Send a mail on a line, and give whom the server refused it for."""
    connection = _connect(server, line)
    try:
        if server.user is not None:
            connection.login(server.user, server.password or "")
        return connection.send_message(message)
    finally:
        with suppress(smtplib.SMTPException, OSError):  # what was taken stays so, whatever is said at the end
            connection.quit()
        connection.close()


def _connect(server: MailServer, line: _Line) -> smtplib.SMTP:
    if server.scheme == "smtps":
        return _SecureConnection(server, line)
    connection = _Connection(server, line)
    if server.scheme == "smtp":
        try:
            connection.starttls(context=ssl.create_default_context())
        except (smtplib.SMTPException, OSError):
            connection.close()
            raise
    return connection


def _said(error: Any) -> str:
    """Say what went wrong by codes and names, as servers repeat what they were sent."""
    code = getattr(error, "smtp_code", None)
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return str(said) if code is None else f"{type(error).__name__} {code}"
