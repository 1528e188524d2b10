"""Own the features of foreign-key candidates: of a pair of columns, and of the pair among the others of its columns.

They are pure functions of profiles, counts and names. What was not measured is NaN, of which a model says nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import log

import numpy as np

from service.core.foreign_keys.margins import lead
from service.core.foreign_keys.name_features import Told, name_features, untold
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.quantile_grids import Floats
from service.core.value_order import ValueOrder

Pair = tuple[int, int]
"""A dependent and a referenced column."""

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
        "table_said",
        "lead_table_said",
    ]
)
"""Features of which more never speaks against a foreign key."""

FALLING = frozenset(
    "distance outside parent better_named length_difference references dependents own ref_place".split()  # noqa: SIM905
)
"""Features of which more never speaks for one."""


def pair_features(
    measured: Mapping[Pair, Measured],
    columns: Mapping[int, ColumnProfile],
    keys: Collection[int],
    telling: Told = untold,
) -> dict[str, Floats]:
    """Give each feature of n candidates of one column, float64[n], in the order of `measured`.

    `columns` has all columns of the database, those without values too: their names tell how its names are made. `keys`
    are those that may be referred to.
    """
    pairs, keys = list(measured), frozenset(keys)
    of_names = name_features(pairs, columns, keys, telling)
    # Keys come first in their tables. But one that identifies may stand anywhere, where its table has none before it.
    is_first = np.array(_rivals(pairs, columns, keys), np.int64) == 0
    position = np.where((of_names["ref_identifier"] > 0) & is_first, 0.0, [columns[b].ordinal for _, b in pairs])
    return data_features(measured, columns, keys) | of_names | {"ref_position": position}


def _rivals(pairs: Sequence[Pair], columns: Mapping[int, ColumnProfile], keys: Collection[int]) -> list[int]:
    """Count for each pair the keys of the referenced table that are before its key, and have the column as well."""
    within: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        within[a] |= {a, b} if a in keys else {b}  # a key is within itself
    places = {a: _places(columns, found) for a, found in within.items()}
    return [places[a][b] for a, b in pairs]


def data_features(
    measured: Mapping[Pair, Measured], columns: Mapping[int, ColumnProfile], keys: Collection[int]
) -> dict[str, Floats]:
    """Give the features that need no name."""
    references, dependents = Counter(a for a, _ in measured), Counter(b for _, b in measured)
    places = _places(columns, {*keys, *dependents})
    rows = [
        {
            **_of_columns(columns[a], columns[b]),
            "phi": found.phi,
            "coverage": found.coverage,
            "equal_sets": found.phi == found.coverage == 1,
            "distance": _known(found.distance),
            "outside": _known(found.outside),
            "dep_key": a in keys,
            "references": references[a],
            "dependents": dependents[b],
            "ref_references": references[b],
            "ref_place": places[b],
        }
        for (a, b), found in measured.items()
    ]
    features = {name: np.array([row[name] for row in rows], np.float64) for name in (rows[0] if rows else ())}
    for name, of, sign in (
        ("randomness", "distance", -1),
        ("coverage", "coverage", 1),
        ("distinct", "ref_distinct", -1),
    ):
        if rows:
            features[f"lead_{name}"] = lead(sign * features[of], [a for a, _ in measured])
    return features


def _places(columns: Mapping[int, ColumnProfile], keys: Collection[int]) -> dict[int, int]:
    """Give the place of each key among those of its table, from 0: a primary one is first, the others by position."""
    tables: dict[tuple[str, str], list[int]] = defaultdict(list)
    for key in keys:
        tables[columns[key].schema, columns[key].table].append(key)
    ordered = (
        sorted(of_table, key=lambda key: (not columns[key].is_primary, columns[key].ordinal))
        for of_table in tables.values()
    )
    return {key: place for of_table in ordered for place, key in enumerate(of_table)}


def _of_columns(own: ColumnProfile, key: ColumnProfile) -> dict[str, float]:
    return {
        "dep_distinct": log(own.distinct),
        "ref_distinct": log(key.distinct),
        "dep_unique": not own.has_repeats,
        "dep_primary": own.is_primary,
        "ref_primary": key.is_primary,
        "nulls": own.nulls / own.rows,
        "dep_ordinal": own.ordinal,
        "ref_density": key.density,
        "dep_density": own.density,
        "ref_counts": key.counts_up,
        "dep_integer": own.is_integer,
        "ref_integer": key.is_integer,
        "same_type": own.data_type == key.data_type,
        "dep_numeric": own.order is ValueOrder.NUMERIC,
        "length_difference": own.length_difference(key),
        "same_table": (own.schema, own.table) == (key.schema, key.table),
        "row_ratio": log(own.rows / key.rows),
        "greatest_ratio": int(own.greatest or 0) / int(key.greatest or 0)
        if own.is_integer and key.is_integer and int(key.greatest or 0)
        else -1,
        "repetition": log(own.rows / own.distinct),
    }


def _known(number: float | None) -> float:
    return np.nan if number is None else number
