"""Own a trust store for Java of the certificates that this machine trusts.

The wheel's Java knows its own alone: where a proxy signs for the network, it would trust nobody whom pip trusts.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from pathlib import Path

BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
"""Where Debian, Fedora and SUSE have them, as one file."""

PASSWORD = "changeit"
"""Java's usual one: it guards nothing, but the file ends with a digest that begins with it."""


def machine_certificates() -> list[bytes]:
    """Give the certificates that this machine trusts, in DER: of `SSL_CERT_FILE`, or of the first bundle there is."""
    for bundle in (os.environ.get("SSL_CERT_FILE", ""), *BUNDLES):
        if bundle and Path(bundle).is_file():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cafile=bundle)
            return context.get_ca_certs(binary_form=True)
    return []


def write_trust_store(path: Path, certificates: list[bytes]) -> list[str]:
    """Write certificates as a JKS file; give the options by which a Java trusts them instead of its own."""
    entries = [
        struct.pack(">I", 2)
        + _text(f"machine-{number}")
        + struct.pack(">Q", 0)
        + _text("X.509")
        + _counted(certificate)
        for number, certificate in enumerate(certificates)
    ]
    data = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    path.write_bytes(data + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest())
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=jks",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
