"""What explains a mutant that lives speaks of the code as it is, and others may go on to call what is exchanged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.mutants.compiled_math import LIKE_COMPILED, like_compiled
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


def test_functions_of_math_do_as_compiled_code_where_they_would_raise_and_else_as_python() -> None:
    assert [like_compiled(name)(0.25) for name in LIKE_COMPILED] == [getattr(math, n)(0.25) for n in LIKE_COMPILED]
    assert like_compiled("log")(0) == like_compiled("log1p")(-1.0) == -math.inf
    assert math.isnan(like_compiled("log")(-1.0))
    assert like_compiled("exp")(1000.0) == like_compiled("expm1")(1000) == math.inf
    assert like_compiled("log")(8, 2) == 3  # what draws examples asks for it, and of numbers of any length
    assert like_compiled("log")(2**1000) == math.log(2**1000)
    with pytest.raises(ValueError, match=r"domain|positive"):
        like_compiled("log")(0, 2)
