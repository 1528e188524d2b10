"""What a command loads: nothing of what it does not use, for each takes longer to load than most commands to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.waiting import BOUND_SECONDS

COMPILED = {"numba", "llvmlite", "scipy", "ot", "rapidfuzz"}
OTHERS = {"alembic", "apscheduler", "fastapi", "kafka", "prometheus_client", "py4j", "pyspark", "uvicorn"}
ANSWERS = {"numpy", "psycopg2", "pyarrow", "pydantic_settings", "sqlalchemy", "structlog"}


def loaded(database_url: str, *arguments: str) -> set[str]:
    """Run a command, and give the packages that it loaded."""
    environment = {**os.environ, "SUBSETD_DATABASE_URL": database_url}
    command = [sys.executable, "-X", "importtime", "-m", "service.cli", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=BOUND_SECONDS)
    return {name.partition(".")[0] for name in re.findall(r"^import time:.*\| +(\S+)$", ended.stderr, re.MULTILINE)}


@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_what_every_command_loads_is_little(database_url: str, arguments: str) -> None:
    packages = loaded(database_url, arguments)
    assert {"service", "typer"} <= packages
    assert not packages & (COMPILED | OTHERS | ANSWERS)


@pytest.mark.parametrize("arguments", ["corpus list", "corpus --help"])
def test_who_asks_a_corpus_loads_nothing_that_computes(database_url: str, arguments: str) -> None:
    packages = loaded(database_url, *arguments.split())
    assert {"service", "sqlalchemy"} <= packages, "it does load what it uses"
    assert not packages & (COMPILED | OTHERS)


def test_who_calls_a_kernel_does_not_load_linear_algebra() -> None:
    program = "from service.core.canonical import value_keys; value_keys(['1']); import sys; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    modules = ended.stdout.split()
    assert "numba.np.arraymath" in modules, "a kernel was called"
    assert "scipy.linalg" not in modules


def test_what_a_command_has_loaded_is_not_looked_through_for_garbage() -> None:
    program = """
import gc
from service.cli import COMMANDS, LoadedWhenCalled
LoadedWhenCalled("status", *COMMANDS["status"]).load()
print(gc.get_freeze_count() > len(gc.get_objects()), gc.isenabled())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout.split() == ["True", "True"]
