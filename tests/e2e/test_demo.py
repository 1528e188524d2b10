"""The demonstration as a stranger runs it: from nothing to dependencies that break and hold again, twice; verified."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import demo


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    # Not tmp_path: the server of a root user runs as another one, who cannot enter pytest's folders.
    with tempfile.TemporaryDirectory(prefix="subsetd-demo-") as folder:
        Path(folder).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SUBSETD_")}
        yield {**kept, "SUBSETD_DATA_DIR": folder}


def subsetd(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "service.cli", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_demo_shows_breaks_and_a_second_run_goes_on(environment: dict[str, str]) -> None:
    first = subsetd(environment, "demo", "--once")
    assert "one Spark job" in first
    for dependent, referenced in demo.FOREIGN_KEYS:
        assert f"{dependent} ⊆ {referenced}" in first
    assert "10 of these are suggested as foreign keys, and nothing else" in " ".join(first.split())
    assert "Invoice.CustomerId ⊄ Customer.CustomerId: 42 is missing" in first
    assert "Invoice.CustomerId ⊆ Customer.CustomerId, thanks to 42" in first

    second = subsetd(environment, "demo", "--once")
    assert "an earlier run" in second
    assert second.count("broke") >= 10

    # Two rounds take everything back, so the state must equal a recomputation from the tables as they were read.
    own = {**environment, "SUBSETD_DATA_DIR": f"{environment['SUBSETD_DATA_DIR']}/demo"}
    said = subsetd(own, "verify", f"--source={demo.NAME}={demo.TABLES}")
    assert said.count("holds") == 9
    assert "equal" in said
    assert "is not recomputed" in subsetd(own, "verify")
