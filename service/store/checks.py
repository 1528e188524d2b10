"""Own the checks of the stored state (I1, I2, I3, I6 in SQL, I5 and J by building anew), all in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, text

from service.core.canonical import POSTGRES_KEY_EXPRESSION
from service.core.errors import NoStateError
from service.store.canonical_sql import key_expression
from service.store.join_tracked_checks import check_indexes
from service.store.shard_reading import RECORD_CLUSTERS, Elsewhere, lock_records
from service.store.shown_values import RESTRICTED
from service.store.sketch_reading import build_sketches, read_sketches
from service.store.sketches import read_form
from service.store.versions import NEWEST
from service.usecases.verify import EXAMPLES, Count

# frequencies is NULL where no attribute of the record is counted, and 0 beside each one that is not.
RECORDS = (
    """
select count(*), count(*) filter (where wrong), (array_agg(value) filter (where wrong))[1:{examples}]
from (
    select coalesce(nullif(stored.value, ''), 'key ' || stored.value_key) as value,
        cluster.attribute_ids is distinct from stored.attribute_ids
        or cardinality(stored.attribute_ids) = 0
        or (stored.frequencies is null and not stored.attribute_ids <@ cast(:uncounted as integer[]))
        or cardinality(stored.frequencies) <> cardinality(stored.attribute_ids)
        or (
            case when stored.attribute_ids && cast(:uncounted as integer[]) then exists (
                select from unnest(stored.attribute_ids, stored.frequencies) as member (attribute_id, frequency)
                where (member.frequency > 0) = (member.attribute_id = any (cast(:uncounted as integer[])))
                    or member.frequency < 0
            ) else 0 >= any (stored.frequencies) end
        ) as wrong
    from gen_rec as stored left join """
    + RECORD_CLUSTERS
    + """ as cluster using (cluster_id)
) as looked_at
"""
)

# Of a record none of whose attributes keeps its values whole the text is cut, and no longer than the most open keeps.
KEYS = """
select count(*), count(*) filter (where wrong), (array_agg(value) filter (where wrong))[1:{examples}]
from (
    select case when is_whole then value else 'key ' || value_key end as value,
        case when is_whole then {key} <> value_key else char_length(value) > (
            select max(shown_characters) from attribute where attribute_id = any (attribute_ids)
        ) end as wrong
    from gen_rec, lateral (select not attribute_ids <@ cast(:restricted as integer[]) as is_whole) w
    where octet_length(value) < 250
) as looked_at
"""

CLUSTER_COUNTS = f"""
select coalesce(cluster.cluster_id, counted.cluster_id), coalesce(value_count, 0), coalesce(records, 0)
from {RECORD_CLUSTERS} as cluster
full join (select cluster_id, count(*) as records from gen_rec group by cluster_id) as counted using (cluster_id)
"""

# Of a state in shards: each cluster of the whole counts what those of the shards with its attributes do together.
WHOLE = "select cluster_id, attribute_ids, value_count from cluster"
OF_SHARDS = "select attribute_ids, sum(value_count)::bigint from shard_cluster group by attribute_ids"

OF_RECORDS = """
select attribute_id, count(*) as members, coalesce(sum(frequency), 0)::bigint as occurrences,
    count(*) filter (where frequency > 1) as repeated
from gen_rec, unnest(attribute_ids, frequencies) as member (attribute_id, frequency) group by attribute_id
"""

COUNTERS = """
select attribute_id, schema_name || '.' || table_name || '.' || column_name, insert_only,
    row_count, null_count, distinct_count, repeated_count, coalesce(clustered, 0)
from (select * from attribute where dropped_version is null) as attribute
join (select * from source where not sketch_only) as source using (source_id)
left join (
    select attribute_id, sum(value_count) as clustered
    from cluster, unnest(attribute_ids) as member (attribute_id) group by attribute_id
) as of_clusters using (attribute_id)
"""

# Only what is under its own row's key: between the two halves of a key change, a row waits under another one.
ROW_IMAGES = """
with followed as (
    select table_id, array_agg(ordinal order by place) as key_places
    from tracked_table cross join unnest(key_columns) with ordinality as key (column_name, place)
    join attribute using (source_id, schema_name, table_name, column_name)
    where row_images and dropped_version is null and parts is null group by table_id
), kept as (
    select table_id, place - 1 as ordinal, count(*) as rows, count(cell) as cells
    from followed join row_image using (table_id), unnest(cells) with ordinality as in_order (cell, place)
    where row_key = {key} group by table_id, place
)
select schema_name || '.' || table_name || '.' || column_name, row_count, row_count - null_count,
    coalesce((select max(rows) from kept where kept.table_id = tracked_table.table_id), 0), coalesce(cells, 0)
from tracked_table join followed using (table_id) join attribute using (source_id, schema_name, table_name)
left join kept using (table_id, ordinal)
where dropped_version is null and stale_version is null and parts is null order by schema_name, table_name, ordinal
"""
ROW_KEY = """('[' || (
    select string_agg(coalesce(to_json(cells[key_place + 1])::text, 'null'), ',' order by at)
    from unnest(key_places) with ordinality as key (key_place, at)
) || ']')"""

COUNTERS_NAMES = "select attribute_id, schema_name || '.' || table_name || '.' || column_name from attribute"
UNCOUNTED = "select attribute_id from attribute join source using (source_id) where insert_only"
SKETCHED = """
select attribute_id, sketch_only, row_count - null_count as occurrences,
    concat_ws('.', schema_name, table_name, column_name) as name
from attribute join source using (source_id) where dropped_version is null
"""
NEWEST_CHANGE = "select coalesce(max(version), 0) from state_version where kind <> 'bootstrap'"
VERSIONS = "select version, lag(version) over (order by version) from state_version"

# A bootstrap may give positions anew: only batches behind the newest bootstrap are held against each other.
CHAINS = """
with since as (select coalesce(max(version), 0) as version from state_version where kind = 'bootstrap')
select feed, topic, partition, batch_position.version, first_offset,
    lag(batch_position.next_offset) over chain, batch_position.next_offset,
    case when lead(batch_position.version) over chain is null then feed_position.next_offset end
from since, batch_position left join feed_position using (feed, topic, partition)
where batch_position.version > since.version
window chain as (partition by feed, topic, partition order by batch_position.version)
"""


class PostgresVerifier:
    """Implement usecases.verify.Verifier."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def checks(self) -> Iterator[PostgresChecks]:
        engine = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with engine.connect() as connection, lock_records(connection) as elsewhere:
            version = connection.scalar(text(f"select {NEWEST}"))
            if version is None:
                raise NoStateError
            yield PostgresChecks(connection, elsewhere, version)


class PostgresChecks:
    """Implement usecases.verify.StateChecks over one transaction, and one of each server that has shards."""

    def __init__(self, connection: Connection, elsewhere: Elsewhere, version: int) -> None:
        self._connection = connection
        self._places = [connection, *elsewhere.connections]
        self.version = version
        self._names = {i: name for i, name, *_ in self._rows(COUNTERS_NAMES)}

    @property
    def newest_change(self) -> int:
        return int(self._rows(NEWEST_CHANGE)[0][0])

    def _rows(self, query: str, **parameters: Any) -> list[Any]:
        return list(self._connection.execute(text(query), parameters))

    def _everywhere(self, query: str, **parameters: Any) -> list[Any]:
        return [row for place in self._places for row in place.execute(text(query), parameters)]

    def name(self, attribute_id: int) -> str:
        return str(self._names.get(attribute_id, f"attribute {attribute_id}"))

    def records_fit_clusters(self) -> Count:
        uncounted = [i for (i,) in self._rows(UNCOUNTED)]
        return self._values(RECORDS.format(examples=EXAMPLES), uncounted=uncounted)

    def keys_fit_values(self) -> Count:
        # Clusters of tuples are apart from the others: one attribute of a record tells what it is of.
        of_tuples = "attribute_ids[1] = any (cast(:tuples as integer[]))"
        tuples = [i for (i,) in self._rows("select attribute_id from attribute where parts is not null")]
        restricted = [i for (i,) in self._rows(RESTRICTED)]
        query = KEYS.format(examples=EXAMPLES, key=key_expression("value", of_tuples))
        return self._values(query, tuples=tuples, restricted=restricted)

    def _values(self, query: str, **parameters: Any) -> Count:
        found = self._everywhere(query, **parameters)
        examples = [value for *_, values in found for value in values or ()][:EXAMPLES]
        told = tuple(f"the record of {value!r}" for value in examples)
        return Count(sum(checked for checked, *_ in found), sum(wrong for _, wrong, _ in found), told)

    def counts_fit_records(self) -> Count:
        found = [tuple(row) for row in self._everywhere(CLUSTER_COUNTS)]
        if self._rows("select from shard limit 1"):
            whole = {tuple(ids): (cluster_id, count) for cluster_id, ids, count in self._rows(WHOLE)}
            together: Counter[tuple[int, ...]] = Counter()
            for ids, count in self._everywhere(OF_SHARDS):
                together[tuple(ids)] += count
            found += [(*whole.get(ids, (0, 0)), together[ids]) for ids in whole.keys() | together.keys()]
        wrong = [row for row in found if row[1] != row[2] or not row[2]]
        return Count(
            len(found),
            len(wrong),
            tuple(f"cluster {c} counts {said} values and has {n} records" for c, said, n in wrong[:EXAMPLES]),
        )

    def counters_fit_records(self) -> Count:
        found = self._rows(COUNTERS)
        of_records: dict[int, tuple[int, ...]] = {}
        for attribute_id, *counted in self._everywhere(OF_RECORDS):
            before = of_records.get(attribute_id, (0, 0, 0))
            of_records[attribute_id] = tuple(a + b for a, b in zip(before, counted, strict=True))
        wrong = []
        for attribute_id, name, insert_only, rows, nulls, distinct, repeated, clustered in found:
            members, occurrences, more = of_records.get(attribute_id, (0, 0, 0))
            counted = insert_only or (rows - nulls == occurrences and repeated == more)
            if not (distinct == members == clustered and counted and 0 <= nulls <= rows):
                wrong.append(
                    f"{name}: {rows} rows, {nulls} nulls, {distinct} distinct, {repeated} repeated; the records say "
                    f"{members} distinct, {more} repeated, {occurrences} occurrences, the clusters {clustered} distinct"
                )
        return Count(len(found), len(wrong), tuple(wrong[:EXAMPLES]))

    def kept_rows_fit_counters(self) -> Count:
        found = self._rows(ROW_IMAGES.format(key=POSTGRES_KEY_EXPRESSION(ROW_KEY)))
        wrong = [
            f"{name}: {rows} rows with {values} values are counted, {kept} with {cells} are kept"
            for name, rows, values, kept, cells in found
            if (rows, values) != (kept, cells)
        ]
        return Count(len(found), len(wrong), tuple(wrong[:EXAMPLES]))

    def clusters(self) -> Iterator[tuple[Sequence[int], int]]:
        yield from self._rows("select attribute_ids, value_count from cluster")

    def inds(self) -> set[tuple[int, int]]:
        return {
            (a, b) for a, b in self._rows("select dependent_id, referenced_id from uind where until_version is null")
        }

    def sketches_fit_records(self) -> Count:
        raw: Any = self._connection.connection
        with raw.cursor() as cursor:
            form = read_form(cursor)
        if form is None:
            return Count(0, 0, ())
        kept = read_sketches(self._connection)
        wanted = {row.attribute_id: row for row in self._rows(SKETCHED)}
        elsewhere = [place.connection for place in self._places[1:]]
        rebuilt = build_sketches(raw, form, [i for i, row in wanted.items() if not row.sketch_only], elsewhere)
        wrong = list(kept.faults.values())
        for attribute_id in sorted(wanted.keys() - kept.faults.keys()):
            row, sketch = wanted[attribute_id], kept.by_id.get(attribute_id)
            if sketch is None:
                wrong.append(f"{row.name}: it has no sketch")
            elif row.sketch_only and sketch.size != row.occurrences:
                wrong.append(f"{row.name}: {row.occurrences} values are counted, its sketch has {sketch.size}")
            elif not row.sketch_only and not sketch.agrees_with(rebuilt[attribute_id]):
                wrong.append(f"{row.name}: its sketch, of {sketch.size} values, is not that of its records")
        return Count(len(wanted), len(wrong), tuple(wrong[:EXAMPLES]))

    def positions_fit_batches(self) -> Count:
        """Check the chain of batches of each partition since its position was last given by hand or by a bootstrap."""
        wrong = [
            f"version {previous} is followed by {version}"
            for version, previous in self._rows(VERSIONS)
            if previous is not None and version != previous + 1  # the first ones may be dropped by now
        ]
        chains = self._rows(CHAINS)
        for feed, topic, partition, version, first, previous, after, stored in chains:
            place = f"{feed}, {topic}, partition {partition}, version {version}"
            if previous is not None and first != previous:
                wrong.append(f"{place}: the batch begins at {first}, the one before it ended at {previous}")
            if stored is not None and stored != after:
                wrong.append(f"{place}: the last batch ended at {after}, the stored position is {stored}")
        return Count(len(chains), len(wrong), tuple(wrong[:EXAMPLES]))

    def join_indexes_fit_rows(self) -> Count:
        return check_indexes(self._connection.connection)
