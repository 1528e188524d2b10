"""Own what is kept of coefficients over time, in Postgres: looks at the pairs that count, and what they found.

A look is one statement, so it sees one version. What it finds as it was goes on to that version; anything else begins
a new span. While an IND holds nothing is kept: `uind` says that its coefficient is 1.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from service.store.contract_upkeep import BINDING, IS_CURRENT
from service.store.locks import SAMPLE_LOCK
from service.store.side_columns import NAMED, same
from service.store.versions import NEWEST
from service.usecases.coefficient_history import LOST_SECONDS, NEAR, CoefficientSpan

NEWEST_BROKEN = 1000
"""Of so many transitions the INDs that broke are looked at, whether anybody watches them or not."""

DECIDED = f"""
select verdict from foreign_key_decision newer where {same("newer", "one")} order by decision_id desc limit 1
"""

# Whoever is watched comes first, then what broke, the newest first.
CHOSEN = f"""
with named as (
    select {NAMED} from contract
    union select {NAMED} from foreign_key_decision one where ({DECIDED}) <> 'reject'
    union select {NAMED} from foreign_key_candidate one where suggested and ({DECIDED}) is distinct from 'reject'
), live as (
    select attribute_id, schema_name || '.' || table_name || '.' || column_name as name
    from attribute join source using (source_id)
    where {IS_CURRENT}
), wanted (dependent_id, referenced_id, version) as (
    select d.attribute_id, r.attribute_id, null::bigint from named c {BINDING}
    where d.attribute_id is not null and r.attribute_id is not null
    union all
    select d.attribute_id, r.attribute_id, null from watch
    join live d on d.name = rule ->> 'dependent' join live r on r.name = rule ->> 'referenced'
    union all
    select dependent_id, referenced_id, version from (
        select * from ind_transition order by version desc limit :newest_broken
    ) newest
    where kind = 'broke' and dependent_id in (select attribute_id from live)
    and referenced_id in (select attribute_id from live)
), chosen as (
    select dependent_id, referenced_id, bool_or(version is null) as is_watched from wanted
    group by dependent_id, referenced_id
    order by is_watched desc, max(version) desc nulls last, dependent_id, referenced_id limit :most
)
"""

LOOK = f"""
{CHOSEN}, head as (select {NEWEST} as version), measured as (
    select dependent_id, referenced_id, is_watched, distinct_count, (
        select coalesce(sum(value_count), 0)::bigint from cluster
        where attribute_ids @> array[dependent_id, referenced_id]
    ) as overlap
    from chosen join attribute on attribute_id = dependent_id
    where dependent_id <> referenced_id and not exists (
        select from uind u where u.dependent_id = chosen.dependent_id and u.referenced_id = chosen.referenced_id
        and until_version is null)
), judged as (
    select m.*, head.version, last.since_version, (last.overlap, last.distinct_count) = (m.overlap, m.distinct_count)
        and exists (
            select from state_version v where v.version = last.until_version + 1
            and committed_at > now() - make_interval(secs => :lost_seconds))
        and not exists (
            select from uind u where u.dependent_id = m.dependent_id and u.referenced_id = m.referenced_id
            and u.until_version > last.until_version)
        as goes_on
    from head, measured m left join lateral (
        select * from coefficient_sample s
        where s.dependent_id = m.dependent_id and s.referenced_id = m.referenced_id order by since_version desc limit 1
    ) last on true
    where (is_watched or m.overlap >= :near * m.distinct_count)
    and (last.until_version is null or last.until_version < head.version)
), went_on as (
    update coefficient_sample s set until_version = judged.version from judged
    where goes_on and s.dependent_id = judged.dependent_id and s.referenced_id = judged.referenced_id
    and s.since_version = judged.since_version
    returning 1
), begun as (
    insert into coefficient_sample (
        dependent_id, referenced_id, since_version, until_version, overlap, distinct_count)
    select dependent_id, referenced_id, version, version, overlap, distinct_count from judged
    where goes_on is not true
    returning 1
)
select (select count(*) from went_on) + (select count(*) from begun)
"""

SPANS = """
with span as (
    select since_version, coalesce(until_version - 1, :newest) as until_version, true as holds,
        null::bigint as overlap, null::bigint as distinct_count
    from uind where dependent_id = :dependent_id and referenced_id = :referenced_id
    union all
    select since_version, until_version, false, overlap, distinct_count
    from coefficient_sample where dependent_id = :dependent_id and referenced_id = :referenced_id
)
select span.*, began.committed_at as since_at, ended.committed_at as until_at from span
left join state_version began on began.version = since_version
left join state_version ended on ended.version = until_version + 1
where cast(:before as bigint) is null or since_version < :before order by since_version desc limit :limit
"""

TAG = """
select coalesce(max(until_version), 0) from coefficient_sample
where dependent_id = :dependent_id and referenced_id = :referenced_id
"""


class CoefficientLooks:
    """Look at coefficients now and then; a look that finds the version of the last one does nothing."""

    def __init__(self, engine: Engine, most: int) -> None:
        """Look at `most` pairs at once."""
        self._engine = engine
        self._most = most
        self._seen: int | None = None

    def look(self) -> int:
        """Look at the pairs, and give of how many something was kept; 0 while another process looks.

        Raises StateError.
        """
        with self._engine.begin() as connection:
            if not connection.scalar(text("select pg_try_advisory_xact_lock(:lock)"), {"lock": SAMPLE_LOCK}):
                return 0
            newest = connection.scalar(text(f"select {NEWEST}"))
            if newest is None or newest == self._seen:
                return 0
            asked = {
                "most": self._most, "newest_broken": NEWEST_BROKEN, "near": NEAR, "lost_seconds": LOST_SECONDS,
            }  # fmt: skip
            kept = connection.scalar(text(LOOK), asked)
        self._seen = newest
        return int(kept or 0)


def read_spans(
    connection: Connection, dependent_id: int, referenced_id: int, newest: int, before: int | None, limit: int
) -> list[CoefficientSpan]:
    """List what is known of a pair's coefficient up to version `newest`, by descending (since_version)."""
    pair = {"dependent_id": dependent_id, "referenced_id": referenced_id}
    rows = connection.execute(text(SPANS), {**pair, "newest": newest, "before": before, "limit": limit})
    return [CoefficientSpan(**row._mapping) for row in rows]


def read_tag(connection: Connection, dependent_id: int, referenced_id: int) -> str:
    """Name what looks have found of a pair."""
    pair = {"dependent_id": dependent_id, "referenced_id": referenced_id}
    return str(connection.scalar(text(TAG), pair))
