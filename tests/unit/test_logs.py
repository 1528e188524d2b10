"""The page of the logs names events that the service tells, with their levels, and no other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from service.consumer_process import ENDED, ConsumerProcess
from tests.waiting import BOUND_SECONDS

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (`.*?) \| ([a-z, ]+) \|", (ROOT / "docs" / "logs.md").read_text(), flags=re.MULTILINE)
LEVELS = ("debug", "info", "warning", "error")


def told() -> Iterator[tuple[str, str]]:
    """Give event and level of each call of a logger."""
    for path in sorted((ROOT / "service").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr=level), args=[ast.Constant(value=str(event)), *_]
                ) if level in LEVELS and name.startswith("log"):
                    yield event, level


def described() -> Iterator[tuple[str, str]]:
    for names, levels in ROWS:
        events, given = re.findall(r"`([^`]+)`", names), levels.split(", ")
        yield from zip(events, given * len(events) if len(given) == 1 else given, strict=False)


def test_each_event_of_the_page_is_told_with_its_level() -> None:
    found = set(described())
    assert len(found) > 25
    assert found <= set(told())


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    code = (
        "import structlog; from service.log import configure_logging; configure_logging('info')\n"
        "for _ in range(3000): structlog.get_logger().warning('columns changed')\n"
        "print('went on')"
    )
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert ended.stdout == "went on\n"


def test_what_fails_in_hearing_a_consumer_is_not_taken_for_its_end() -> None:
    """It lives: whoever waited for its end would never hear it again, and it would wait to be heard."""
    ours, theirs = Pipe()
    consumer: Any = ConsumerProcess.__new__(ConsumerProcess)
    consumer._connection = ours
    joined: list[str] = []
    consumer._process = SimpleNamespace(join=lambda: joined.append("joined"), exitcode=0)

    def fail() -> None:
        raise OSError("no room")

    theirs.send(("retrying",))
    theirs.send((ENDED,))
    error = None
    try:
        with consumer.heard_by(SimpleNamespace(retrying=fail)) as ended:
            assert ended.wait(BOUND_SECONDS)
    except OSError as told:
        error = told
    assert str(error) == "no room"
