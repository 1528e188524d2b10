"""Own the finding of foreign keys in one version of the state: keys, candidates, what is measured, their ranking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Any

from service.core.foreign_keys.candidates import THETA, Candidate, Columns
from service.core.foreign_keys.likeliest import Reference, likeliest, most_references
from service.core.foreign_keys.profiles import ColumnProfile
from service.core.foreign_keys.ranking import Method, Ranked, rank
from service.core.foreign_keys.sides import ForeignKey
from service.core.histogram_changes import Histograms
from service.core.quantile_grids import COMPOSITE_CELLS, SINGLE_CELLS
from service.core.shown_values import told_shown
from service.core.value_order import ValueOrder
from service.usecases import coefficient_table as coefficients
from service.usecases.answers import EVERY_ATTRIBUTE, AttributeFilter, AttributeInfo, EstimatedCoefficient
from service.usecases.decided_pairs import Decided
from service.usecases.finding_progress import Stage, Telling, told, untold
from service.usecases.foreign_key_ports import KeySnapshot, ValueStatistics
from service.usecases.histogram_upkeep import Spread, Spreads, value_statistics
from service.usecases.key_values import TupleInfo
from service.usecases.sketched_columns import ALL, has_values, read_sketches

MOST_REPEATED = 0.01
"""Which share of the tuples of a key that no source declares may be there again."""


class Keys(StrEnum):
    """Name which columns may be referred to.

    DECLARED: the keys of tables whose source declares some. INFERRED: what is unique and never NULL. KNOWN: of each
    table those that its source declares, and what is unique where it declares none; of tuples those that are tracked
    as keys and, where no source declares them, nearly unique.
    """

    KNOWN = "known"
    DECLARED = "declared"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Question:
    """Ask for foreign keys: how candidates are ranked, from which coefficient on they are some, over which grids.

    `cells` has the quantiles of a column, `tuple_cells` those of each column of a tuple.
    `estimator` says how coefficients are found: None for exactly where values are stored, and estimated elsewhere.
    """

    method: Method = Method.COMBINED
    theta: float = THETA
    keys: Keys = Keys.KNOWN
    cells: int = SINGLE_CELLS
    tuple_cells: int = COMPOSITE_CELLS
    estimator: coefficients.MethodName | None = None

    def options(self) -> dict[str, Any]:
        """Give all but the method, as JSON has it, by the names that who asks knows."""
        return {
            "min_coefficient": self.theta,
            "keys": self.keys,
            "cells": self.cells,
            "tuple_cells": self.tuple_cells,
            "estimator": self.estimator,
        }


@dataclass(frozen=True, slots=True, eq=False)
class ForeignKeys:
    """Hold the candidates of one version, best first, with what they were ranked by.

    `attributes` and `profiles` are of all columns, by id, and `tuples` those of followed tuples, by their parts.
    `histograms` are those that `spreads` were measured on, key by key; `statistics` by attribute id tell of values.
    `left_out` says of columns why they have no candidates, or their values no randomness.
    """

    version: int
    question: Question
    keys: Sequence[Columns]
    ranked: Sequence[Ranked]
    attributes: Mapping[int, AttributeInfo]
    profiles: Mapping[int, ColumnProfile]
    tuples: Mapping[Columns, tuple[AttributeInfo, ColumnProfile]]
    estimates: Mapping[Candidate, EstimatedCoefficient]
    spreads: Mapping[Candidate, Spread]
    histograms: Sequence[Histograms]
    statistics: Mapping[int, ValueStatistics]
    left_out: Sequence[str] = field(default_factory=tuple)

    def side(self, columns: Columns) -> tuple[AttributeInfo, ColumnProfile]:
        """Give what one side of a candidate is, a column or the tuples of several."""
        if len(columns) > 1:
            return self.tuples[columns]
        return self.attributes[columns[0]], self.profiles[columns[0]]


def find_foreign_keys(snapshot: KeySnapshot, question: Question, telling: Telling = untold) -> ForeignKeys:
    """Find candidates of one column and of followed tuples (Algorithm B.1), measure and rank them.

    The inclusion of tuples is kept as that of columns is, so both phases of the algorithm are one. The snapshot is
    opened `with_values`. What `telling` raises ends the finding.
    """
    telling(Stage.CLUSTERS, 0, None)
    snapshot.memberships()
    attributes = {one.attribute_id: one for one in snapshot.attributes(EVERY_ATTRIBUTE, None, ALL)}
    tuples = snapshot.tuples()
    of_tuples = _tuple_attributes(snapshot, tuples)
    sides = attributes | of_tuples
    parts = {i: (i,) for i in attributes} | {one.attribute_id: one.parts for one in tuples}
    keys = _keys(snapshot, attributes, question.keys)
    keys += [one.attribute_id for one in tuples if _is_key(one, of_tuples[one.attribute_id], question.keys)]
    table = coefficients.Coefficients(
        snapshot,
        list(sides.values()),
        [sides[key] for key in keys],
        coefficients.Question(method=coefficients.Method(question.estimator), threshold=question.theta),
    )
    estimates, ids = {}, {}
    dropped: list[str] = []
    for found in _likeliest(table, told(telling, Stage.INCLUSIONS, table.all(), None), dropped):
        a, b = found.dependent.attribute_id, found.referenced.attribute_id  # type: ignore[union-attr]
        if len(parts[a]) == len(parts[b]):  # an estimate can take tuples to be contained in others
            candidate = Candidate(parts[a], parts[b])
            estimates[candidate], ids[candidate] = found, (a, b)
    sizes = {i: round(table.distinct_count(one) or 0) for i, one in sides.items()}
    concerned = {side for pair in ids.values() for side in pair}
    concerned |= {column for side in concerned for column in parts[side]}
    telling(Stage.VALUES, 0, None)
    changes = snapshot.value_changes()
    with_values = {i for i in concerned if has_values(sides[i])}
    # What is not kept whole cannot be put in order: no randomness is better than that of beginnings.
    hidden = {i for i in with_values if sides[i].shown_characters is not None}
    statistics = value_statistics(snapshot, with_values - hidden, sizes, changes)
    # Who asks for inferred keys asks as if no schema said which are primary: the ranking has a model for that.
    primary = set() if question.keys is Keys.INFERRED else _primary_columns(snapshot, attributes)
    all_profiles = {i: column_profile(one, sizes[i], statistics.get(i), i in primary) for i, one in sides.items()}
    profiles = {i: all_profiles[i] for i in attributes}
    spreads = Spreads(snapshot, parts, all_profiles, statistics, changes)
    by_key: dict[int, dict[Candidate, tuple[int, int]]] = defaultdict(dict)
    for candidate, pair in ids.items():
        by_key[pair[1]][candidate] = pair
    found_spreads: dict[Candidate, Spread] = {}
    for of_key in told(telling, Stage.RANDOMNESS, by_key.values(), len(by_key)):
        found_spreads |= spreads.of(of_key, question.cells, question.tuple_cells)
    measured = {
        candidate: spreads.measured(*ids[candidate], found.estimate, found_spreads.get(candidate))
        for candidate, found in estimates.items()
    }
    telling(Stage.RANKING, 0, None)
    referred = [parts[key] for key in keys]
    known = Decided(snapshot)
    rejected = {
        candidate
        for candidate in (measured if known else ())
        if known.rules_out(ForeignKey.of(*([attributes[i].name for i in side] for side in candidate)))
    }
    cut = sorted(str(sides[i].name) for i, of in statistics.items() if of.is_cut)
    return ForeignKeys(
        version=snapshot.head.version,
        question=question,
        keys=referred,
        ranked=rank(
            measured,
            profiles,
            referred,
            question.method,
            partial(telling, Stage.RANKING),
            rejected,
            (question.cells, question.tuple_cells),
        ),
        attributes=attributes,
        profiles=profiles,
        tuples={parts[i]: (one, all_profiles[i]) for i, one in of_tuples.items()},
        estimates=estimates,
        spreads=found_spreads,
        histograms=spreads.histograms,
        statistics=statistics,
        left_out=[
            *table.left_out.values(),
            *dropped,
            *(
                f"{sides[a].name} → {sides[b].name}: no randomness is measured: {why}"
                for candidate, why in spreads.not_measured.items()
                for a, b in [ids[candidate]]
            ),
            *(f"{name} has values longer than what is stored of them: no randomness is measured" for name in cut),
            *(
                f"{name}: its values are not kept ({told_shown(sides[i].shown_characters)}): no randomness is measured"
                for name, i in sorted((str(sides[i].name), i) for i in hidden)
            ),
        ],
    )


def _likeliest(
    table: coefficients.Coefficients, candidates: Iterable[EstimatedCoefficient], dropped: list[str]
) -> Iterator[EstimatedCoefficient]:
    """Yield candidates, given by dependent; of a column that has too many the likeliest, naming it in `dropped`."""
    most = most_references(len(table.dependents))
    sizes = {one.attribute_id: table.distinct_count(one) for one in table.referenced}  # type: ignore[union-attr]
    for dependent, group in groupby(candidates, lambda one: one.dependent):
        found = list(group)
        references = [
            Reference(name.table, name.column, (one.estimate.phi or 0.0) / (sizes[of.attribute_id] or 1))  # type: ignore[union-attr]
            for one in found
            for of in [one.referenced]
            for name in [of.name]  # type: ignore[union-attr]
        ]
        if len(found) > most:
            dropped.append(f"{dependent.name} is contained in {len(found):,} keys: the likeliest {most:,} are ranked")
        for place in likeliest(dependent.name.column, references, most):  # type: ignore[union-attr]
            yield found[place]


def _tuple_attributes(snapshot: KeySnapshot, tuples: Sequence[TupleInfo]) -> dict[int, AttributeInfo]:
    """Read the attributes that tuples are, by id."""
    return {
        one.attribute_id: one
        for arity in sorted({len(one.parts) for one in tuples})
        for one in snapshot.attributes(AttributeFilter(arity=arity), None, ALL)
    }


def _is_key(one: TupleInfo, counted: AttributeInfo, wanted: Keys) -> bool:
    """Tell whether tuples may be referred to."""
    if wanted is Keys.INFERRED:
        return not counted.null_count and counted.distinct_count == counted.row_count > 0
    if wanted is Keys.DECLARED or one.are_declared:
        return one.are_declared
    # The dependent side of a composite foreign key is tracked as well: that a key is meant, its values have to show.
    distinct = counted.distinct_count or 0
    return one.are_tracked and counted.row_count - counted.null_count - distinct <= MOST_REPEATED * distinct


def _keys(snapshot: KeySnapshot, attributes: Mapping[int, AttributeInfo], wanted: Keys) -> list[int]:
    """List the attributes that may be referred to, by id."""
    declared = snapshot.declared_keys() if wanted is not Keys.INFERRED else []
    tables = {(key.schema, key.table) for key in declared}
    alone = {(key.schema, key.table, key.ordinals[0]) for key in declared if len(key.ordinals) == 1}
    rest = [] if wanted is Keys.DECLARED else [one for one in attributes.values() if _table_of(one) not in tables]
    chosen = {one.attribute_id for one in attributes.values() if (*_table_of(one), one.ordinal) in alone}
    return sorted(chosen | _unique(snapshot, rest))


def _unique(snapshot: KeySnapshot, attributes: Iterable[AttributeInfo]) -> set[int]:
    """Find the attributes with a value of its own in each row; of sketches, as far as their interval tells."""
    whole = {one.attribute_id: one for one in attributes if one.row_count and not one.null_count}
    found = {i for i, one in whole.items() if one.distinct_count == one.row_count}
    unknown = [one for one in whole.values() if one.distinct_count is None]
    for one, sketch in read_sketches(snapshot, unknown):
        if not isinstance(sketch, str) and isinstance(one, AttributeInfo):
            low, high = sketch.bounds()
            if low <= one.row_count <= high:
                found.add(one.attribute_id)
    return found


def _primary_columns(snapshot: KeySnapshot, attributes: Mapping[int, AttributeInfo]) -> set[int]:
    """Find the attributes that are in their table's declared primary key."""
    places = {(*_table_of(one), one.ordinal): i for i, one in attributes.items()}
    return {
        places[key.schema, key.table, ordinal]
        for key in snapshot.declared_keys()
        if key.is_primary
        for ordinal in key.ordinals
        if (key.schema, key.table, ordinal) in places
    }


def _table_of(one: AttributeInfo) -> tuple[str, str]:
    return one.name.schema, one.name.table


def column_profile(one: AttributeInfo, distinct: int, looks: ValueStatistics | None, is_primary: bool) -> ColumnProfile:
    """Give what the ranking is told of an attribute; of its values where `looks` are known."""
    known = ColumnProfile(
        schema=one.name.schema,
        table=one.name.table,
        name=one.name.column,
        ordinal=one.ordinal,
        data_type=one.data_type.partition("(")[0].lower(),
        rows=one.row_count,
        nulls=one.null_count,
        distinct=distinct,
        order=ValueOrder.LEXICOGRAPHIC,
        is_primary=is_primary,
    )
    if looks is None:
        return known
    return replace(
        known,
        order=looks.order,
        least=looks.first,
        greatest=looks.last,
        mean_length=looks.mean_length,
        is_integer=looks.is_integer,
    )
