"""Own the ranking of foreign-key candidates, by each method: `rank(measured, columns, keys, method)`.

    rank(
        measured: Mapping[Candidate, Measured],    what was measured of each candidate, of one column or of more
        columns: Mapping[int, ColumnProfile],      all columns of the database, those without values too
        keys: Collection[Columns],                 what may be referred to: declared, or unique and not NULL
        method: Method = Method.COMBINED,
        telling: Told = untold,                    hears how many columns' names are compared
        rejected: Collection[Candidate] = (),      what is known to be none: the others are ranked as without it
    ) -> list[Ranked]                              best first: candidate, score, suggested, implied, terms

Of equal input the ranking is equal. A score is in [0, 1]; of COMBINED and ROSTIN, and one column, it is a probability.
Composite candidates are ranked by a rule on the names of their parts (`composites`), by RANDOMNESS by theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import nan

import numpy as np

from service.core.foreign_keys.candidates import Candidate, Columns
from service.core.foreign_keys.choice import CHEN_THRESHOLD, choose, implied
from service.core.foreign_keys.composites import (
    COMPOSITE_THRESHOLD,
    choose_composites,
    composite_terms,
    follows,
    said_by_composites,
)
from service.core.foreign_keys.copies import by_copies
from service.core.foreign_keys.features import pair_features
from service.core.foreign_keys.key_choice import choice_features, score_by_choice
from service.core.foreign_keys.model import AdditiveModel, fitted
from service.core.foreign_keys.name_features import Told, bare_names, untold
from service.core.foreign_keys.names import tell_nothing
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.rostin import rostin_features
from service.core.foreign_keys.second_look import Scored, score
from service.core.quantile_grids import COMPOSITE_CELLS, SINGLE_CELLS, Floats
from service.core.randomness import suggest_cut

NAMES_THRESHOLD = 0.75
"""Least evidence of a name that is chosen by names alone: the best on the development data."""


class Method(StrEnum):
    """Name how candidates are ranked.

    RANDOMNESS: by distance, cut where it jumps (2010 paper). NAMES: by how alike the names are. CHEN: with the BML
    paper's threshold. ROSTIN: ten rules of thumb, weighed. COMBINED: our own, that joins all of it; of columns whose
    names tell nothing by a model without them.
    """

    RANDOMNESS = "randomness"
    NAMES = "names"
    CHEN = "chen"
    ROSTIN = "rostin"
    COMBINED = "combined"


@dataclass(frozen=True, slots=True)
class Ranked:
    """Hold a candidate with its score and why it has it.

    `suggested`: chosen as a foreign key, without conflict with better ones. `implied`: follows from those that are,
    along their chains or backwards: right, and nothing new. `ruled_out_by`: the chosen one that it is at odds with.
    `terms`, the heaviest first, add up with the `intercept` to the log-odds of a model's score; of the other methods
    they are the score itself. `features` are what the terms were read from.
    """

    candidate: Candidate
    score: float
    suggested: bool
    implied: bool
    ruled_out_by: Candidate | None = None
    intercept: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)


def rank(
    measured: Mapping[Candidate, Measured],
    columns: Mapping[int, ColumnProfile],
    keys: Collection[Columns],
    method: Method = Method.COMBINED,
    telling: Told = untold,
    rejected: Collection[Candidate] = (),
    cells: tuple[int, int] = (SINGLE_CELLS, COMPOSITE_CELLS),
) -> list[Ranked]:
    """Rank candidates, of one column and composite ones, and choose among them; those by copies of tables come last.

    `cells` are the quantiles of a column, and of each column of a tuple, that randomness was measured on.
    Raises KeyError for a candidate with a column that `columns` has not, and what `telling` raises.
    """
    copied = by_copies(measured.keys(), columns)
    if copied:
        meant = {candidate: of for candidate, of in measured.items() if candidate not in copied}
        last = (Ranked(candidate, 0.0, False, False, copied[candidate]) for candidate in sorted(copied))
        return [*rank(meant, columns, keys, method, telling, rejected, cells), *last]
    none = {candidate for candidate in rejected if candidate in measured}
    if none:
        others = {candidate: of for candidate, of in measured.items() if candidate not in none}
        ranked = rank(measured, columns, keys, method, telling, cells=cells)
        as_if = [one for one in ranked if one.candidate in none]
        found = [
            *rank(others, columns, keys, method, telling, cells=cells),
            *(replace(of, suggested=False, implied=False) for of in as_if),
        ]
        return sorted(found, key=_place)
    of_one = {c: of for c, of in measured.items() if len(c.dependent) == 1}
    single = _rank_single(of_one, columns, keys, method, telling, cells[0])
    composite = {c: of for c, of in measured.items() if len(c.dependent) > 1}
    if not composite:
        return single
    found = [*single, *_rank_composite(composite, columns, method, cells[1])]
    chosen = {ranked.candidate for ranked in found if ranked.suggested}
    said: dict[Candidate, Candidate] = {}
    if method is Method.COMBINED:
        tuples = sorted(candidate for candidate in chosen if candidate in composite)
        said = said_by_composites(chosen - set(tuples), tuples)
    found = [
        replace(
            ranked,
            suggested=ranked.suggested and ranked.candidate not in said,
            implied=ranked.implied or follows(ranked.candidate, chosen) is not None,
            ruled_out_by=said.get(ranked.candidate, ranked.ruled_out_by),
        )
        for ranked in found
    ]
    return sorted(found, key=_place)


def _rank_single(
    measured: Mapping[Candidate, Measured],
    columns: Mapping[int, ColumnProfile],
    keys: Collection[Columns],
    method: Method,
    telling: Told,
    cells: int,
) -> list[Ranked]:
    single = {(c.dependent[0], c.referenced[0]): of for c, of in measured.items()}
    if not single:
        return []
    of_one = [key[0] for key in keys if len(key) == 1]
    features = pair_features(single, columns, of_one, telling)
    declared = any(column.is_primary for column in columns.values())
    nameless = method is Method.COMBINED and tell_nothing([column.name for column in columns.values()])
    name = "nameless" if nameless else method.value
    model = fitted(name, declared) if method in (Method.COMBINED, Method.ROSTIN) else None
    pairs, by_choice = list(single), None
    if model and (chooses := model if model.choice else model.beside):
        of_choice, kinds = choice_features(features, pairs, columns, frozenset(of_one))
        # Where columns have names, these say what is alike.
        by_choice = score_by_choice(chooses, {**features, **of_choice}, pairs, kinds if nameless else ())
    if model and model.choice and by_choice:
        scored = by_choice
    elif model:
        values = features if method is Method.COMBINED else rostin_features(single, columns)
        scored = score(model, values, pairs, lambda: bare_names(columns), by_choice)
    else:
        scores = _scores(method, features)
        scored = Scored(0.0, {method.value: scores}, features, scores)
    by_candidate = dict(zip(measured, scored.probability.tolist(), strict=True))
    choice = choose(by_candidate, _threshold(method, model, by_candidate, cells))
    chosen, following = set(choice.chosen), implied(choice.chosen)
    found = [
        Ranked(
            candidate=candidate,
            score=likely,
            suggested=candidate in chosen,
            implied=candidate in following,
            ruled_out_by=choice.ruled_out.get(candidate),
            intercept=scored.intercept,
            terms=_heaviest({name: float(of[place]) for name, of in scored.terms.items()}),
            features={name: float(of[place]) for name, of in scored.features.items()},
        )
        for place, (candidate, likely) in enumerate(by_candidate.items())
    ]
    return sorted(found, key=_place)


def _rank_composite(
    measured: Mapping[Candidate, Measured], columns: Mapping[int, ColumnProfile], method: Method, cells: int
) -> list[Ranked]:
    """Rank composite candidates by their randomness, or else by the names of their parts: no model knows them."""
    if method is Method.RANDOMNESS:
        terms = {c: {"randomness": 1 - (1.0 if of.distance is None else of.distance)} for c, of in measured.items()}
    else:
        terms = composite_terms(measured, columns)
    scores = {candidate: sum(of.values()) for candidate, of in terms.items()}
    threshold = _threshold(method, None, scores, cells) if method is Method.RANDOMNESS else COMPOSITE_THRESHOLD
    choice = choose_composites(scores, threshold)
    return [
        Ranked(
            candidate=candidate,
            score=score,
            suggested=candidate in choice.chosen,
            implied=False,
            ruled_out_by=choice.ruled_out.get(candidate),
            terms=_heaviest(terms[candidate]),
            features={"phi": of.phi, "coverage": of.coverage, "distance": nan if of.distance is None else of.distance},
        )
        for (candidate, of), score in zip(measured.items(), scores.values(), strict=True)
    ]


def _place(ranked: Ranked) -> tuple[float, Candidate]:
    return -ranked.score, ranked.candidate


def _scores(method: Method, features: Mapping[str, Floats]) -> Floats:
    if method is Method.RANDOMNESS:
        distance: Floats = np.nan_to_num(features["distance"], nan=1.0)
        return 1 - distance
    return features["name" if method is Method.CHEN else "evidence"]


def _threshold(method: Method, model: AdditiveModel | None, scores: Mapping[Candidate, float], cells: int) -> float:
    if model:
        return model.threshold
    if method is Method.RANDOMNESS:
        # A score of 0 is a distance that was not measured, or the greatest one: neither speaks for a candidate.
        best = sorted(1 - scores[candidate] for candidate in choose(scores, 0).chosen if scores[candidate] > 0)
        return 1 - best[suggest_cut(best, 1 / cells).count - 1] if best else 1.0
    return CHEN_THRESHOLD if method is Method.CHEN else NAMES_THRESHOLD


def _heaviest(terms: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(terms.items(), key=lambda term: -abs(term[1])))
