"""Own how a batch meets the generator records: they are looked up by key, and written by COPY and one merge."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg2.errors

from service.core.errors import DamagedStateError
from service.core.records import Keys, NewRecords, Records, find_keys, gather
from service.store.bulk import copy_records, new_records, read_records

STAGING = """
create temporary table if not exists staged_gen_rec (
    value_key uuid not null, value text, cluster_id bigint, attribute_ids integer[], frequencies bigint[]
) on commit delete rows;
"""

RENEWED_SECONDS = 3600.0
"""After so long staging tables begin anew (TRUNCATE), those of a session that lasts.

No autovacuum comes to temporary tables. Of the transaction that they were made in the server has to know whether it was
committed for as long as they are: a consumer of some months would use up the transactions of all of its databases.
"""

# The staged rows are few beside the table and come in the order of the key: each is one descent of one
# partition's index. Without these the planner, which knows nothing of a temporary table, may hash the whole state.
BY_INDEX = "set enable_hashjoin = off; set enable_mergejoin = off; set enable_seqscan = off"

MERGE = """
merge into gen_rec as stored using staged_gen_rec as staged on stored.value_key = staged.value_key
when matched and staged.cluster_id = 0 then delete
when matched then update set
    cluster_id = staged.cluster_id, attribute_ids = staged.attribute_ids, frequencies = staged.frequencies
"""

MERGE_TEXTS = MERGE.rstrip() + ", value = staged.value"

PARTITIONS = """
select inhrelid::regclass::text, substring(pg_get_expr(relpartbound, oid) from $$FROM \\('(.+?)'\\)$$)
from pg_inherits join pg_class on oid = inhrelid where inhparent = 'gen_rec'::regclass
"""

# A state is larger than the server's memory, so the pages of a batch come from disk: a bitmap scan asks for many at
# once, where an index scan would wait for one after the other. Only a partition's own keys are looked for in it.
BY_BITMAP = (
    "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_seqscan = off; "
    # At most: a system that cannot fetch ahead takes 0 alone.
    "select set_config(name, least(64, max_val::bigint)::text, false) from pg_settings "
    "where name = 'effective_io_concurrency'"
)

RECORD = "value_key, cluster_id, coalesce(frequencies, array_fill(0::bigint, array[cardinality(attribute_ids)]))"
LOOKUP = "select " + RECORD + " from {partition} where value_key = any ('{{{keys}}}'::uuid[])"
RANGE = "select " + RECORD + " from gen_rec where {condition}"


def read_partitions(cursor: Any) -> list[tuple[str, str]]:
    """Give the partitions of the records as (first key in hexadecimal, name), by ascending key."""
    cursor.execute(PARTITIONS)
    return sorted(((lowest or "").replace("-", ""), partition) for partition, lowest in cursor)


def look_up(cursor: Any, partitions: Sequence[tuple[str, str]], keys: Keys) -> Records:
    """Read the records of ascending keys; NO_CLUSTER for a key that has none. The session must be set `BY_BITMAP`."""
    joined = np.stack([keys.high, keys.low], axis=1).astype(">u8").tobytes().hex()
    wanted = [joined[i : i + 32] for i in range(0, len(joined), 32)]
    ends = [bisect_left(wanted, lowest) for lowest, _ in partitions[1:]] + [len(wanted)]
    parts = zip(partitions, [0, *ends], ends, strict=False)
    queries = (
        LOOKUP.format(partition=partition, keys=",".join(wanted[start:end]))
        for (_, partition), start, end in parts
        if start < end
    )
    found, records = read_records(cursor, queries)
    return gather(len(wanted), [(np.flatnonzero(find_keys(found, keys) >= 0), records)])


def write(
    cursor: Any,
    records: NewRecords,
    texts: Sequence[str],
    changed_texts: Sequence[str] = (),
    *,
    has_staged: bool = False,
) -> bool:
    """Write new records by COPY, changed and gone ones by COPY into staging and one merge, all in key order.

    `texts` are those of the new ones, `changed_texts` those of the others, none where they stay. Tells whether it
    staged any: `has_staged` says so of the transaction before.
    Raises DamagedStateError when the records are not as they were last seen.
    """
    changed = int(np.count_nonzero(~records.is_new))
    if changed < len(records.is_new):
        try:
            copy_records(cursor, "gen_rec", new_records(records.take(records.is_new), texts))
        except psycopg2.errors.UniqueViolation as error:
            raise DamagedStateError(
                "The state was changed by another hand: a generator record that was to be new is there already "
                f"({error.diag.message_detail}). Nothing of this batch was stored; run `subsetd verify`."
            ) from error
    if not changed:
        return False
    if has_staged:
        cursor.execute("truncate staged_gen_rec")
    copy_records(cursor, "staged_gen_rec", new_records(records.take(~records.is_new), changed_texts))
    cursor.execute(MERGE_TEXTS if changed_texts else MERGE)
    if cursor.rowcount != changed:
        raise DamagedStateError(
            f"The state was changed by another hand: {changed} generator records were to be changed, "
            f"{cursor.rowcount} were. Nothing of this batch was stored; run `subsetd verify`."
        )
    return True
