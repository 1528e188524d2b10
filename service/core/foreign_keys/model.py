"""Own the additive model that ranks foreign-key candidates: a step function for each feature, which can be read.

The sum of the steps is the log-odds that a candidate is a foreign key, so that the reasons of a score are its terms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.core.quantile_grids import Floats


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
        """Give the score of each value, float64[n]."""
        found: NDArray[np.float64] = np.array(self.scores)[np.searchsorted(self.edges, values, side="left")]
        return found


@dataclass(frozen=True, slots=True)
class AdditiveModel:
    """Hold the steps of each feature and what all candidates start with; `data` names the databases of its fit."""

    intercept: float
    steps: Mapping[str, Steps]
    data: Sequence[str] = field(default_factory=tuple)

    def terms(self, features: Mapping[str, Floats]) -> dict[str, Floats]:
        """Give what each feature adds to the log-odds of n candidates; raise KeyError for a feature that is missing."""
        return {name: steps(features[name]) for name, steps in self.steps.items()}

    def probability(self, features: Mapping[str, Floats]) -> Floats:
        """Give the probability of each candidate, float64[n]; `features` has a float64[n] for each of the model's."""
        log_odds = self.intercept + sum(self.terms(features).values(), start=np.zeros(1))
        found: Floats = 1 / (1 + np.exp(-log_odds))
        return found

    def to_json(self) -> str:
        """Write the model, features in the order of how far apart their scores are."""
        ordered = sorted(self.steps.items(), key=lambda item: min(item[1].scores) - max(item[1].scores))
        steps = {name: {"edges": list(of.edges), "scores": list(of.scores)} for name, of in ordered}
        return json.dumps({"intercept": self.intercept, "data": list(self.data), "steps": steps}, indent=1)

    @staticmethod
    def from_json(text: str) -> AdditiveModel:
        """Read a model; raise ValueError for a text that is none."""
        try:
            read = json.loads(text)
            steps = {name: Steps(tuple(of["edges"]), tuple(of["scores"])) for name, of in read["steps"].items()}
            return AdditiveModel(float(read["intercept"]), steps, tuple(read["data"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no additive model: {error!r}") from error
