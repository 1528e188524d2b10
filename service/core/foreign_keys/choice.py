"""Own the choice of foreign keys out of scored candidates, so that none is at odds with another.

After Chen, Narasayya and Chaudhuri, Fast Foreign-Key Detection in Microsoft SQL Server PowerPivot for Excel (2014), as
the BML paper's section 5.3 describes it: the candidate with the highest score is taken, those that it rules out are
dropped, and so on, down to a threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from service.core.foreign_keys.candidates import Candidate, Columns

CHEN_THRESHOLD = 0.6
"""Least score of a chosen candidate: the best of those that the BML paper tries (Figure 22)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Hold what was chosen, best first, and of each candidate that was ruled out the chosen one that did."""

    chosen: tuple[Candidate, ...]
    ruled_out: Mapping[Candidate, Candidate]


def choose(scores: Mapping[Candidate, float], threshold: float) -> Choice:
    """Choose greedily, without conflict, the candidates with a score of at least `threshold`.

    Dependent columns have one reference; and what is referred to does not refer back by the same columns. Of equal
    scores the candidate that is first in order is taken.
    """
    reference: dict[Columns, Candidate] = {}
    chosen: list[Candidate] = []
    ruled_out: dict[Candidate, Candidate] = {}
    for candidate in sorted(scores, key=lambda candidate: (-scores[candidate], candidate)):
        if scores[candidate] < threshold:
            break
        conflict = reference.get(candidate.dependent)
        back = reference.get(candidate.referenced)
        if conflict is None and back is not None and back.referenced == candidate.dependent:
            conflict = back
        if conflict is None:
            reference[candidate.dependent] = candidate
            chosen.append(candidate)
        else:
            ruled_out[candidate] = conflict
    return Choice(tuple(chosen), ruled_out)


def implied(chosen: Iterable[Candidate]) -> set[Candidate]:
    """Give what follows from foreign keys: along their chains, and backwards (2010 paper, section 5.2).

    A candidate that is implied is right, and says nothing new. What is chosen itself is not among them.
    """
    known = set(chosen)
    following: dict[Columns, set[Columns]] = {}
    for candidate in known:
        following.setdefault(candidate.dependent, set()).add(candidate.referenced)
    reached: set[Candidate] = set()
    for start in following:
        waiting, seen = [start], {start}
        while waiting:
            for column in following.get(waiting.pop(), ()):
                if column not in seen:
                    seen.add(column)
                    waiting.append(column)
                    reached.add(Candidate(start, column))
    reached |= {Candidate(candidate.referenced, candidate.dependent) for candidate in reached}
    return reached - known
