"""Own the features of foreign-key candidates that the ranking is developed on: of a pair, and of it among the others.

What proves itself here moves into `service/core/foreign_keys/`, with the model that weighs it.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fk_data import Column, Database, read_databases
from service.core.foreign_keys.candidates import Candidate, Inclusions, single_candidates
from service.core.foreign_keys.names import IDENTIFIERS, NameSimilarity, Vocabulary
from service.core.foreign_keys.rostin import ColumnProfile, rostin_features
from service.core.quantile_grids import GridHistogram, KeyHistogram
from service.core.randomness import randomness
from service.core.value_order import OrderKey, ValueOrder

STRONG = 0.85
"""Evidence of a name that lets a column count when a database's ways of naming are learnt."""

RISING = frozenset(
    [
        "phi",
        "coverage",
        "same_type",
        "name_equal",
        "name_column",
        "name_full",
        "name_explained",
        "name_table",
        "name_said",
        "name_subject",
        "name_role_said",
        "name_role_explained",
        "name",
        "evidence",
        "lead_evidence",
        "lead_randomness",
        "lead_coverage",
        "lead_context",
        "lead_kin",
        "lead_own",
        "lead_back",
        "lead_of_key",
        "lead_of_any",
        "context",
        "kin",
        "hub",
        "peers",
        "identifier",
        "ref_identifier",
        "ref_primary",
    ]
)
"""Features of which more never speaks against a foreign key."""

FALLING = frozenset("distance out_of_range parent better_named length_difference references dependents own".split())  # noqa: SIM905
"""Features of which more never speaks for one."""

DATA = [
    "phi",
    "coverage",
    "dep_distinct",
    "ref_distinct",
    "dep_unique",
    "dep_key",
    "dep_primary",
    "ref_primary",
    "nulls",
    "dep_ordinal",
    "ref_ordinal",
    "ref_density",
    "dep_density",
    "ref_counts",
    "dep_integer",
    "ref_integer",
    "same_type",
    "dep_numeric",
    "references",
    "dependents",
    "ref_references",
    "distance",
    "out_of_range",
    "length_difference",
    "same_table",
    "row_ratio",
    "greatest_ratio",
    "repetition",
    "equal_sets",
    "lead_randomness",
    "lead_coverage",
    "lead_distinct",
]
"""Features that need no name."""


@dataclass(slots=True)
class Pairs:
    """Hold the candidates of a database for one sort of keys: features float64[n, m], Rostin's, and which are right."""

    database: Database
    candidates: list[Candidate]
    features: np.ndarray
    names: list[str]
    rostin: np.ndarray
    is_right: np.ndarray

    def column(self, name: str) -> np.ndarray:
        """Give one feature."""
        return self.features[:, self.names.index(name)] if self.candidates else np.zeros(0)


def monotone_trees(names: Sequence[str], depth: int, rounds: int, rate: float) -> Any:
    """Give boosted trees to be fitted, monotone where RISING and FALLING say so; of depth 1 they are additive."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_depth=depth,
        max_iter=rounds,
        learning_rate=rate,
        min_samples_leaf=10,
        l2_regularization=1.0,
        max_bins=64,
        early_stopping=False,
        monotonic_cst=[(name in RISING) - (name in FALLING) for name in names],
    )


def read_pairs(folder: Path, work: Path, declared: bool, cache: Path | None) -> list[Pairs]:
    """Compute the features of all databases, or read them from where an earlier run has left them."""
    kept = cache / f"fk-features-{'declared' if declared else 'inferred'}.pickle" if cache else None
    if kept and kept.exists():
        return list(pickle.loads(kept.read_bytes()))
    found = [candidate_pairs(database, declared) for database in read_databases(folder, work)]
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
    return found


def candidate_pairs(database: Database, declared: bool, theta: float = 0.9) -> Pairs:
    """Find the candidates of a database, and compute their features."""
    columns, overlap = database.columns, database.overlap
    keys = database.keys(declared)
    distinct = np.array([len(column.values) for column in columns])
    coefficients = {
        (a, b): float(overlap[a, b] / distinct[a])
        for b in keys
        for a in np.flatnonzero((overlap[:, b] >= theta * distinct) & (distinct > 0)).tolist()
        if a != b
    }
    table_of = {i: column.table for i, column in enumerate(columns) if column.values}
    candidates = sorted(single_candidates(Inclusions(table_of, coefficients), keys, theta))
    if not candidates:
        none = np.zeros((0, 0))
        return Pairs(database, [], none, [], none, np.zeros(0, np.bool_))
    pairs = [(candidate.dependent[0], candidate.referenced[0]) for candidate in candidates]
    features = _data(database, pairs, coefficients, declared)
    features |= _names(database, pairs, keys)
    for name, of, sign in (
        ("randomness", "distance", -1),
        ("coverage", "coverage", 1),
        ("distinct", "ref_distinct", -1),
    ):
        features[f"lead_{name}"] = _lead(sign * features[of], [a for a, _ in pairs])
    profiles = {
        i: ColumnProfile(c.table_name, c.name, c.rows, len(c.values), sum(map(len, c.values)) / len(c.values))
        for i, c in enumerate(columns)
        if c.values
    }
    outside = dict(zip(pairs, features["out_of_range"].tolist(), strict=True))
    shared = {(a, b): int(overlap[a, b]) for a, b in pairs}
    found = rostin_features(candidates, profiles, shared, outside)
    return Pairs(
        database,
        candidates,
        np.stack(list(features.values()), 1).astype(np.float64),
        list(features),
        np.array([found[candidate].row() for candidate in candidates]),
        np.array([candidate in database.truth for candidate in candidates]),
    )


def _data(
    database: Database, pairs: list[tuple[int, int]], coefficients: dict[tuple[int, int], float], declared: bool
) -> dict[str, np.ndarray]:
    """Compute what the values say."""
    columns = database.columns
    numbers = {i: _Numbers.of(columns[i]) for i in {column for pair in pairs for column in pair}}
    references, dependents = defaultdict(int), defaultdict(int)
    for a, b in pairs:
        references[a] += 1
        dependents[b] += 1
    distances = _distances(columns, pairs)
    sorted_keys: dict[int, list[OrderKey]] = {}
    rows = []
    for (a, b), distance in zip(pairs, distances, strict=True):
        own, key, of_own, of_key = columns[a], columns[b], numbers[a], numbers[b]
        if b not in sorted_keys:
            sorted_keys[b] = sorted(map(key.order.key, key.values))
        ends = sorted(map(key.order.key, (of_own.first, of_own.last)))
        inside = bisect_right(sorted_keys[b], ends[1]) - bisect_left(sorted_keys[b], ends[0])
        rows.append(
            {
                "phi": coefficients[a, b],
                "coverage": database.overlap[a, b] / len(key.values),
                "dep_distinct": log(len(own.values)),
                "ref_distinct": log(len(key.values)),
                "dep_unique": own.repeated == 0,
                "dep_key": own.is_declared_key if declared else own.is_unique,
                "dep_primary": own.is_in_primary_key and declared,
                "ref_primary": key.is_in_primary_key and declared,
                "nulls": own.nulls / own.rows,
                "dep_ordinal": own.ordinal,
                "ref_ordinal": key.ordinal,
                "ref_density": of_key.density,
                "dep_density": of_own.density,
                "ref_counts": of_key.density > 0.8 and of_key.least in (0, 1),
                "dep_integer": of_own.density > 0,
                "ref_integer": of_key.density > 0,
                "same_type": own.data_type == key.data_type,
                "dep_numeric": own.order is ValueOrder.NUMERIC,
                "references": references[a],
                "dependents": dependents[b],
                "ref_references": references[b],
                "distance": distance,
                "out_of_range": 1 - inside / len(key.values),
                "length_difference": abs(of_own.mean_length - of_key.mean_length),
                "same_table": own.table == key.table,
                "row_ratio": log(own.rows / key.rows),
                "greatest_ratio": of_own.greatest / of_key.greatest if of_own.density and of_key.greatest else -1,
                "repetition": log(own.rows / len(own.values)),
                "equal_sets": database.overlap[a, b] == len(key.values),
            }
        )
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _distances(columns: list[Column], pairs: list[tuple[int, int]]) -> list[float]:
    """Measure the randomness of pairs, 1 where there is none to measure; a key's grid is built once."""
    grids: dict[int, KeyHistogram] = {}
    cells: dict[int, dict[str, int]] = {}
    found = []
    for a, b in pairs:
        own, key = columns[a], columns[b]
        if not own.order.is_comparable_with(key.order):
            found.append(1.0)
            continue
        if b not in grids:
            grids[b] = KeyHistogram.of([(value,) for value in key.values], [key.order])
            ordered = list(key.values)
            cells[b] = dict(zip(ordered, grids[b].grids[0].cells_of(ordered).tolist(), strict=True))
        grid, known = grids[b].grids[0], cells[b]
        places = [known[v] if v in known else int(grid.cells_of([v])[0]) for v in own.values]
        found.append(randomness(GridHistogram.of([len(grid)], [np.array(places)]), grids[b]).distance)
    return found


@dataclass(slots=True)
class _Numbers:
    """Hold what a column's values are as integers: how dense, from where to where (0 density: none are)."""

    first: str
    last: str
    density: float
    least: int
    greatest: int
    mean_length: float

    @staticmethod
    def of(column: Column) -> _Numbers:
        ordered = sorted(column.values, key=column.order.key)
        ends, mean = (ordered[0], ordered[-1]), sum(map(len, ordered)) / len(ordered)
        if column.order is ValueOrder.NUMERIC and all(value.removeprefix("-").isdigit() for value in ordered):
            least, greatest = map(int, ends)
            return _Numbers(*ends, len(ordered) / (greatest - least + 1), least, greatest, mean)
        return _Numbers(*ends, 0.0, 0, 0, mean)


def _names(database: Database, pairs: list[tuple[int, int]], keys: list[int]) -> dict[str, np.ndarray]:
    """Compute what the names say: of a pair, against the others of its columns, and against the database's ways."""
    words = Vocabulary(database.tables)
    named = [words.column(column.table_name, column.name) for column in database.columns]
    known: dict[tuple[int, int], NameSimilarity] = {}

    def compare(a: int, b: int) -> NameSimilarity:
        if (a, b) not in known:
            known[a, b] = words.similarity(named[a], named[b])
        return known[a, b]

    def identifies(column: int) -> bool:
        return named[column].words[-1:] != () and named[column].words[-1] in IDENTIFIERS

    found = [compare(a, b) for a, b in pairs]
    plain = np.array([_evidence(similarity) for similarity in found])
    # Where columns that refer end in `id`, one that does not seldom refers to a key that does.
    strong = {a: identifies(a) for (a, b), of in zip(pairs, plain, strict=True) if of >= STRONG and identifies(b)}
    habit = (sum(strong.values()) + 0.5) / (len(strong) + 1)
    usual = np.array([1 - 0.5 * habit if identifies(b) and not identifies(a) else 1.0 for a, b in pairs])
    kin = np.array([words.alike(named[a].table, named[b].table) for a, b in pairs])
    evidence = 0.97 * plain * usual + 0.03 * kin
    of_pair = dict(zip(pairs, evidence.tolist(), strict=True))
    dependents, referenced = [a for a, _ in pairs], [b for _, b in pairs]
    best: dict[int, float] = {}
    for a, of in zip(dependents, evidence.tolist(), strict=True):
        best[a] = max(best.get(a, 0.0), of)
    candidates = defaultdict(list)
    for a, b in pairs:
        candidates[a].append(b)
    leads = [of >= 0.75 and of >= best[a] for a, of in zip(dependents, evidence.tolist(), strict=True)]
    followed: dict[int, int] = defaultdict(int)
    for b, leads_here in zip(referenced, leads, strict=True):
        followed[b] += leads_here
    any_key = {a: max((_evidence(compare(a, b)) for b in keys if b != a), default=0.0) for a in candidates}
    own = np.array([words.alike(named[a].words, (*named[a].table, *named[a].words[-1:])) for a in dependents])
    context = np.array(
        [words.covered((*named[b].table, *named[b].words), (*named[a].words, *named[a].table)) for a, b in pairs]
    )
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, column in enumerate(database.columns):
        if column.values:
            alike[named[i].words].append(i)

    def between(lower: int, upper: int, a: int, other: int | None = None) -> float:
        """Say how well named a key above, or below, one of a's references is: what a refers to may be that one."""
        return min(of_pair.get((lower, upper), 0.0), of_pair[a, upper if other is None else other])

    features = {
        f"name_{short}": usual * np.array([float(getattr(similarity, of)) for similarity in found])
        for short, of in (
            ("equal", "equal"), ("column", "column"), ("full", "full"), ("explained", "explained"), ("table", "table"),
            ("said", "column_said"), ("subject", "subject"), ("role_said", "role_said"),
            ("role_explained", "role_explained"),
        )
    }  # fmt: skip
    return features | {
        "name": usual * np.array([similarity.best for similarity in found]),
        "evidence": evidence,
        "lead_evidence": _lead(evidence, dependents),
        "lead_of_key": _lead(evidence, referenced),
        "lead_of_any": evidence - np.array([any_key[a] for a in dependents]),
        "lead_own": evidence - own,
        "lead_back": evidence - np.array([of_pair.get((b, a), 0.0) for a, b in pairs]),
        "lead_context": _lead(context, dependents),
        "lead_kin": _lead(kin, dependents),
        "own": own,
        "context": context,
        "kin": kin,
        "ref_identifier": np.array([identifies(b) for _, b in pairs], np.float64),
        "identifier": np.array([identifies(a) for a in dependents], np.float64),
        "habit": np.array([identifies(a) - habit for a in dependents]),
        "hub": np.log1p([followed[b] - leads_here for b, leads_here in zip(referenced, leads, strict=True)]),
        "peers": np.array([_share((x, b) in of_pair or x == b for x in alike[named[a].words]) for a, b in pairs]),
        "parent": np.array([max((between(b, c, a) for c in candidates[a]), default=0.0) for a, b in pairs]),
        "child": np.array([max((between(c, b, a, c) for c in candidates[a]), default=0.0) for a, b in pairs]),
        "better_named": np.array([sum(of_pair[a, c] > of_pair[a, b] for c in candidates[a]) for a, b in pairs]),
    }  # fmt: skip


def _evidence(similarity: NameSimilarity) -> float:
    """Give one number for a name: as alike as a whole, or an end that agrees behind a role."""
    role = similarity.role_said * similarity.role_explained
    return max(similarity.best, 0.5 + 0.5 * sqrt(role) if role else 0.0)


def _lead(values: np.ndarray, groups: list[int]) -> np.ndarray:
    """Give how far each value is in front of the best other one of its group: 1 where it is alone."""
    members = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    found = np.ones(len(values))
    for places in members.values():
        if len(places) > 1:
            first, second = np.sort(values[places])[:-3:-1]
            found[places] = values[places] - np.where(
                np.arange(len(places)) == np.argmax(values[places]), second, first
            )
    return found


def _share(flags: Iterable[bool]) -> float:
    return float(np.mean(list(flags)))
