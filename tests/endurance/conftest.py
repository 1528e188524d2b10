"""Own how long the proofs run: short in `make test-crashes`, whole in `make endurance`, with a table of figures."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.store.embedded import EmbeddedPostgres
from tests.connect import running_source, source_url
from tests.endurance.spark_masters import ROOT
from tests.ports import free_ports
from tests.postgres import with_template
from tests.whole import IS_WHOLE

__all__ = ["running_source", "source_url"]

_figures: dict[str, dict[str, object]] = {}


@pytest.fixture
def whole() -> bool:
    """Tell whether the proof is to run in full."""
    return IS_WHOLE


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Give what puts figures of this test into the table."""
    of_test = _figures.setdefault(request.node.name.removeprefix("test_").replace("_", " "), {})
    return lambda **figures: of_test.update(figures)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IS_WHOLE and _figures:
        terminalreporter.section("endurance")
        for name, figures in _figures.items():
            terminalreporter.write_line(name)
            for figure, number in figures.items():
                shown = f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"
                terminalreporter.write_line(f"    {figure.replace('_', ' '):<40} {shown:>12}")


@pytest.fixture(scope="session")
def archive() -> Path:
    """Pack the environment that executors unpack; beside it are what it unpacks to, and the script that runs jobs."""
    made = subprocess.run([sys.executable, "-m", "tools.make_dist"], cwd=ROOT, check=False, capture_output=True)
    assert made.returncode == 0, made.stderr
    path = ROOT / "dist/subsetd-environment.tar.gz"
    shutil.rmtree(path.with_name("environment"), ignore_errors=True)
    with tarfile.open(path) as packed:
        packed.extractall(path.with_name("environment"), filter="tar")
    return path


@pytest.fixture(scope="session")
def listening() -> Iterator[EmbeddedPostgres]:
    """Run a Postgres with an address, as executors elsewhere need it, and a password."""
    folder = Path(tempfile.mkdtemp(prefix="subsetd-test-"))
    with with_template(EmbeddedPostgres(folder, throw_away=True, port=free_ports(1)[0])) as server:
        yield server
