"""The Spark session as a process sees it: a driver takes its Java with it, whenever and however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for, wait_for_end

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import signal, sys
from spark_jobs.session import local_session
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    local_session(1).range(1 << 40).count()
except KeyboardInterrupt:
    sys.exit(130)
"""


def java_of(driver: subprocess.Popen[bytes]) -> psutil.Process | None:
    """Find Spark's launcher among a driver's children; the same process becomes its Java."""
    for child in psutil.Process(driver.pid).children():
        try:
            if "pyspark-shell" in child.cmdline():
                return child
        except psutil.Error:
            continue
    return None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_ends_while_its_java_starts_leaves_none(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", DRIVER], cwd=ROOT, stderr=subprocess.DEVNULL) as driver:
        java = wait_for(lambda: java_of(driver))
        assert java is not None
        driver.send_signal(number)
        assert driver.wait(120) == (-number if number is signal.SIGKILL else 130)
    try:
        wait_for_end(java, seconds=60)
    except AssertionError:
        java.kill()
        raise
