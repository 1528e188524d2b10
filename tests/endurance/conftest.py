"""Own how long the proofs run: short in `make test`, whole in `make endurance`, which ends with a table of figures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.connect import running_source, source_url
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
