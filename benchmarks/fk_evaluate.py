"""Own the command `python -m benchmarks.fk_evaluate FOLDER`: how well does each method find known foreign keys?

Each database is judged by what was learnt on the others: it is left out together with those that hold the same data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks import results_file
from benchmarks.data_sets import Unavailable
from benchmarks.fk_data import Database, read_databases
from benchmarks.fk_judge import DIRTY, EXACT, Result, judge, macro, micro, reliability, summary
from benchmarks.fk_learning import (
    KEYS,
    RECIPES,
    Pairs,
    best_threshold,
    choice,
    learn,
    predicted,
    singles,
)
from benchmarks.results_file import Result as Figure
from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.choice import CHEN_THRESHOLD
from service.core.foreign_keys.ranking import rank
from service.core.randomness import suggest_cut

COMPOSITE_SETS = ("f1_ergast", "mondial", "spider_dev")
"""Data sets with foreign keys of more than one column."""

ROW, COMPOSITE_ROW, SEED = "fk-evaluate", "fk-composite", 0
"""Rows of the file of results; nothing in them is drawn."""

GOALS: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("combined", "over all"): {"declared": 0.95, "inferred": 0.94},
    ("combined", "mean of databases"): {"declared": 0.93, "inferred": 0.93},
    ("nameless", "over all"): {"declared": 0.7, "inferred": 0.7},
}
"""Least F1 by method, measure, and sort of keys."""

Choices = list[tuple[list[Candidate], np.ndarray]]
"""For each database what was chosen in it, and the score of each candidate."""

Method = Callable[[Sequence[Pairs], Sequence[Pairs]], Choices]
"""Choose in the first databases, after what is learnt on the second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate methods on all databases of a folder, keys declared and inferred, and print a row for each.

    Return 2 where there are no databases.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fk_evaluate", description=__doc__)
    parser.add_argument("folder", type=Path, help="data sets: folders or .tar.zst files, and stats.json")
    parser.add_argument("--cache", type=Path, help="folder that keeps what was measured between runs")
    parser.add_argument("--method", action="append", choices=METHODS, help="evaluate only this one (repeatable)")
    parser.add_argument("--folds", type=int, help="leave out so many groups of families, not each: quicker")
    parser.add_argument("--each", action="store_true", help="print a row for each database as well")
    parser.add_argument("--results", type=Path, help="file of results that the figures go into")
    parser.add_argument("--errors", action="store_true", help="print what is wrong and missed in each as well")
    options = parser.parse_args(arguments)
    if options.method and options.results:
        parser.error("--results replaces the figures of all methods: leave --method out")
    with tempfile.TemporaryDirectory(prefix="subsetd-fk-") as work:
        try:
            databases = read_databases(options.folder, Path(work), options.cache)
        except Unavailable as error:
            print(error, file=sys.stderr)
            return 2
        details = Details(options.each or options.errors, options.errors)
        judged = evaluate(databases, options.method or list(METHODS), options.folds, details)
        rows = {ROW: figures_of(judged)}
        if not options.method:
            rows[COMPOSITE_ROW] = judge_composites(databases, details)
    for row, figures in rows.items() if options.results else ():
        results_file.store(row, results_file.as_objects(row, SEED, figures), options.results)
    return 0


def figures_of(judged: Mapping[tuple[str, str], Sequence[Result]]) -> list[Figure]:
    """Give F1 of each method and sort of keys, over all foreign keys that hold exactly and as the mean of databases."""
    figures = []
    for (method, keys), results in judged.items():
        for how, measure in (("over all", micro), ("mean of databases", macro)):
            goal = GOALS.get((method, how), {}).get(keys)
            goal = None if goal is None else f"value >= {goal}"
            figures.append(Figure(f"keys {keys}: F1 {how}, {method}", measure(results), "", goal=goal))
    return figures


@dataclass(frozen=True, slots=True)
class Details:
    """Say what is printed of each database."""

    each: bool = False
    errors: bool = False


def judge_composites(databases: Sequence[Database], details: Details) -> list[Figure]:
    """Judge the rule for composites where there are some, with the goals, and everywhere."""
    found = print_composites("composite", [of for of in databases if of.data_set in COMPOSITE_SETS], details)
    everywhere, _ = print_composites("composite, all data", databases, Details())
    return [*found, replace(everywhere, metric="F1 of what is suggested, beside databases without any", goal=None)]


def print_composites(title: str, databases: Iterable[Database], details: Details) -> list[Figure]:
    """Print how well the rule for composites does; it is not fitted, but was made with COMPOSITE_SETS in sight.

    Of no databases there are no figures: that nothing was wrong in them says nothing.
    """
    results, tried, found, reached = [], 0, 0, 0
    for database in databases:
        of = database.composites
        ranked = rank(of.measured, dict(enumerate(database.columns)), ())
        chosen = {one.candidate for one in ranked if one.suggested}
        implied = {one.candidate for one in ranked if one.implied}
        results.append(Result(chosen & of.truth, chosen - of.truth, set(of.truth - chosen), implied))
        tried, found, reached = tried + of.tried, found + len(of.measured), reached + len(of.truth & set(of.measured))
        if details.errors:
            name = database.label
            for sign, wrong in (("-", of.truth - chosen), ("+", chosen - of.truth)):
                for candidate in sorted(wrong):
                    pairs = zip(candidate.dependent, candidate.referenced, strict=True)
                    print(f"    {sign} {', '.join(f'{name(a)} -> {name(b)}' for a, b in pairs)}")
    known = sum(len(result.right) + len(result.missed) for result in results)
    if not results:
        return []
    if known:
        print(f"{title}: {tried} candidates, {found} hold, with {reached} of {known} known ones; {summary(results)}")
    return [
        Figure("F1 of what is suggested", micro(results), "", goal="value >= 0.9"),
        Figure("known ones among the candidates", reached, "", "known ones that hold", known, "ratio >= 1"),
    ]


def evaluate(
    databases: Sequence[Database], methods: Sequence[str], groups: int | None, details: Details
) -> dict[tuple[str, str], list[Result]]:
    """Print a row for each method, sort of keys, and truth: all foreign keys, or those that hold exactly.

    Gives what became of the latter in each database, by method and sort of keys.
    """
    judged: dict[tuple[str, str], list[Result]] = {}
    views = {keys: [Pairs.of(database, keys == "declared") for database in databases] for keys in KEYS}
    for keys, found in views.items():
        print(f"keys {keys}: {len(found)} databases, {sum(len(of.candidates) for of in found):,} candidates")
    if not databases:
        return judged
    for name in methods:
        started = process_time()
        chosen: dict[int, tuple[list[Candidate], np.ndarray]] = {}
        for fold in _folds(databases, groups):
            for found in views.values():
                left_out = [of for of in found if of.database.family in fold]
                others = [of for of in found if of.database.family not in fold and of.candidates]
                seen = (left_out, others) if name == "combined" else (singles(left_out), singles(others))
                chosen |= zip(map(id, left_out), METHODS[name](*seen), strict=True)
        seconds = process_time() - started
        for keys, found in views.items():
            for truth, least in (("exact", EXACT), ("dirty", DIRTY)):
                results = [judge(of.database, chosen[id(of)][0], least) for of in found]
                print(f"{name:11} {keys:8} {truth:5} {summary(results)}", flush=True)
                if truth == "exact":
                    judged[name, keys] = results
                    if details.each:
                        _print_each(found, results, details.errors)
            if name in PROBABLE:
                scores = np.concatenate([chosen[id(of)][1] for of in found])
                is_right = np.concatenate([of.is_right for of in found])
                print("\n".join(f"  {line}" for line in reliability(scores, is_right)))
        print(f"{name:11} {seconds:.1f} s CPU")
    return judged


def _print_each(found: Sequence[Pairs], results: Sequence[Result], errors: bool) -> None:
    for of, result in zip(found, results, strict=True):
        name = of.database.label
        print(f"  {of.database.name:32} {len(result.right):4} {result.f1():.3f} lenient {result.f1(True):.3f}")
        for sign, pairs in (("-", result.missed), ("+", result.wrong)) if errors else ():
            for pair in sorted(pairs):
                note = " (implied)" if pair in result.excused and sign == "+" else ""
                print(f"    {sign} {name(pair.dependent[0])} -> {name(pair.referenced[0])}{note}")


def _folds(found: Sequence[Database], groups: int | None) -> Iterator[set[str]]:
    """Yield the families that are left out together: each alone, or the largest alone and the others in groups."""
    sizes: dict[str, int] = {}
    for of in found:
        sizes[of.family] = sizes.get(of.family, 0) + len(of.measured)
    families = sorted(sizes, key=lambda family: -sizes[family])
    if groups is None:
        yield from ({family} for family in families)
    else:
        yield {families[0]}
        yield from (set(families[1 + place :: groups]) for place in range(groups))


def _by_score(feature: str) -> Method:
    """Choose by a score that needs no learning but its threshold, which is the best one of the other databases."""

    def method(found: Sequence[Pairs], others: Sequence[Pairs]) -> Choices:
        threshold = best_threshold(others, [of.score(feature) for of in others])
        return [(choice(of, of.score(feature), threshold), of.score(feature)) for of in found]

    return method


def _chen(found: Sequence[Pairs], others: Sequence[Pairs]) -> Choices:
    return [(choice(of, of.score("name"), CHEN_THRESHOLD), of.score("name")) for of in found]


def _at_the_jump(found: Sequence[Pairs], others: Sequence[Pairs]) -> Choices:
    """Take for each column the reference that it is most random in, and cut each database's ranking at its jump."""
    chosen = []
    for of in found:
        randomness = of.score("randomness")
        score = dict(zip(of.candidates, randomness.tolist(), strict=True))
        ranked = choice(of, randomness, 0)
        cut = suggest_cut([1 - score[candidate] for candidate in ranked])
        chosen.append((ranked[: cut.count], randomness))
    return chosen


def _learnt(name: str) -> Method:
    """Choose by a model that is fitted to the others, with the threshold that they tell."""

    def method(found: Sequence[Pairs], others: Sequence[Pairs]) -> Choices:
        model = learn(name, others)
        scores = [predicted(model, of, RECIPES[name].features(of)) for of in found]
        return [(choice(of, score, model.threshold), score) for of, score in zip(found, scores, strict=True)]

    return method


METHODS: Mapping[str, Method] = {
    "randomness": _by_score("randomness"),
    "jump": _at_the_jump,
    "names": _by_score("evidence"),
    "chen": _chen,
    **{name: _learnt(name) for name in ("rostin", "nameless", "combined")},
}

PROBABLE = ("rostin", "nameless", "combined")
"""Methods whose scores read as probabilities."""


if __name__ == "__main__":
    sys.exit(main())
