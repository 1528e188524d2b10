"""Own the additive model that ranks foreign-key candidates: a step function for each feature, which can be read.

The sum of the steps is the log-odds that a candidate is a foreign key, so that the reasons of a score are its terms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from service.core.quantile_grids import Floats

DECIMALS = 12
"""To how many a value is told from the edge of a step."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Hold a step function: `scores[i]` for values above `edges[i - 1]`, up to `edges[i]`; one more score than edges.

    Raises ValueError when the lengths do not fit, or the edges do not ascend.
    """

    edges: tuple[float, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.edges) + 1 or any(np.diff(self.edges) <= 0):
            raise ValueError("a step function has ascending edges, and one more score than edges")

    def __call__(self, values: Floats) -> Floats:
        """Give the score of each value, float64[n]; 0 for NaN, a value that is not known.

        Values are compared to `DECIMALS`: their last bits are the processor's, and a step is no place for these.
        """
        edges = np.round(self.edges, DECIMALS)
        found: Floats = np.array(self.scores)[np.searchsorted(edges, np.round(values, DECIMALS), side="left")]
        found[np.isnan(values)] = 0.0
        return found


@dataclass(frozen=True, slots=True)
class SecondLook:
    """Hold how scores are mended by those of the other candidates (`second_look`).

    The log-odds are stretched, and weights of `among_scores` added: the sum is still one of terms.
    """

    intercept: float
    stretch: float
    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """Hold how the keys of a column are weighed against each other (`key_choice`), in log-odds.

    A key that is not the likeliest has `rival`, at most 0, and `behind` for each of the log-odds that it is behind.
    """

    weights: Mapping[str, float]
    rival: float = 0.0
    behind: float = 1.0


@dataclass(frozen=True, slots=True)
class AdditiveModel:
    """Hold the steps of each feature and what all candidates start with.

    A candidate of at least `threshold` is suggested, after a `second` look where there is one; `data` names the
    databases of the fit. After a `choice` among the keys of a column the steps judge the likeliest alone. The log-odds
    of one that chooses may be added, which stands `beside`.
    """

    intercept: float
    steps: Mapping[str, Steps]
    threshold: float = 0.5
    data: Sequence[str] = field(default_factory=tuple)
    second: SecondLook | None = None
    choice: KeyChoice | None = None
    beside: AdditiveModel | None = None

    def terms(self, features: Mapping[str, Floats]) -> dict[str, Floats]:
        """Give what each feature adds to the log-odds of n candidates; raise KeyError for a feature that is missing."""
        return {name: steps(features[name]) for name, steps in self.steps.items()}

    def log_odds(self, features: Mapping[str, Floats]) -> Floats:
        """Give the log-odds of each candidate, float64[n]: what all start with, and its terms."""
        found: Floats = self.intercept + sum(self.terms(features).values(), start=np.zeros(1))
        return found

    def probability(self, features: Mapping[str, Floats]) -> Floats:
        """Give the probability of each candidate, float64[n]; `features` has a float64[n] for each of the model's."""
        return probability(self.log_odds(features))

    def as_dict(self) -> dict[str, Any]:
        """Give what JSON keeps of the model, features in the order of how far apart their scores are."""
        ordered = sorted(self.steps.items(), key=lambda item: min(item[1].scores) - max(item[1].scores))
        steps = {name: {"edges": list(of.edges), "scores": list(of.scores)} for name, of in ordered}
        second = {} if self.second is None else {"second": asdict(self.second)}
        known = {"intercept": self.intercept, "threshold": self.threshold, "data": list(self.data)}
        choice = {} if self.choice is None else {"choice": asdict(self.choice)}
        beside = {} if self.beside is None else {"beside": self.beside.as_dict()}
        return known | second | choice | {"steps": steps} | beside

    @staticmethod
    def from_dict(read: Any) -> AdditiveModel:
        """Take a model as JSON has it; raise ValueError for what is none."""
        try:
            steps = {name: Steps(tuple(of["edges"]), tuple(of["scores"])) for name, of in read["steps"].items()}
            second = SecondLook(**read["second"]) if "second" in read else None
            known = float(read["intercept"]), steps, float(read["threshold"]), tuple(read["data"])
            choice = KeyChoice(**read["choice"]) if "choice" in read else None
            beside = AdditiveModel.from_dict(read["beside"]) if "beside" in read else None
            return AdditiveModel(*known, second, choice, beside)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no additive model: {error!r}") from error


def probability(log_odds: Floats) -> Floats:
    """Give the probabilities of log-odds."""
    found: Floats = 1 / (1 + np.exp(-log_odds))
    return found


@cache
def fitted(name: str, declared: bool) -> AdditiveModel:
    """Give a model that is part of the package, of `model.json`: `combined`, `nameless` or `rostin`.

    `nameless` is for columns whose names tell nothing, where those of tables may.
    Where keys are declared there are fewer candidates, and what is primary says much: one model for both is worse.
    """
    text = resources.files("service.core.foreign_keys").joinpath("model.json").read_text("utf-8")
    return AdditiveModel.from_dict(json.loads(text)[name]["declared" if declared else "inferred"])
