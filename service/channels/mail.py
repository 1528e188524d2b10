"""Own the sending of mail by SMTP: with STARTTLS, with TLS from the first byte, or plain where the settings say so."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlsplit

from service.usecases.watches import ChannelError

SECONDS = 10.0
"""How long each answer of the server may take."""

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
    try:
        with _connect(server) as connection:
            if server.user is not None:
                connection.login(server.user, server.password or "")
            refused = connection.send_message(message)
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise ChannelError(f"The mail server {server.host}:{server.port} did not take it: {_said(error)}") from error
    if refused:
        # The others have it: to try again would send it to them once more.
        raise ChannelError(
            f"The mail server {server.host}:{server.port} refused {len(refused)} of {len(to)} receivers", is_final=True
        )


def _connect(server: MailServer) -> smtplib.SMTP:
    if server.scheme == "smtps":
        return smtplib.SMTP_SSL(server.host, server.port, timeout=SECONDS, context=ssl.create_default_context())
    connection = smtplib.SMTP(server.host, server.port, timeout=SECONDS)
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
