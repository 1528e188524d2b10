"""Own the command `python -m benchmarks.fk_evaluate FOLDER`: how well does each method find known foreign keys?

Each database is judged by what was learnt on the others: it is left out together with those that hold the same data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.fk_features import DATA, Pairs, monotone_trees, read_pairs
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.choice import CHEN_THRESHOLD, choose, implied
from service.core.randomness import suggest_cut

Scores = list[np.ndarray]
"""For each database the score of each candidate."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate methods on all databases of a folder, keys declared and inferred, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fk_evaluate", description=__doc__)
    parser.add_argument("folder", type=Path, help="data sets: folders or .tar.zst files, and stats.json")
    parser.add_argument("--cache", type=Path, help="folder that keeps the features between runs")
    parser.add_argument("--method", action="append", choices=METHODS, help="evaluate only this one (repeatable)")
    parser.add_argument("--keys", action="append", choices=("declared", "inferred"))
    parser.add_argument("--folds", type=int, help="leave out so many groups of families, not each: quicker")
    parser.add_argument("--each", action="store_true", help="print a row for each database, and what is wrong in it")
    options = parser.parse_args(arguments)
    for keys in options.keys or ("declared", "inferred"):
        with tempfile.TemporaryDirectory(prefix="subsetd-fk-") as work:
            found = read_pairs(options.folder, Path(work), keys == "declared", options.cache)
        folds = list(_folds(found, options.folds))
        print(f"keys {keys}: {len(found)} databases, {sum(len(of.candidates) for of in found):,} candidates")
        for method in options.method or METHODS:
            started = process_time()
            chosen = METHODS[method](found, folds)
            for truth, least in (("exact", 1.0), ("dirty", 0.0)):
                results = [judge(of, of_chosen, least) for of, of_chosen in zip(found, chosen, strict=True)]
                print(f"{method:11} {truth:5} {summary(results)} {process_time() - started:5.1f} s CPU", flush=True)
                if options.each and truth == "exact":
                    _print_each(found, results)
    return 0


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


def judge(found: Pairs, chosen: Sequence[Candidate], least_inclusion: float) -> Result:
    """Compare a choice with the known foreign keys of one column whose inclusion is at least so much.

    The others, and those without values, count neither as right nor as wrong. Implied are those that follow from known
    ones along chains and backwards, parts of composites included.
    """
    truth = found.database.truth
    wanted = {pair for pair, inclusion in truth.items() if inclusion is not None and inclusion >= least_inclusion}
    picked = set(chosen) - (set(truth) - wanted)
    known = set(truth) | found.database.parts
    return Result(picked & wanted, picked - wanted, wanted - picked, implied(known) | found.database.parts)


def f_measure(right: int, wrong: int, missed: int) -> float:
    """Give F1; 1 where there was nothing to find and nothing was found."""
    return 2 * right / (2 * right + wrong + missed) if right + wrong + missed else 1.0


def summary(results: Sequence[Result]) -> str:
    """Say precision, recall and F1, over all (micro) and by database (macro, those with foreign keys)."""
    right, wrong, missed = (sum(len(getattr(r, name)) for r in results) for name in ("right", "wrong", "missed"))
    lenient = sum(len(result.wrong - result.excused) for result in results)
    with_keys = [result for result in results if result.right or result.missed]
    macro, lenient_macro = (
        float(np.mean([result.f1(is_lenient) for result in with_keys])) for is_lenient in (False, True)
    )
    precision, recall = right / max(right + wrong, 1), right / max(right + missed, 1)
    return (
        f"P {precision:.3f} R {recall:.3f} F1 micro {f_measure(right, wrong, missed):.3f} macro {macro:.3f} | lenient: "
        f"micro {f_measure(right, lenient, missed):.3f} macro {lenient_macro:.3f}"
    )


def _print_each(found: Sequence[Pairs], results: Sequence[Result]) -> None:
    for of, result in zip(found, results, strict=True):
        name = of.database.label
        print(f"  {of.database.name:32} {len(result.right):4} {result.f1():.3f} lenient {result.f1(True):.3f}")
        for sign, pairs in (("-", result.missed), ("+", result.wrong)):
            for pair in sorted(pairs):
                note = " (implied)" if pair in result.excused and sign == "+" else ""
                print(f"    {sign} {name(pair.dependent[0])} -> {name(pair.referenced[0])}{note}")


def _folds(found: Sequence[Pairs], groups: int | None) -> Iterator[set[str]]:
    """Yield the families that are left out together: each alone, or the largest alone and the others in groups."""
    sizes: dict[str, int] = {}
    for of in found:
        sizes[of.database.family] = sizes.get(of.database.family, 0) + len(of.candidates)
    families = sorted(sizes, key=lambda family: -sizes[family])
    if groups is None:
        yield from ({family} for family in families)
    else:
        yield {families[0]}
        yield from (set(families[1 + place :: groups]) for place in range(groups))


def _choose(found: Pairs, scores: np.ndarray, threshold: float) -> list[Candidate]:
    by_candidate = dict(zip(found.candidates, scores.tolist(), strict=True))
    return list(choose(by_candidate, threshold).chosen)


def _by_score(
    score: Callable[[Pairs], np.ndarray],
) -> Callable[[Sequence[Pairs], Sequence[set[str]]], list[list[Candidate]]]:
    """Choose by a score that needs no learning but its threshold, which is the best one of the other databases."""

    def method(found: Sequence[Pairs], folds: Sequence[set[str]]) -> list[list[Candidate]]:
        scores = [score(of) for of in found]
        grid = np.linspace(0.05, 1, 20)
        tried = {t: [judge(o, _choose(o, s, t), 1.0) for o, s in zip(found, scores, strict=True)] for t in grid}
        chosen: dict[str, list[Candidate]] = {}
        for fold in folds:
            others = [i for i, of in enumerate(found) if of.database.family not in fold]
            best = max(grid, key=lambda t: _micro([tried[t][i] for i in others]))
            for of, of_score in zip(found, scores, strict=True):
                if of.database.family in fold:
                    chosen[of.database.name] = _choose(of, of_score, best)
        return [chosen[of.database.name] for of in found]

    return method


def _micro(results: Sequence[Result]) -> float:
    return f_measure(*(sum(len(getattr(r, name)) for r in results) for name in ("right", "wrong", "missed")))


def _chen(found: Sequence[Pairs], folds: Sequence[set[str]]) -> list[list[Candidate]]:
    return [_choose(of, of.column("name"), CHEN_THRESHOLD) for of in found]


def _at_the_jump(found: Sequence[Pairs], folds: Sequence[set[str]]) -> list[list[Candidate]]:
    """Take for each column the reference that it is most random in, and cut each database's ranking at its jump."""
    chosen = []
    for of in found:
        ranked = _choose(of, 1 - of.column("distance"), 0)
        distance = dict(zip(of.candidates, of.column("distance").tolist(), strict=True))
        ranked.sort(key=lambda candidate: distance[candidate])
        chosen.append(ranked[: suggest_cut([distance[candidate] for candidate in ranked]).count])
    return chosen


def _learnt(
    columns: Callable[[Pairs], tuple[np.ndarray, Sequence[str]]], depth: int, rounds: int, rate: float
) -> Callable[[Sequence[Pairs], Sequence[set[str]]], list[list[Candidate]]]:
    """Choose by boosted trees that are monotone where RISING and FALLING say so; of depth 1 they are additive."""

    def method(found: Sequence[Pairs], folds: Sequence[set[str]]) -> list[list[Candidate]]:
        chosen: dict[str, list[Candidate]] = {}
        for fold in folds:
            others = [of for of in found if of.database.family not in fold and of.candidates]
            names = columns(others[0])[1]
            model = monotone_trees(names, depth, rounds, rate).fit(
                np.vstack([columns(of)[0] for of in others]), np.concatenate([of.is_right for of in others])
            )
            for of in found:
                if of.database.family in fold:
                    scores = model.predict_proba(columns(of)[0])[:, 1] if of.candidates else np.zeros(0)
                    chosen[of.database.name] = _choose(of, scores, 0.4)
        return [chosen[of.database.name] for of in found]

    return method


def _all(found: Pairs) -> tuple[np.ndarray, Sequence[str]]:
    return found.features, found.names


def _nameless(found: Pairs) -> tuple[np.ndarray, Sequence[str]]:
    return np.stack([found.column(name) for name in DATA], 1), DATA


def _rostin(found: Pairs) -> tuple[np.ndarray, Sequence[str]]:
    return found.rostin, [""] * found.rostin.shape[1]


METHODS: Mapping[str, Callable[[Sequence[Pairs], Sequence[set[str]]], list[list[Candidate]]]] = {
    "randomness": _by_score(lambda of: 1 - of.column("distance")),
    "jump": _at_the_jump,
    "names": _by_score(lambda of: of.column("evidence")),
    "chen": _chen,
    "rostin": _learnt(_rostin, 3, 100, 0.1),
    "nameless": _learnt(_nameless, 3, 100, 0.1),
    "additive": _learnt(_all, 1, 200, 0.15),
    "combined": _learnt(_all, 3, 100, 0.1),
}


if __name__ == "__main__":
    sys.exit(main())
