"""Own what counts as right, wrong, missed or excused when foreign keys are looked for, and the measures of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.fk_data import Database
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.choice import implied

EXACT, DIRTY = 1.0, 0.0
"""Least inclusion of the known foreign keys that are to be found."""


@dataclass(frozen=True, slots=True)
class Result:
    """Hold what a method found in a database: right ones, wrong ones, missed ones, and wrong ones that are implied."""

    right: set[Candidate]
    wrong: set[Candidate]
    missed: set[Candidate]
    excused: set[Candidate]

    def f1(self, lenient: bool = False) -> float:
        """Give F1; leniently, wrong ones that are implied are left out of account."""
        return f_measure(len(self.right), len(self.wrong - self.excused if lenient else self.wrong), len(self.missed))


def judge(database: Database, chosen: Collection[Candidate], least_inclusion: float = EXACT) -> Result:
    """Compare a choice with the known foreign keys of one column whose inclusion is at least so much.

    The others, and those without values, count neither as right nor as wrong. Implied are those that follow from known
    ones along chains and backwards, parts of composites included.
    """
    truth = database.truth
    wanted = {pair for pair, inclusion in truth.items() if inclusion is not None and inclusion >= least_inclusion}
    picked = set(chosen) - (set(truth) - wanted)
    known = set(truth) | database.parts
    return Result(picked & wanted, picked - wanted, wanted - picked, implied(known) | database.parts)


def f_measure(right: int, wrong: int, missed: int) -> float:
    """Give F1; 1 where there was nothing to find and nothing was found."""
    return 2 * right / (2 * right + wrong + missed) if right + wrong + missed else 1.0


def micro(results: Sequence[Result]) -> float:
    """Give F1 over all databases."""
    return f_measure(*(sum(len(getattr(r, name)) for r in results) for name in ("right", "wrong", "missed")))


def macro(results: Sequence[Result], lenient: bool = False) -> float:
    """Give the mean F1 of the databases that have foreign keys."""
    return float(np.mean([result.f1(lenient) for result in results if result.right or result.missed]))


def reliability(scores: np.ndarray, is_right: np.ndarray) -> list[str]:
    """Compare scores that read as probabilities with what came of them, a line for each range that has some."""
    edges = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
    lines = []
    for low, high in pairwise(edges):
        here = (scores >= low) & ((scores < high) | (high == 1.0))
        if here.any():
            said, came = float(scores[here].mean()), float(is_right[here].mean())
            lines.append(f"{low:.2f}-{high:.2f}: {int(here.sum()):6,} candidates, said {said:.3f}, right {came:.3f}")
    return lines


def summary(results: Sequence[Result]) -> str:
    """Say precision, recall and F1, over all (micro) and by database (macro, those with foreign keys)."""
    right, wrong, missed = (sum(len(getattr(r, name)) for r in results) for name in ("right", "wrong", "missed"))
    lenient = sum(len(result.wrong - result.excused) for result in results)
    precision, recall = right / max(right + wrong, 1), right / max(right + missed, 1)
    return (
        f"P {precision:.3f} R {recall:.3f} F1 micro {micro(results):.3f} macro {macro(results):.3f} | lenient: "
        f"micro {f_measure(right, lenient, missed):.3f} macro {macro(results, True):.3f}"
    )
