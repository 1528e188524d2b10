"""Own the second look at scored candidates: what the first scores of a database's other candidates say of each.

Foreign keys of one database are made alike, so that they are judged together: stacked collective inference after Kou
and Cohen, Stacked Graphical Models for Efficient Inference in Markov Random Fields (2007), in one round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.core.foreign_keys.features import Pair
from service.core.foreign_keys.model import AdditiveModel, probability
from service.core.foreign_keys.names import Tokens
from service.core.quantile_grids import Floats


@dataclass(frozen=True, slots=True)
class Scored:
    """Hold the scores of n candidates with what they add up from: terms, and the features that they were read from."""

    intercept: float
    terms: Mapping[str, Floats]
    features: Mapping[str, Floats]
    probability: Floats

    @property
    def log_odds(self) -> Floats:
        """Give what the terms add up to, float64[n]."""
        found: Floats = self.intercept + sum(self.terms.values(), start=np.zeros(1))
        return found


def score(
    model: AdditiveModel,
    features: Mapping[str, Floats],
    pairs: Sequence[Pair],
    names_of: Callable[[], Mapping[int, Tokens]],
    beside: Scored | None = None,
) -> Scored:
    """Score candidates by a model, and by its second look where it has one; each array is float64[n].

    `names_of` gives the words of dependent columns; it is asked for a second look alone. The terms of what the model
    has `beside` it are added to those of one name.
    """
    intercept, terms = model.intercept, model.terms(features)
    if beside:
        intercept += beside.intercept
        terms |= {name: terms.get(name, np.zeros(1)) + of for name, of in beside.terms.items()}
        features = {**beside.features, **features}
    first = intercept + sum(terms.values(), start=np.zeros(1))
    if model.second is None:
        return Scored(intercept, terms, features, probability(first))
    second = model.second
    among = among_scores(pairs, names_of(), probability(first))
    stretched = {name: second.stretch * of for name, of in terms.items()}
    weighed = {name: weight * among[name] for name, weight in second.weights.items()}
    found = probability(second.intercept + second.stretch * first + sum(weighed.values()))
    intercept = second.intercept + second.stretch * intercept
    return Scored(intercept, stretched | weighed, {**features, **among}, found)


def among_scores(pairs: Sequence[Pair], names: Mapping[int, Tokens], scores: Floats) -> dict[str, Floats]:
    """Give what the scores, float64[n] in [0, 1], of n pairs say of each other, float64[n] for each feature.

    `agreement`: how much better the other columns of the dependent's name score with this key than with any other key,
    on average; k of them count k / (k + 1). 0 where there are none, and for a column whose name has no words.
    `referred`: the best score with which another column refers to the dependent: who is referred to seldom refers.
    """
    agreement, referred = np.zeros(len(pairs)), np.zeros(len(pairs))
    by_name: dict[Tokens, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    best: dict[int, float] = defaultdict(float)
    for place, (a, b) in enumerate(pairs):
        by_name[names[a]][a].append(place)
        best[b] = max(best[b], float(scores[place]))
    for name, places_of in by_name.items():
        others = len(places_of) - 1
        if not name or not others:
            continue
        number = {
            key: i for i, key in enumerate({pairs[place][1] for places in places_of.values() for place in places})
        }
        numbers = {a: [number[pairs[place][1]] for place in places] for a, places in places_of.items()}
        total = np.zeros(len(number) + 1)  # of each key, and of one that nobody refers to
        for a, places in places_of.items():
            total[numbers[a]] += scores[places]
        for a, places in places_of.items():
            means = total.copy()
            means[numbers[a]] -= scores[places]
            means /= others
            second, first = np.partition(means, -2)[-2:]
            own = means[numbers[a]]
            agreement[places] = (own - np.where(own == first, second, first)) * others / (others + 1)
    for place, (a, _) in enumerate(pairs):
        referred[place] = best.get(a, 0.0)
    return {"agreement": agreement, "referred": referred}
