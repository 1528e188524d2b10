"""Mail goes out under TLS to a server whose certificate is good, and to no other: login and mail never in the clear."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest

from service.channels.mail import MailServer, send_mail
from service.usecases.watches import ChannelError
from tests.watching import MailBox, mail_server

CERTIFICATE = Path(__file__).parents[1] / "data" / "loopback.pem"
"""Of 127.0.0.1, signed by itself, with its key; for a hundred years."""


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the certificate as a machine trusts those in its store."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))


def send(box: MailBox, scheme: str, host: str = "127.0.0.1") -> None:
    server = MailServer.of(f"{scheme}://me:secret@{host}:{box.port}")
    send_mail(server, "subsetd@example.org", ("ada@example.org",), "it broke", "orders", {})


@pytest.mark.parametrize(("scheme", "in_clear"), [("smtp", ["EHLO", "STARTTLS"]), ("smtps", [])])
@pytest.mark.usefixtures("trusted")
def test_mail_and_login_go_under_tls(tls: ssl.SSLContext, scheme: str, in_clear: list[str]) -> None:
    with mail_server(tls, from_the_first_byte=scheme == "smtps") as box:
        send(box, scheme)
    ((to, text),) = box.mails
    assert to == ["ada@example.org"]
    assert "Subject: it broke" in text
    assert base64.b64decode(box.logins[0]) == b"\0me\0secret"
    assert box.in_clear == in_clear


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_certificate_that_nobody_signed_is_not_taken(tls: ssl.SSLContext, scheme: str) -> None:
    serving = mail_server(tls, from_the_first_byte=scheme == "smtps")
    with serving as box, pytest.raises(ChannelError, match="did not take it"):
        send(box, scheme)
    assert (box.mails, box.logins) == ([], [])


@pytest.mark.usefixtures("trusted")
def test_a_certificate_of_another_name_is_not_taken(tls: ssl.SSLContext) -> None:
    with mail_server(tls) as box, pytest.raises(ChannelError, match="did not take it"):
        send(box, "smtp", "localhost")
    assert (box.mails, box.logins) == ([], [])


def test_a_server_that_offers_no_tls_gets_nothing() -> None:
    """Somebody between may have taken the offer out."""
    with mail_server() as box, pytest.raises(ChannelError, match="did not take it"):
        send(box, "smtp")
    assert (box.mails, box.logins) == ([], [])
    assert set(box.in_clear) <= {"EHLO", "STARTTLS", "QUIT"}
