"""Own which key a column refers to, if to any: by its values and names, and without these by what its kind says.

Candidates one by one have to say two things at once, whether a column refers and to which of its keys: one of 30 likely
keys has a small score. So a conditional logit, linear, weighs the keys of a column against each other, and the steps of
the model judge the likeliest alone. Columns of one kind refer to one key: `item_names` and `move_names` to languages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import lgamma, nan

import numpy as np

from service.core.foreign_keys.features import Pair
from service.core.foreign_keys.margins import lead
from service.core.foreign_keys.model import AdditiveModel, probability
from service.core.foreign_keys.names import split_name
from service.core.foreign_keys.profiles import ColumnProfile
from service.core.foreign_keys.second_look import Scored
from service.core.quantile_grids import Floats

FOR_A_KEY = ("phi", "lead_randomness", "table_said", "ends", "tightness", "owner")
"""Features of which more never speaks against a key."""

AGAINST_A_KEY = ("distance", "outside", "length_difference", "same_table")
"""Features of which more never speaks for one."""

NAMED_FOR_A_KEY = (
    *("phi", "coverage", "table_said", "ends", "tightness", "owner", "lead_randomness", "same_type", "ref_primary"),
    *("name", "name_equal", "name_column", "name_full", "name_explained", "name_table", "name_said", "name_subject"),
    *("name_role_said", "name_role_explained", "evidence", "kin", "context", "hub", "peers", "ref_identifier"),
)
"""The same of columns with names."""

NAMED_AGAINST_A_KEY = (*AGAINST_A_KEY, "parent", "ref_place", "ref_position")

CHANCES = ("chance", "lead_chance")
"""Features of the likeliest key of which more never speaks against that its column refers."""

LEAST_ENDS, MOST_TIGHTNESS = -30.0, 10.0
"""What a key can say by its size at most, in log-odds."""

LEAST_OF_OTHERS, LEAST_CHANCE = -8.0, -30.0
"""Least log-odds of a key among those of a column: where they are added up over columns of a kind, and after that."""

Kinds = Sequence[Sequence[int]]
"""Columns of one kind each, those with the most values first."""


def choice_features(
    features: Mapping[str, Floats],
    pairs: Sequence[Pair],
    columns: Mapping[int, ColumnProfile],
    keys: Collection[int],
) -> tuple[dict[str, Floats], Kinds]:
    """Give what the choice of a key needs beside the features of n pairs, float64[n] each, and which columns are alike.

    `ends`: how likely a random subset of the key ends where the dependent does, in logs. `tightness`: how much likelier
    than by the best other key the dependent is just this subset of the key. `owner`: see `_owners`.
    """
    ends, subsets = [], []
    for (_, b), coverage, outside in zip(pairs, features["coverage"], features["outside"], strict=True):
        of_key = columns[b].distinct
        shared = min(round(coverage * of_key), of_key)
        subsets.append(-_ways(of_key, shared))
        inside = shared if np.isnan(outside) else max(round(of_key * (1 - outside)), shared)
        ends.append(nan if np.isnan(outside) else max(_ways(inside, shared) + subsets[-1], LEAST_ENDS))
    owners = _owners(features["coverage"], pairs, columns, keys)
    tightness = np.clip(lead(np.array(subsets), [a for a, _ in pairs]), -MOST_TIGHTNESS, MOST_TIGHTNESS)
    owner = np.zeros(len(pairs))
    owner[owners] = 1.0
    found = {"ends": np.array(ends), "tightness": tightness, "owner": owner}
    return found, _kinds([pairs[place] for place in owners], pairs, columns, keys)


def _ways(of: int, chosen: int) -> float:
    """Give the log of how many subsets of so many values there are."""
    return lgamma(of + 1) - lgamma(chosen + 1) - lgamma(of - chosen + 1)


def _owners(
    coverage: Floats, pairs: Sequence[Pair], columns: Mapping[int, ColumnProfile], keys: Collection[int]
) -> list[int]:
    """Give the places of the pairs that say whose a table is: of `item_names` the column that covers `items` best."""
    words = {of.table: frozenset(split_name(of.table)) for of in columns.values()}
    best: dict[tuple[str, str, str, str], tuple[tuple[float, ...], int]] = {}
    for place, (a, b) in enumerate(pairs):
        own, key = columns[a], columns[b]
        if words[key.table] and words[key.table] < words[own.table]:
            tables = own.schema, own.table, key.schema, key.table
            found = (a not in keys, float(coverage[place]), -own.ordinal, -key.ordinal), place
            best[tables] = max(best.get(tables, found), found)
    return [place for _, place in best.values()]


def _kinds(
    owners: Sequence[Pair], pairs: Sequence[Pair], columns: Mapping[int, ColumnProfile], keys: Collection[int]
) -> Kinds:
    """Put columns at one place in tables alike together: those whose owner is at one place, and what refers to nothing.

    What has no column that refers to nothing is an association, of sides of its own.
    """
    said: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)  # how many words an owner's name has, by column
    for a, b in owners:
        of_table = said[columns[a].schema, columns[a].table]
        of_table[a] = max(of_table.get(a, 0), len(frozenset(split_name(columns[b].table))))
    owned = {
        table: [a for a, length in of_table.items() if length == max(of_table.values()) and a not in keys]
        for table, of_table in said.items()
    }
    dependents = dict.fromkeys(a for a, _ in pairs)
    shapes: dict[tuple[str, str], str] = defaultdict(str)
    for i, of in sorted(columns.items(), key=lambda item: item[1].ordinal):
        shape = shapes[of.schema, of.table]
        if of.distinct and not (i not in dependents and shape.endswith("-")):
            shapes[of.schema, of.table] += "r" if i in dependents else "-"
    kinds: dict[tuple[str, str, int, int], list[int]] = defaultdict(list)
    for a in dependents:
        table = columns[a].schema, columns[a].table
        by = owned.get(table)
        if by and a not in by and a not in keys and "-" in shapes[table]:
            owner_at = min(columns[i].ordinal for i in by)
            kinds[columns[a].schema, shapes[table], owner_at, columns[a].ordinal].append(a)
    return [sorted(kind, key=lambda a: -columns[a].distinct) for kind in kinds.values() if len(kind) > 1]


def weighed(weights: Mapping[str, float], features: Mapping[str, Floats], pairs: Sequence[Pair]) -> Floats:
    """Give what the keys of a column weigh against each other, float64[n]; what was not measured weighs nothing."""
    found: Floats = sum(
        (weight * np.nan_to_num(features[name]) for name, weight in weights.items()), start=np.zeros(len(pairs))
    )
    return found


def likeliest_keys(
    weights: Mapping[str, float], features: Mapping[str, Floats], pairs: Sequence[Pair], kinds: Kinds
) -> tuple[dict[str, Floats], Floats, list[int]]:
    """Give what tells whether the column of each of n pairs refers, how far its key is behind, and the likeliest pairs.

    The features are those of the column's likeliest key, with its `chance`, in logs, and its lead; where columns of one
    kind have the same, those of the column with the most values. Behind are the log-odds against the likeliest key.
    """
    by_column: dict[int, list[int]] = defaultdict(list)
    for place, (a, _) in enumerate(pairs):
        by_column[a].append(place)
    chances = _normed(weighed(weights, features, pairs), by_column)
    together = chances.copy()
    for kind in kinds:
        added: dict[int, float] = defaultdict(float)
        for a in kind:
            for place in by_column[a]:
                added[pairs[place][1]] += max(chances[place], LEAST_OF_OTHERS) - LEAST_OF_OTHERS
        for a in kind:
            together[by_column[a]] = [added[pairs[place][1]] for place in by_column[a]]
    chances = np.maximum(_normed(together, by_column), LEAST_CHANCE)
    best = {a: min(places, key=lambda place: (-chances[place], pairs[place])) for a, places in by_column.items()}
    speaks = dict(best)
    for kind in kinds:
        first: dict[int, int] = {}
        for a in kind:
            speaks[a] = first.setdefault(pairs[best[a]][1], best[a])
    of_chances = chances, lead(chances, [a for a, _ in pairs])
    known = {**features, **dict(zip(CHANCES, of_chances, strict=True))}
    spoken = [speaks[a] for a, _ in pairs]
    behind = chances - chances[[best[a] for a, _ in pairs]]
    return {name: of[spoken] for name, of in known.items()}, behind, list(best.values())


def _normed(values: Floats, groups: Mapping[int, Sequence[int]]) -> Floats:
    """Give the log of the share of each value, in logs itself, in its group."""
    found = values.copy()
    for places in groups.values():
        most = values[places].max()
        found[places] = values[places] - most - np.log(np.exp(values[places] - most).sum())
    return found


def score_by_choice(
    model: AdditiveModel, features: Mapping[str, Floats], pairs: Sequence[Pair], kinds: Kinds
) -> Scored:
    """Score candidates: by what tells whether their column refers, and by how far they are behind its likeliest key.

    Raises ValueError for a model that does not choose.
    """
    if model.choice is None:
        raise ValueError("the model does not choose among the keys of a column")
    choice = model.choice
    spoken, behind, likeliest = likeliest_keys(choice.weights, features, pairs, kinds)
    less = choice.rival + choice.behind * behind
    less[likeliest] = 0.0
    terms = {**model.terms(spoken), "behind": less}
    return Scored(model.intercept, terms, {**spoken, "behind": behind}, probability(model.log_odds(spoken) + less))
