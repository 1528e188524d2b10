"""Own the command: `python -m tests.mutants [--sample N] [module …]` tries mutants and says which survive."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

# Compiled functions cannot be changed in place, so they run as the Python that they are written in.
os.environ["NUMBA_DISABLE_JIT"] = "1"

import pytest
from numba.core.registry import cpu_target

from tests.mutants.compiled_math import LIKE_COMPILED, like_compiled
from tests.mutants.plugin import MutantRun

ENVELOPES = ("avro", "envelope", "flattened", "pgoutput", "pgoutput_cells", "row_images", "source_order", "wire_schema")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("modules", nargs="*", help="all of service/core and the decoding of envelopes, unless given")
    parser.add_argument("--sample", type=int, default=0, help="try so many of each module, drawn by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", default="", help="only mutants of these lines: 12,40-45")
    parser.add_argument("--kept", type=Path, default=Path("build/mutants"), help="folder of results")
    parser.add_argument("--tests", nargs="*", default=["tests/unit"])
    parser.add_argument("--again", action="store_true", help="only those that lived the last time")
    parser.add_argument("--examples", type=int, default=100, help="of each law: with few, try --again with all")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    modules = given.modules or [
        *sorted(path.as_posix() for path in Path("service/core").rglob("*.py")),
        *(f"service/stream/{name}.py" for name in ENVELOPES),
    ]
    lines: set[int] = set()
    for part in filter(None, given.lines.split(",")):
        first, _, last = part.partition("-")
        lines |= set(range(int(first), int(last or first) + 1))
    given.kept.mkdir(parents=True, exist_ok=True)
    run = MutantRun(modules, given.sample, given.seed, given.kept, lines, given.verbose, given.again, given.examples)
    options = ["-p", "no:cacheprovider", "-p", "no:timeout", "-s", "-o", "addopts=--import-mode=importlib"]
    # Compiled code wraps silently where numpy's scalars warn, and divides by 0 and takes its logarithm as they do.
    # Functions that numpy calls for each value are compiled all the same, and numba looks math's up by their names.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    for name in LIKE_COMPILED:
        setattr(math, name, like_compiled(name))
    options += ["-W", "ignore::RuntimeWarning", "-W", "ignore:This process:DeprecationWarning"]
    return int(pytest.main([*options, *given.tests], plugins=[run]))


if __name__ == "__main__":
    sys.exit(main())
