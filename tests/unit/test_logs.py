"""The page of the logs names events that the service tells, with their levels, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
