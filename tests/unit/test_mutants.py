"""What explains a mutant that lives speaks of the code as it is."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mutants.report import EXPLAINED

ROOT = Path(__file__).parents[2]


def squeezed(text: str) -> str:
    """Leave out all white space, so that a statement of several lines is that of one."""
    return "".join(text.split())


def test_each_mutant_that_is_explained_changes_a_line_of_its_module() -> None:
    explained = json.loads(EXPLAINED.read_text("utf-8"))
    assert sum(map(len, explained.values())) > 200
    gone = []
    for path, changes in explained.items():
        source = squeezed((ROOT / path).read_text("utf-8"))
        for change in changes:
            before = "".join(line[2:] for line in change.splitlines() if line.startswith("- "))
            if squeezed(before) not in source:
                gone.append(f"{path}: {before}")
    assert gone == []
