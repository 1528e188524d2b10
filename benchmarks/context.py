"""Own what a row of the benchmark gets: a work folder, a seed, a voice, and how large to make things."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console

WORK = Path(__file__).parent / "work"


@dataclass(frozen=True, slots=True)
class Context:
    """Carry the settings of one run of one row.

    `scale_factor` is TPC-H's and `size` scales everything else (tuples, seconds, clusters); 1 and 1 are the rows
    as specified, and only these are written to the file of results.
    """

    console: Console
    seed: int
    work: Path = WORK
    scale_factor: float = 1
    size: float = 1

    @property
    def as_specified(self) -> bool:
        return self.scale_factor == 1 and self.size == 1

    @property
    def logs(self) -> Path:
        return self.work / "logs"

    def random(self, purpose: str) -> Random:
        """Return a generator of its own for each purpose, so that one more draw here changes nothing there."""
        return Random(f"{self.seed} {purpose}")

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.size))

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)


def subsetd() -> str:
    """Return the path of the `subsetd` command that belongs to this interpreter."""
    return str(Path(sys.executable).with_name("subsetd"))
