"""Own the command `python -m benchmarks.fk_fit FOLDER`: fit what ranks foreign keys, and write it as JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fk_data import read_databases
from benchmarks.fk_learning import KEYS, RECIPES, Pairs, learn

MODEL = Path(__file__).parents[1] / "service" / "core" / "foreign_keys" / "model.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the models on all databases of a folder, for keys that are declared and for keys that are inferred."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fk_fit", description=__doc__)
    parser.add_argument("folder", type=Path, help="data sets: folders or .tar.zst files, and stats.json")
    parser.add_argument("--model", type=Path, default=MODEL, help="file to write")
    parser.add_argument("--cache", type=Path, help="folder that keeps what was measured between runs")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="subsetd-fk-") as work:
        databases = read_databases(options.folder, Path(work), options.cache)
    models: dict[str, dict[str, Any]] = {name: {} for name in RECIPES}
    for keys in KEYS:
        found = [Pairs.of(database, keys == "declared") for database in databases]
        known = [of for of in found if of.candidates]
        for name in RECIPES:
            model = learn(name, known)
            models[name][keys] = model.as_dict()
            fitted = f"{len(model.steps)} features of {len(model.data)} databases, threshold {model.threshold}"
            print(f"{name}, keys {keys}: {fitted}")
    options.model.write_text(as_text(models), "utf-8")
    return 0


def as_text(models: Mapping[str, Any]) -> str:
    """Write models as JSON, a line for each feature's edges and scores."""
    text = json.dumps(models, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
