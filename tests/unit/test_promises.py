"""What docs/guarantees.md and SECURITY.md promise is proved by tests that exist; so is what bad input is told."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
PROOF = re.compile(r"`(?:tests/)?((?:unit|integration|spark|e2e|endurance)/\w+\.py)(?:::(\w+))?`")


def names_in(file: Path) -> set[str]:
    """Name the tests of a file, without running it."""
    nodes = ast.parse(file.read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(
    ("page", "least"), [("docs/guarantees.md", 80), ("SECURITY.md", 8), ("docs/design/2026-11-22-bad-input.md", 40)]
)
def test_every_proof_is_a_test(page: str, least: int) -> None:
    proofs = PROOF.findall((ROOT / page).read_text())
    assert len(proofs) >= least
    missing = []
    for path, name in proofs:
        file = ROOT / "tests" / path
        if not file.exists() or (name and name not in names_in(file)):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_every_promise_has_a_proof() -> None:
    rows = [line for line in GUARANTEES.read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if row not in ("| promise | proof |", "| --- | --- |")]
    assert len(promises) > 35
    assert [row for row in promises if not PROOF.search(row.split(" | ")[-1])] == []
