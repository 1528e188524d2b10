"""Own how the ranking of foreign keys is learnt: the candidates of databases with their features, and the fit."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.fk_data import Database
from benchmarks.fk_judge import judge, micro
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.choice import choose
from service.core.foreign_keys.composites import said_by_composites
from service.core.foreign_keys.features import FALLING, RISING, Pair, data_features, pair_features
from service.core.foreign_keys.key_choice import (
    AGAINST_A_KEY,
    CHANCES,
    FOR_A_KEY,
    NAMED_AGAINST_A_KEY,
    NAMED_FOR_A_KEY,
    Kinds,
    choice_features,
    likeliest_keys,
    score_by_choice,
)
from service.core.foreign_keys.model import AdditiveModel, KeyChoice, SecondLook, Steps, probability
from service.core.foreign_keys.name_features import bare_names
from service.core.foreign_keys.names import Tokens
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.ranking import rank
from service.core.foreign_keys.rostin import rostin_features
from service.core.foreign_keys.second_look import Scored, among_scores, score

SEED = 7
"""Of the fit, which draws at random the candidates that its bins are cut by where there are more than 200,000."""

KEYS = ("declared", "inferred")
"""What may be referred to: each has a model of its own."""

THRESHOLDS = np.linspace(0.05, 0.95, 37).round(3).tolist()
STEADY_OVER = 0.5
"""Log-odds over which the F1 of thresholds is averaged: the standard deviation of the weights."""

INNER_FOLDS = 5
OF_TABLES = ("kin", "lead_kin", "table_said", "lead_table_said")
"""Features of names that need those of tables alone."""

ONLY_NAMELESS = ("ref_place", "table_said", "lead_table_said")
"""Features that help where columns have no names; with names they made it worse (design note, section 12)."""

Signs = tuple[Sequence[str], Sequence[str]]
"""Features that may speak for a key alone, and against one alone."""

BY_VALUES: Signs = FOR_A_KEY, AGAINST_A_KEY
BY_NAMES: Signs = NAMED_FOR_A_KEY, NAMED_AGAINST_A_KEY

CHOICE_PENALTY = 10.0
"""Of the squares of the weights that choose a key, over features whose standard deviation is 1."""

DIGITS = 4
"""Of the scores in a model's file."""

Features = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Hold the candidates of one column of a database, for one sort of keys: their features, and which are right.

    `composite` are the candidates of more columns that are suggested, by a rule: nothing is learnt of them. `names` has
    the words of all columns. `choice` are what tells keys of a column without a name apart, and `kinds` such columns.
    """

    database: Database
    candidates: tuple[Candidate, ...]
    features: Features
    rostin: Features
    nameless: Features
    is_right: np.ndarray
    composite: tuple[Candidate, ...] = ()
    names: Mapping[int, Tokens] = field(default_factory=dict)
    choice: Features = field(default_factory=dict)
    kinds: Kinds = ()

    @staticmethod
    def of(database: Database, declared: bool) -> Pairs:
        """Compute the features of a database's candidates."""
        measured, columns, keys = database.seen(declared)
        composite = database.composites.seen(declared)
        single = {(c.dependent[0], c.referenced[0]): of for c, of in measured.items()}
        keys = [key for (key,) in keys]
        nameless = _nameless(single, columns, keys)
        choice, kinds = choice_features(nameless, list(single), columns, frozenset(keys)) if single else ({}, ())
        return Pairs(
            database,
            tuple(measured),
            pair_features(single, columns, keys),
            rostin_features(single, columns),
            nameless,
            np.array([candidate in database.truth for candidate in measured], np.bool_),
            tuple(one.candidate for one in rank(composite, columns, ()) if one.suggested),
            bare_names(columns),
            choice,
            kinds,
        )

    @property
    def pairs(self) -> list[Pair]:
        """Give the columns of each candidate."""
        return [(c.dependent[0], c.referenced[0]) for c in self.candidates]

    def told(self) -> Features:
        """Give the features that say of candidates with names whether they are right."""
        return {name: of for name, of in self.features.items() if name not in ONLY_NAMELESS}

    def named(self) -> Pairs:
        """Give it so that a key is chosen by names as well, and columns of one kind count each alone."""
        choice = {**self.choice, **{name: self.features[name] for name in ONLY_NAMELESS}}
        return replace(self, nameless=self.told(), choice=choice, kinds=())

    def by_chance(self, weights: Mapping[str, float]) -> tuple[Pairs, Pairs]:
        """Give the likeliest key of each column, and the others, with what tells whether it refers, and `behind`."""
        if not self.candidates:
            return self, self
        spoken, behind, best = likeliest_keys(weights, {**self.nameless, **self.choice}, self.pairs, self.kinds)
        told = {name: of for name, of in spoken.items() if name not in self.choice} | {"behind": behind}
        others = np.setdiff1d(np.arange(len(behind)), best)
        return self._only(np.sort(best), told), self._only(others, told)

    def _only(self, places: np.ndarray, nameless: Features) -> Pairs:
        return replace(
            self,
            candidates=tuple(self.candidates[place] for place in places),
            nameless={name: of[places] for name, of in nameless.items()},
            is_right=self.is_right[places],
        )

    def score(self, name: str) -> np.ndarray:
        """Give a feature as a score; `randomness` is 1 less the distance."""
        if not self.candidates:
            return np.zeros(0)
        return 1 - self.features["distance"] if name == "randomness" else self.features[name]


def _nameless(single: Mapping[Pair, Measured], columns: Mapping[int, ColumnProfile], keys: Sequence[int]) -> Features:
    """Compute the features that are left when columns have no names, and tables have."""
    blank = {i: replace(column, name="") for i, column in columns.items()}
    features = pair_features(single, blank, keys)
    wanted = {*data_features(single, blank, keys), *OF_TABLES}
    return {name: of for name, of in features.items() if name in wanted}


def singles(found: Sequence[Pairs]) -> list[Pairs]:
    """Leave what composites say out of account, as `rank` does by all methods but the combined one."""
    return [replace(of, composite=()) for of in found]


def choice(found: Pairs, scores: np.ndarray, threshold: float) -> list[Candidate]:
    """Choose without conflict the candidates with a score of at least so much, best first; as `rank` does."""
    high = {found.candidates[place]: float(scores[place]) for place in np.flatnonzero(scores >= threshold)}
    chosen = choose(high, threshold).chosen
    said = said_by_composites(chosen, found.composite)
    return [candidate for candidate in chosen if candidate not in said]


def best_threshold(found: Sequence[Pairs], scores: Sequence[np.ndarray]) -> float:
    """Give the threshold whose choice has the best F1, micro; the middle one of those that are equally good."""
    tried = by_threshold(found, scores)
    best = [threshold for threshold, of in tried.items() if of == max(tried.values())]
    return best[len(best) // 2]


def by_threshold(found: Sequence[Pairs], scores: Sequence[np.ndarray]) -> dict[float, float]:
    """Give the F1, micro, of each threshold's choice."""
    return {
        threshold: micro([judge(o.database, choice(o, s, threshold)) for o, s in zip(found, scores, strict=True)])
        for threshold in THRESHOLDS
    }


def steady_threshold(found: Sequence[Pairs], scores: Sequence[np.ndarray]) -> float:
    """Give the threshold around which F1 is best: the mean over all, weighed by how near they are in log-odds.

    What is best in sight swings with a few candidates, from 0.10 to 0.45 for `combined`.
    """
    tried = by_threshold(found, scores)
    thresholds, reached = np.array(list(tried)), np.array(list(tried.values()))
    log_odds = np.log(thresholds / (1 - thresholds))
    weights = np.exp(-0.5 * ((log_odds[:, None] - log_odds) / STEADY_OVER) ** 2)
    return float(thresholds[np.argmax(weights @ reached / weights.sum(axis=1))])


def learn(name: str, found: Sequence[Pairs]) -> AdditiveModel:
    """Fit the model of a name, with its second look if it has one, whose scores read as probabilities.

    Second look and threshold are learnt within `found`, of scores out of fold.
    """
    recipe = RECIPES[name]
    found = found if recipe.with_composites else singles(found)
    model, log_odds = _calibrated(found, recipe.features, recipe.choosing)
    if recipe.choosing_beside:
        named = [of.named() for of in found]
        beside, others = _calibrated(named, lambda of: of.nameless, recipe.choosing_beside)
        both = [(one + other) / 2 for one, other in zip(log_odds, others, strict=True)]
        stretch, shift = platt(np.concatenate(both), _right(found))
        log_odds = [stretch * of + shift for of in both]
        model = replace(_scaled(model, stretch / 2, shift), beside=_scaled(replace(beside, data=()), stretch / 2, 0.0))
    second = None
    if recipe.looks_again:
        second, log_odds = look_again(found, log_odds)
    threshold = recipe.threshold_of(found, [probability(of) for of in log_odds])
    return replace(model, threshold=threshold, second=second)


def _calibrated(
    found: Sequence[Pairs], features: Callable[[Pairs], Features], choosing: Signs | None
) -> tuple[AdditiveModel, list[np.ndarray]]:
    """Fit a model, and give the log-odds out of fold: each group of families is scored by a model of the others.

    They are stretched and shifted for likely probabilities (Platt's scaling), which leaves them a sum of steps.
    """
    families = sorted({of.database.family for of in found}, key=lambda name: zlib.crc32(name.encode()))
    group = {family: place % INNER_FOLDS for place, family in enumerate(families)}
    judging: dict[int, tuple[AdditiveModel, Mapping[str, float]]] = {}
    judged: dict[int, Pairs] = {}
    scores: dict[int, np.ndarray] = {}
    rivals: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for fold in range(INNER_FOLDS):
        others = [of for of in found if group[of.database.family] != fold]
        weights = fit_choice(others, choosing) if choosing else {}
        model = fit([of.by_chance(weights)[0] for of in others] if choosing else others, features)
        for of in found:
            if group[of.database.family] != fold:
                continue
            judging[id(of)], judged[id(of)] = (model, weights), of
            if choosing:
                judged[id(of)], behind = of.by_chance(weights)
                rivals.append((model.log_odds(features(behind)), behind.nameless["behind"], behind.is_right))
            scores[id(of)] = model.log_odds(features(judged[id(of)]))
    stretch, shift = platt(np.concatenate([scores[id(of)] for of in found]), _right([judged[id(of)] for of in found]))
    if not choosing:
        return _scaled(fit(found, features), stretch, shift), [stretch * scores[id(of)] + shift for of in found]
    first, behind_by, is_right = (np.concatenate(of) for of in zip(*rivals, strict=True))
    loses = fit_rivals(stretch * first + shift, behind_by, is_right)
    log_odds = []
    for of in found:
        model, weights = judging[id(of)]
        model = replace(_scaled(model, stretch, shift), choice=KeyChoice(weights, *loses))
        log_odds.append(_by_choice(model, of, of.nameless, of.kinds).log_odds)
    choice = KeyChoice(fit_choice(found, choosing), *loses)
    model = fit([of.by_chance(choice.weights)[0] for of in found], features)
    return replace(_scaled(model, stretch, shift), choice=choice), log_odds


def _scaled(model: AdditiveModel, stretch: float, shift: float) -> AdditiveModel:
    """Stretch and shift the log-odds of a model."""
    steps = {
        name: Steps(of.edges, tuple(round(stretch * score, DIGITS) for score in of.scores))
        for name, of in model.steps.items()
    }
    choice = model.choice and replace(
        model.choice,
        rival=round(stretch * model.choice.rival, DIGITS),
        behind=round(stretch * model.choice.behind, DIGITS),
    )
    return replace(model, intercept=round(stretch * model.intercept + shift, DIGITS), steps=steps, choice=choice)


def fit_choice(found: Sequence[Pairs], signs: Signs = BY_VALUES) -> dict[str, float]:
    """Fit the weights that tell the keys of a column apart, of columns that refer: a conditional logit.

    No feature may speak against what it must speak for, and large weights cost, over features of one spread.
    """
    from scipy.optimize import minimize

    rising, falling = signs
    names = (*rising, *falling)
    rows, is_right, column, number = [], [], [], 0
    for of in found:
        features = {**of.nameless, **of.choice}
        by_column: dict[int, list[int]] = defaultdict(list)
        for place, (a, _) in enumerate(of.pairs):
            by_column[a].append(place)
        for places in by_column.values():
            if len(places) > 1 and of.is_right[places].any():
                rows.append(np.nan_to_num(np.stack([features[name][places] for name in names], 1)))
                is_right.append(of.is_right[places] / of.is_right[places].sum())
                column.append(np.full(len(places), number))
                number += 1
    values, right, of_column = np.vstack(rows), np.concatenate(is_right), np.concatenate(column)
    spread = values.std(axis=0) + 1e-9
    values = (values - values.mean(axis=0)) / spread
    starts = np.searchsorted(of_column, np.arange(number))

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        sums = values @ weights
        sums -= np.maximum.reduceat(sums, starts)[of_column]
        logs = sums - np.log(np.add.reduceat(np.exp(sums), starts))[of_column]
        cost = CHOICE_PENALTY / 2 * weights @ weights - right @ logs
        return float(cost), CHOICE_PENALTY * weights + values.T @ (np.exp(logs) - right)

    bounds = [(0, None)] * len(rising) + [(None, 0)] * len(falling)
    best = minimize(loss, np.zeros(len(names)), jac=True, method="L-BFGS-B", bounds=bounds).x
    return {name: round(float(weight), DIGITS) for name, weight in zip(names, best / spread, strict=True)}


def fit_rivals(log_odds: np.ndarray, behind: np.ndarray, is_right: np.ndarray) -> tuple[float, float]:
    """Fit what keys lose that are not the likeliest of their column: for that, and for how far they are behind."""
    from scipy.optimize import minimize

    def loss(weights: np.ndarray) -> float:
        found = log_odds + weights[0] + weights[1] * behind
        return float(np.logaddexp(0, np.where(is_right, -found, found)).sum())

    best = minimize(loss, [-1.0, 1.0], method="L-BFGS-B", bounds=[(None, 0), (0, None)]).x
    return round(float(best[0]), DIGITS), round(float(best[1]), DIGITS)


def look_again(found: Sequence[Pairs], log_odds: Sequence[np.ndarray]) -> tuple[SecondLook, list[np.ndarray]]:
    """Weigh what candidates say of each other, by their scores out of fold; give the log-odds after that as well.

    Three weights of some ten thousand candidates need no fold of their own.
    """
    from sklearn.linear_model import LogisticRegression

    among = [among_scores(of.pairs, of.names, probability(first)) for of, first in zip(found, log_odds, strict=True)]
    values = [np.stack([first, *more.values()], 1) for first, more in zip(log_odds, among, strict=True)]
    logistic = LogisticRegression(max_iter=1000).fit(np.concatenate(values), _right(found))
    stretch, *weights = (round(float(weight), DIGITS) for weight in logistic.coef_[0])
    second = SecondLook(
        round(float(logistic.intercept_[0]), DIGITS), stretch, dict(zip(among[0], weights, strict=True))
    )
    return second, [second.intercept + of @ [stretch, *weights] for of in values]


def predicted(model: AdditiveModel, of: Pairs, features: Features) -> np.ndarray:
    """Give the probability of each candidate of a database by a model."""
    if not of.candidates:
        return np.zeros(0)
    if model.choice:
        return _by_choice(model, of, features, of.kinds).probability
    beside = model.beside and _by_choice(model.beside, of, of.features, ())
    return score(model, features, of.pairs, lambda: of.names, beside).probability


def _by_choice(model: AdditiveModel, of: Pairs, features: Features, kinds: Kinds) -> Scored:
    return score_by_choice(model, {**features, **of.choice}, of.pairs, kinds)


def _right(found: Sequence[Pairs]) -> np.ndarray:
    return np.concatenate([of.is_right for of in found])


def platt(log_odds: np.ndarray, is_right: np.ndarray) -> tuple[float, float]:
    """Give how to stretch and shift log-odds for the likeliest probabilities."""
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=1e6).fit(log_odds[:, None], is_right)
    return float(found.coef_[0, 0]), float(found.intercept_[0])


def fit(found: Sequence[Pairs], features: Callable[[Pairs], Features]) -> AdditiveModel:
    """Fit boosted stumps, monotone where RISING and FALLING say so, and add those of each feature up."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    names = list(features(found[0]))
    stumps = HistGradientBoostingClassifier(
        max_depth=1,
        max_iter=200,
        learning_rate=0.15,
        min_samples_leaf=10,
        l2_regularization=1.0,
        max_bins=64,
        early_stopping=False,
        random_state=SEED,
        monotonic_cst=[(name in RISING or name in CHANCES) - (name in FALLING) for name in names],
    )
    values = np.vstack([np.stack([features(of)[name] for name in names], 1) for of in found])
    with threadpool_limits(1):  # a busy machine waits for its threads longer than they save
        stumps.fit(values, _right(found))
    model = _added_up(stumps, names, values, sorted({of.database.name for of in found}))
    if not np.allclose(model.probability(dict(zip(names, values.T, strict=True))), stumps.predict_proba(values)[:, 1]):
        raise AssertionError("the steps are not those of the fitted stumps")
    return model


def _added_up(stumps: Any, names: Sequence[str], values: np.ndarray, data: Sequence[str]) -> AdditiveModel:
    """Add the stumps of each feature up; a step's scores are against the mean of all candidates."""
    jumps: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    intercept = float(stumps._baseline_prediction.ravel()[0])
    for (tree,) in stumps._predictors:
        root = tree.nodes[0]
        if root["is_leaf"]:
            intercept += float(root["value"])
            continue
        left, right = (float(tree.nodes[root[side]]["value"]) for side in ("left", "right"))
        intercept += left
        jumps[names[root["feature_idx"]]][float(root["num_threshold"])] += right - left
    steps = {}
    for name, at in jumps.items():
        edges = tuple(sorted(at))
        scores = np.concatenate(([0.0], np.cumsum([at[edge] for edge in edges])))
        mean = float(Steps(edges, tuple(scores.tolist()))(values[:, names.index(name)]).mean())
        intercept += mean
        steps[name] = Steps(edges, tuple((scores - mean).tolist()))
    return AdditiveModel(intercept, steps, data=tuple(data))


@dataclass(frozen=True, slots=True)
class Recipe:
    """Say what a model is learnt of: its features, how its threshold is found, whether candidates are judged together.

    `with_composites`: what composite candidates say of single ones is left out of account, as `rank` leaves it.
    `choosing`: by these features the likeliest key of each column is chosen first, and judged alone. `choosing_beside`:
    so does a model beside, and the mean of both log-odds counts.
    """

    features: Callable[[Pairs], Features]
    threshold_of: Callable[[Sequence[Pairs], Sequence[np.ndarray]], float] = best_threshold
    looks_again: bool = False
    with_composites: bool = False
    choosing: Signs | None = None
    choosing_beside: Signs | None = None


RECIPES: Mapping[str, Recipe] = {
    "combined": Recipe(Pairs.told, steady_threshold, looks_again=True, with_composites=True, choosing_beside=BY_NAMES),
    "nameless": Recipe(lambda of: of.nameless, steady_threshold, choosing=BY_VALUES),
    "rostin": Recipe(lambda of: of.rostin),
}
"""The models that are part of the package, by name."""
