"""Own the finding of foreign keys in one version of the state: keys, candidates, what is measured, their ranking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from service.core.estimators import Estimate
from service.core.foreign_keys.candidates import THETA, Candidate, Columns
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.ranking import Method, Ranked, rank
from service.core.quantile_grids import SINGLE_CELLS, GridHistogram, KeyHistogram
from service.core.randomness import Randomness, outside, randomness
from service.core.value_order import ValueOrder
from service.usecases import coefficient_table as coefficients
from service.usecases.answers import EVERY_ATTRIBUTE, AttributeFilter, AttributeInfo, EstimatedCoefficient
from service.usecases.foreign_key_ports import KeySnapshot, ValueStatistics, WantedGrid
from service.usecases.key_values import TupleInfo
from service.usecases.sketched_columns import ALL, has_values, read_sketches


class Keys(StrEnum):
    """Name which columns may be referred to.

    DECLARED: the keys of tables whose source declares some. INFERRED: what is unique and never NULL. KNOWN: of each
    table those that its source declares, and what is unique where it declares none; of tuples those that are tracked
    as keys.
    """

    KNOWN = "known"
    DECLARED = "declared"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Question:
    """Ask for foreign keys: how candidates are ranked, from which coefficient on they are some, over which grids.

    `estimator` says how coefficients are found: None for exactly where values are stored, and estimated elsewhere.
    """

    method: Method = Method.COMBINED
    theta: float = THETA
    keys: Keys = Keys.KNOWN
    cells: int = SINGLE_CELLS
    estimator: coefficients.MethodName | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Hold the randomness of a candidate with the histograms that it was measured on."""

    randomness: Randomness
    of_dependent: GridHistogram
    of_key: KeyHistogram


@dataclass(frozen=True, slots=True, eq=False)
class ForeignKeys:
    """Hold the candidates of one version, best first, with what they were ranked by.

    `attributes` and `profiles` are of all columns, by id, and `tuples` those of followed tuples, by their parts.
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
    left_out: Sequence[str] = field(default_factory=tuple)

    def side(self, columns: Columns) -> tuple[AttributeInfo, ColumnProfile]:
        """Give what one side of a candidate is, a column or the tuples of several."""
        if len(columns) > 1:
            return self.tuples[columns]
        return self.attributes[columns[0]], self.profiles[columns[0]]


def find_foreign_keys(snapshot: KeySnapshot, question: Question) -> ForeignKeys:
    """Find candidates of one column and of followed tuples (Algorithm B.1), measure and rank them.

    The inclusion of tuples is kept as that of columns is, so both phases of the algorithm are one. Randomness is
    measured of single columns alone. The snapshot is opened `with_values`.
    """
    attributes = {one.attribute_id: one for one in snapshot.attributes(EVERY_ATTRIBUTE, None, ALL)}
    tuples, left_out = snapshot.tuples(), []
    if question.method is Method.RANDOMNESS and tuples:
        tuples, left_out = [], ["tuples of columns: their randomness is not measured, every other method ranks them"]
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
    for found in table.all():
        a, b = found.dependent.attribute_id, found.referenced.attribute_id  # type: ignore[union-attr]
        if len(parts[a]) == len(parts[b]):  # an estimate can take tuples to be contained in others
            candidate = Candidate(parts[a], parts[b])
            estimates[candidate], ids[candidate] = found, (a, b)
    sizes = {i: round(table.distinct_count(one) or 0) for i, one in sides.items()}
    single = [candidate for candidate in estimates if len(candidate.dependent) == 1]
    concerned = sorted({column for candidate in single for side in candidate for column in side})
    statistics = dict(snapshot.value_statistics([i for i in concerned if has_values(attributes[i])]))
    primary = _primary_columns(snapshot, attributes)
    all_profiles = {i: column_profile(one, sizes[i], statistics.get(i), i in primary) for i, one in sides.items()}
    profiles = {i: all_profiles[i] for i in attributes}
    spreads = _spreads(snapshot, single, profiles, statistics, question.cells)
    measured = {
        candidate: _measured(*ids[candidate], found.estimate, all_profiles, spreads.get(candidate), statistics)
        for candidate, found in estimates.items()
    }
    referred = [parts[key] for key in keys]
    cut = sorted(str(attributes[i].name) for i, of in statistics.items() if of.is_cut)
    return ForeignKeys(
        version=snapshot.head.version,
        question=question,
        keys=referred,
        ranked=rank(measured, profiles, referred, question.method),
        attributes=attributes,
        profiles=profiles,
        tuples={parts[i]: (one, all_profiles[i]) for i, one in of_tuples.items()},
        estimates=estimates,
        spreads=spreads,
        left_out=[
            *left_out,
            *table.left_out.values(),
            *(f"{name} has values longer than what is stored of them: no randomness is measured" for name in cut),
        ],
    )


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
    return one.are_declared if wanted is Keys.DECLARED else one.are_tracked


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


def _spreads(
    snapshot: KeySnapshot,
    candidates: Iterable[Candidate],
    profiles: Mapping[int, ColumnProfile],
    statistics: Mapping[int, ValueStatistics],
    cells: int,
) -> dict[Candidate, Spread]:
    """Measure the randomness of candidates that have one, key by key; where a value is cut its rank is not known."""
    ranked = {i: looks.order for i, looks in statistics.items() if not looks.is_cut}
    by_key: dict[int, list[int]] = defaultdict(list)
    for (a,), (b,) in candidates:
        if a in ranked and b in ranked and ranked[a].is_comparable_with(ranked[b]):
            by_key[b].append(a)
    found = {}
    for key, dependents in by_key.items():
        wanted = WantedGrid(key, profiles[key].distinct, ranked[key], cells)
        of_key, histograms = snapshot.spreads(wanted, dependents)
        for dependent, histogram in histograms.items():
            found[Candidate((dependent,), (key,))] = Spread(randomness(histogram, of_key), histogram, of_key)
    return found


def _measured(
    a: int,
    b: int,
    estimate: Estimate,
    profiles: Mapping[int, ColumnProfile],
    spread: Spread | None,
    statistics: Mapping[int, ValueStatistics],
) -> Measured:
    phi = min(estimate.phi or 0.0, 1.0)
    known = Measured(phi, min(phi * profiles[a].distinct / profiles[b].distinct, 1.0))
    if spread is not None:
        return replace(
            known,
            distance=spread.randomness.distance,
            outside=outside(spread.of_dependent, spread.of_key),
        )
    if a in statistics and b in statistics and not profiles[a].order.is_comparable_with(profiles[b].order):
        return replace(known, distance=1.0, outside=1.0)
    return known
