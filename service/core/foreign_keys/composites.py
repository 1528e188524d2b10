"""Own the score of composite foreign-key candidates: what the names of their parts say, and what stands in between.

Too few databases have composite foreign keys to fit a model to, so the score is a rule. It is the mean evidence of the
parts' names, times the inclusion, less what speaks for a key further up: of tables that share a composite (`city`, and
`city_population` with the same key) the one is meant that the others refer to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np

from service.core.foreign_keys.candidates import Candidate, Columns
from service.core.foreign_keys.choice import Choice, choose
from service.core.foreign_keys.name_features import name_evidence
from service.core.foreign_keys.names import IDENTIFIERS, split_name
from service.core.foreign_keys.profiles import ColumnProfile, Measured

COMPOSITE_THRESHOLD = 0.6
"""Least score of a composite that is suggested, as of Chen's."""


def composite_terms(
    measured: Mapping[Candidate, Measured], columns: Mapping[int, ColumnProfile]
) -> dict[Candidate, dict[str, float]]:
    """Give the terms of each composite candidate's score, whose sum is in [0, 1]."""
    evidence = name_evidence({pair for candidate in measured for pair in _pairs(candidate)}, columns)
    named = {
        candidate: of.phi
        * float(np.mean([evidence[pair] for pair in _pairs(candidate)]))
        * _is_keylike(candidate, columns)
        for candidate, of in measured.items()
    }
    above: dict[Columns, list[Columns]] = defaultdict(list)
    for candidate in named:
        above[candidate.dependent].append(candidate.referenced)
    found = {}
    for candidate, score in named.items():
        others = [key for key in above[candidate.dependent] if key != candidate.referenced]
        over = max((_over(candidate, key, named) for key in others), default=0.0)
        found[candidate] = {"names": score, "parent": -0.5 * score * over}
    return found


def _is_keylike(candidate: Candidate, columns: Mapping[int, ColumnProfile]) -> float:
    """Give the share of a key's columns that identify, where some do and no schema says that it is one."""
    names = [split_name(columns[column].name)[-1:] for column in candidate.referenced]
    identify = sum(words != () and words[0] in IDENTIFIERS for words in names)
    declared = all(columns[column].is_primary for column in candidate.referenced)
    return 1.0 if declared or not identify else identify / len(names)


def _over(candidate: Candidate, key: Columns, named: Mapping[Candidate, float]) -> float:
    """Say how well named this key is above the candidate's own: more than that is below it."""
    up, down = (named.get(Candidate(*ends), 0.0) for ends in ((candidate.referenced, key), (key, candidate.referenced)))
    return min(up, named[Candidate(candidate.dependent, key)]) if up > down else 0.0


def choose_composites(scores: Mapping[Candidate, float], threshold: float = COMPOSITE_THRESHOLD) -> Choice:
    """Choose composite candidates without conflict, and drop those that follow from others that are chosen.

    So does a part of a wider one, what a wider one's key refers to by columns that both have (a city's province and
    country, of what refers to the city), and what is a part of a wider one backwards.
    """
    choice = choose(scores, threshold)
    left = dict.fromkeys(choice.chosen)
    ruled_out = dict(choice.ruled_out)
    for candidate in sorted(left, key=lambda chosen: (len(chosen.dependent), -scores[chosen], chosen)):
        by = follows(candidate, left)
        if by is not None:
            del left[candidate]
            ruled_out[candidate] = by
    return Choice(tuple(left), ruled_out)


def said_by_composites(single: Collection[Candidate], composite: Collection[Candidate]) -> dict[Candidate, Candidate]:
    """Give which chosen candidates of one column say nothing new beside chosen composite ones, and beside which.

    They are parts of one, or lead through the key of a weak entity (Chen 1976) to its owner: `province(name, country)`
    has one column that refers, so what refers to a province says its country by that. The key of an association
    (`partsupp`) has more that refer, and schemas declare its sides beside it, as TPC-H does: those stay.
    """
    onwards = {candidate.dependent: candidate.referenced for candidate in single}
    said: dict[Candidate, Candidate] = {}
    for by in composite:
        referring = [column for column in by.referenced if (column,) in onwards]
        for own, through in _pairs(by):
            meant = onwards.get((own,))
            if meant == (through,) or (referring == [through] and meant == onwards[through,]):
                said.setdefault(Candidate((own,), meant), by)
    return said


def follows(candidate: Candidate, chosen: Collection[Candidate]) -> Candidate | None:
    """Give the chosen composite candidate that another, of one column or of more, follows from; None without one."""
    for by in chosen:
        if by != candidate and len(by.dependent) > 1 and _follows_from(candidate, by, chosen):
            return by
    return None


def _follows_from(candidate: Candidate, by: Candidate, chosen: Collection[Candidate]) -> bool:
    """Tell whether a candidate is a part of another, forwards or backwards, or leads through it to a chosen one."""
    onwards = dict(_pairs(by))
    if set(candidate.dependent) <= onwards.keys():
        through = tuple(onwards[column] for column in candidate.dependent)
        if through == candidate.referenced or Candidate(through, candidate.referenced) in chosen:
            return True
    backwards = {b: a for a, b in _pairs(by)}
    return all(backwards.get(a) == b for a, b in _pairs(candidate))


def _pairs(candidate: Candidate) -> Collection[tuple[int, int]]:
    return list(zip(candidate.dependent, candidate.referenced, strict=True))
