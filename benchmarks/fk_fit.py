"""Own the command `python -m benchmarks.fk_fit FOLDER MODEL`: fit the additive ranking of foreign keys, as JSON."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fk_features import Pairs, monotone_trees, read_pairs
from service.core.foreign_keys.model import AdditiveModel, Steps

ROUNDS, RATE = 200, 0.15


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the model on all databases of a folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fk_fit", description=__doc__)
    parser.add_argument("folder", type=Path, help="data sets: folders or .tar.zst files, and stats.json")
    parser.add_argument("model", type=Path, help="file to write")
    parser.add_argument("--cache", type=Path, help="folder that keeps the features between runs")
    parser.add_argument("--keys", choices=("declared", "inferred"), default="declared")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="subsetd-fk-") as work:
        found = read_pairs(options.folder, Path(work), options.keys == "declared", options.cache)
    model = fit_additive(found)
    options.model.write_text(model.to_json() + "\n", "utf-8")
    print(f"{len(model.steps)} features of {len(model.data)} databases in {options.model}")
    return 0


def fit_additive(found: Sequence[Pairs]) -> AdditiveModel:
    """Fit boosted stumps, monotone where RISING and FALLING say so, and add those of each feature up."""
    known = [of for of in found if of.candidates]
    names = known[0].names
    features = np.vstack([of.features for of in known])
    boosted = monotone_trees(names, 1, ROUNDS, RATE).fit(features, np.concatenate([of.is_right for of in known]))
    model = _added_up(boosted, names, sorted(of.database.name for of in known))
    ours = model.probability(dict(zip(names, features.T, strict=True)))
    if not np.allclose(ours, boosted.predict_proba(features)[:, 1]):
        raise AssertionError("the steps are not those of the fitted stumps")
    return model


def _added_up(boosted: Any, names: Sequence[str], data: Sequence[str]) -> AdditiveModel:
    jumps: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    intercept = float(boosted._baseline_prediction.ravel()[0])
    for (tree,) in boosted._predictors:
        root = tree.nodes[0]
        if root["is_leaf"]:
            intercept += float(root["value"])
            continue
        left, right = (float(tree.nodes[root[side]]["value"]) for side in ("left", "right"))
        intercept += left
        jumps[names[root["feature_idx"]]][float(root["num_threshold"])] += right - left
    steps = {}
    for name, at in jumps.items():
        edges = sorted(at)
        scores = np.concatenate(([0.0], np.cumsum([at[edge] for edge in edges])))
        middle = float(np.mean(scores))
        intercept += middle
        steps[name] = Steps(tuple(edges), tuple((scores - middle).tolist()))
    return AdditiveModel(intercept, steps, tuple(data))


if __name__ == "__main__":
    sys.exit(main())
