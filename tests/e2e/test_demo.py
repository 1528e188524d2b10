"""The demonstration as a stranger runs it: from nothing to dependencies that break and hold again, twice; verified."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import demo
from tests.waiting import BOUND_SECONDS, wait_for


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


def require_consumer(address: str) -> None:
    """Hold what the overview tells of the consumer to one that is current."""

    def overview() -> dict[str, Any]:
        told: dict[str, Any] = httpx.get(f"{address}/api/v1/overview", timeout=BOUND_SECONDS).json()
        return told

    wait_for(lambda: overview()["lag_records"] == 0)
    told = overview()
    assert told["lag_unit"] == "bytes"
    assert {"name": "consumer", "ok": True} in [{"name": one["name"], "ok": one["ok"]} for one in told["checks"]]


def served(environment: dict[str, str]) -> str:
    """Run the demonstration until it serves, which tells of its consumer, and stop it; give what it said."""
    own = {**environment, "SUBSETD_PORT": "0", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "service.cli", "demo"], env=own, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            said.append(line)
            if address := re.search(r"served at (http://\S+)", line):
                require_consumer(address[1])
                running.send_signal(signal.SIGINT)
    assert running.returncode in (0, 130)
    return "".join(said)


def test_the_demo_shows_breaks_and_a_second_run_goes_on(environment: dict[str, str]) -> None:
    first = subsetd(environment, "demo", "--once")
    assert "one Spark job" in first
    for dependent, referenced in demo.FOREIGN_KEYS:
        assert f"{dependent} ⊆ {referenced}" in first
    assert "10 of these are suggested as foreign keys, and nothing else" in " ".join(first.split())
    assert "Invoice.CustomerId ⊄ Customer.CustomerId: 42 is missing" in first
    assert "Invoice.CustomerId ⊆ Customer.CustomerId, thanks to 42" in first

    second = served(environment)
    assert "an earlier run" in second
    assert second.count("broke") >= 10

    # Two rounds take everything back, so the state must equal a recomputation from the tables as they were read.
    own = {**environment, "SUBSETD_DATA_DIR": f"{environment['SUBSETD_DATA_DIR']}/demo"}
    said = subsetd(own, "verify", f"--source={demo.NAME}={demo.TABLES}")
    assert said.count("holds") == 9
    assert "equal" in said
    assert "is not recomputed" in subsetd(own, "verify")
