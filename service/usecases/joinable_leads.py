"""Own where joinable tables lead: by foreign keys and INDs of tracked tables, by the INDs of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from service.core.errors import NotFoundError
from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey, Side
from service.usecases import queries
from service.usecases.answers import EVERY_ATTRIBUTE, AttributeFilter, AttributeInfo
from service.usecases.corpora import ColumnFilter
from service.usecases.corpora_ports import Corpora, CorpusSnapshot
from service.usecases.decided_pairs import decided
from service.usecases.foreign_key_answers import all_suggested
from service.usecases.foreign_key_decisions import Verdict
from service.usecases.joinable import JoinAnswer, LeadReason, LeadsTo
from service.usecases.ports import StateSnapshot

INDS_LOOKED_AT = 1000
"""INDs of a table that are looked at for the tables it leads to, the first by the ids of their columns."""


def lead_on(corpora: Corpora, corpus: str, answer: JoinAnswer, through: int, look: Callable[[], None]) -> JoinAnswer:
    """Name up to `through` other tables that each table leads to, by the INDs of the generation that was indexed.

    `look` is called before each table, and may raise. Those whose column ours covers most come first, equals by
    their paths: there our table is likeliest to refer to.
    """
    if not through:
        return answer
    try:
        with corpora.snapshot(corpus, answer.generation) as snapshot:
            tables = []
            for table in answer.tables:
                look()
                leads_to = _best(table.table, _by_corpus(snapshot, table.table), through)
                tables.append(replace(table, leads_to=leads_to))
    except NotFoundError:
        return answer
    return replace(answer, tables=tables)


def _by_corpus(snapshot: CorpusSnapshot, path: str) -> Iterator[LeadsTo]:
    for ind in snapshot.inds(ColumnFilter(path), limit=INDS_LOOKED_AT):
        ours, theirs = ind.dependent, ind.referenced
        yield LeadsTo(
            theirs.table,
            LeadReason.IND,
            (ours.name,),
            (ours.position,),
            (theirs.name,),
            (theirs.position,),
            ind.coverage,
        )


def lead_by_state(
    state: StateSnapshot,
    names: Mapping[str, Sequence[str]],
    answer: JoinAnswer,
    through: int,
    look: Callable[[], None],
) -> JoinAnswer:
    """Name up to `through` other tables that each tracked table leads to, in the version that was searched.

    Accepted foreign keys come first, then those that the last finding suggests and nobody rejected, then INDs. `names`
    gives schema and table of each found table; `look` is called before each, and may raise.
    """
    if not through:
        return answer
    leads = _StateLeads(state)
    tables = []
    for table in answer.tables:
        look()
        tables.append(replace(table, leads_to=_best(table.table, leads.of(*names[table.table]), through)))
    return replace(answer, tables=tables)


class _Placed(NamedTuple):
    """Hold the places of columns in their table, and the attribute that they are, or their tuples if followed."""

    places: tuple[int, ...]
    attribute: AttributeInfo | None


class _StateLeads:
    """Read foreign keys and INDs of tracked tables, and what they need of columns, each once."""

    def __init__(self, state: StateSnapshot) -> None:
        self._state = state
        self._verdicts = decided(state)
        refreshes = {one.method: one for one in state.foreign_key_refreshes()}
        last = refreshes.get(Method.COMBINED) or max(refreshes.values(), key=lambda one: one.made_at, default=None)
        suggested = [] if last is None else [one.foreign_key for one in all_suggested(state, last)]
        self._foreign_keys = dict.fromkeys(suggested, LeadReason.SUGGESTED)
        self._foreign_keys |= {
            one: LeadReason.ACCEPTED for one, verdict in self._verdicts.items() if verdict is Verdict.ACCEPT
        }
        self._tuples = {one.parts: one.attribute_id for one in state.tuples()}
        self._columns: dict[tuple[str, str], dict[str, tuple[int, AttributeInfo]]] = {}

    def of(self, schema: str, table: str) -> Iterator[LeadsTo]:
        """Give where a table leads; nothing by a pair that somebody rejected."""
        for foreign_key, reason in self._foreign_keys.items():
            if foreign_key.dependent[:2] == (schema, table):
                yield from self._lead(foreign_key, reason)
        ours = AttributeFilter(schema, table)
        for ind in self._state.uinds(ours, EVERY_ATTRIBUTE, None, after=None, limit=INDS_LOOKED_AT):
            pair = ForeignKey(Side.of([ind.dependent.name]), Side.of([ind.referenced.name]))
            yield from self._lead(pair, LeadReason.IND)

    def _lead(self, pair: ForeignKey, reason: LeadReason) -> Iterator[LeadsTo]:
        ours, theirs = self._side(pair.dependent), self._side(pair.referenced)
        if self._verdicts.get(pair) is Verdict.REJECT or ours is None or theirs is None:
            return
        yield LeadsTo(
            f"{pair.referenced.schema}.{pair.referenced.table}",
            reason,
            pair.dependent.columns,
            ours.places,
            pair.referenced.columns,
            theirs.places,
            self._coverage(ours.attribute, theirs.attribute, reason),
        )

    def _side(self, side: Side) -> _Placed | None:
        """Find columns; None where one of them is not kept current any more."""
        columns = self._of_table(side.schema, side.table)
        if not columns.keys() >= set(side.columns):
            return None
        places, attributes = zip(*(columns[name] for name in side.columns), strict=True)
        if len(attributes) == 1:
            return _Placed(places, attributes[0])
        of_tuples = self._tuples.get(tuple(one.attribute_id for one in attributes))
        return _Placed(places, None if of_tuples is None else self._state.attribute(of_tuples))

    def _of_table(self, schema: str, table: str) -> Mapping[str, tuple[int, AttributeInfo]]:
        """Give the columns of a table that are kept current, by name, and their places among these."""
        known = self._columns.get((schema, table))
        if known is None:
            of_table = AttributeFilter(schema, table)
            listed = queries.walk(lambda after: queries.attributes(self._state, of_table, after))
            present = [one for one in listed if one.stale_since is None]
            known = {one.name.column: (place, one) for place, one in enumerate(present)}
            self._columns[schema, table] = known
        return known

    def _coverage(self, ours: AttributeInfo | None, theirs: AttributeInfo | None, reason: LeadReason) -> float | None:
        if ours is None or theirs is None or not theirs.distinct_count:
            return None
        if reason is LeadReason.IND and ours.distinct_count is not None:
            return ours.distinct_count / theirs.distinct_count  # all of ours are among theirs
        return self._state.overlap(ours.attribute_id, theirs.attribute_id) / theirs.distinct_count


def _best(path: str, leads: Iterable[LeadsTo], most: int) -> tuple[LeadsTo, ...]:
    """Choose of each other table the best lead, and of these the best, best first."""
    best: dict[str, LeadsTo] = {}
    for lead in leads:
        if lead.table != path and (lead.table not in best or _rank(lead) < _rank(best[lead.table])):
            best[lead.table] = lead
    return tuple(sorted(best.values(), key=lambda lead: (_rank(lead), lead.table))[:most])


def _rank(lead: LeadsTo) -> tuple[int, float]:
    return list(LeadReason).index(lead.reason), -(lead.coverage or 0.0)
