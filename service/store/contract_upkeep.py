"""Own how contracts follow the state, in the transaction of each version: what a batch says of them, or SQL.

Contracts name columns. Which attributes those are now is found when it is asked, so that nothing has to follow where
attributes come, go, or take other names but the names themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any

from psycopg2.extras import execute_values

from service.core.contracts import BoundContract, ContractKind
from service.store.batch_rows import json_of_cause, shown_witness
from service.store.database import connect
from service.store.shard_reading import RECORD_CLUSTERS
from service.store.shard_servers import ShardServer, reaching, read_servers
from service.store.shown_values import shown_value
from service.store.side_columns import NAMED, same
from service.usecases.live_state import BatchCommit

# Whoever adds a contract takes share row exclusive: no batch is committed between his look at the state and his commit.
LOCK = "lock table contract in row exclusive mode"
LISTED = f"{LOCK}; select contract_id from contract"

LOCK_OUT_BATCHES = "lock table contract in share row exclusive mode"

IS_CURRENT = "dropped_version is null and stale_version is null and not sketch_only"
"""Whether an attribute is kept current, with its values; to be asked of `attribute join source using (source_id)`."""


def attribute_of(side: str) -> str:
    """Give the query for the attribute that is a side of the contract `c` and kept current, with its counters."""
    return f"""
    select a.attribute_id, a.distinct_count from attribute a join source using (source_id)
    where {IS_CURRENT}
      and (schema_name, table_name) = (c.{side}_schema, c.{side}_table)
      and case when parts is null then array[column_name] else (
          select array_agg(p.column_name order by place) from unnest(a.parts) with ordinality as o (ordinal, place)
          join attribute p on p.schema_name = a.schema_name and p.table_name = a.table_name
            and p.ordinal = o.ordinal and p.parts is null and p.dropped_version is null
      ) end = c.{side}_columns
    """


BINDING = f"""
left join lateral ({attribute_of("dependent")}) d on true
left join lateral ({attribute_of("referenced")}) r on true
"""

BOUND = f"""
select c.contract_id, d.attribute_id, r.attribute_id, c.least_coefficient, c.violated_since is not null
from contract c {BINDING} order by c.contract_id
"""

TURNED = f"""
select contract_id, violated_since is null, dependent_id, referenced_id, distinct_count - overlap
from (
    select c.*, d.attribute_id as dependent_id, r.attribute_id as referenced_id, d.distinct_count, (
        select coalesce(sum(value_count), 0)::bigint from cluster
        where attribute_ids @> array[d.attribute_id, r.attribute_id]
    ) as overlap
    from contract c {BINDING}
    where c.contract_id <> all (%s) and d.attribute_id is not null and r.attribute_id is not null
) measured
where (overlap < least_coefficient * distinct_count) <> (violated_since is not null)
"""

MISSING = f"""
select value_key::text, {shown_value()}
from gen_rec left join (select shown_characters from attribute where attribute_id = %s) a on true
where cluster_id = (
    select cluster_id from {RECORD_CLUSTERS} c where attribute_ids @> %s and not attribute_ids @> %s
    order by cluster_id limit 1
) order by value_key limit 1
"""

GIVES_WAY = {
    "contract": f"delete from contract c using contract renamed where {same('c', 'renamed')} "
    "and renamed.contract_id = any (%(renamed)s) and c.contract_id <> all (%(renamed)s)",
    # Both are kept, but it is what was decided of the renamed one that counts, so it is said again behind the other.
    "foreign_key_decision": f"insert into foreign_key_decision ({NAMED}, verdict, decided_by, decided_at, note) "
    f"select {NAMED}, verdict, decided_by, decided_at, note from foreign_key_decision where decision_id in ("
    "select max(decision_id) filter (where decision_id = any (%(renamed)s)) from foreign_key_decision "
    f"group by {NAMED} having max(decision_id) > max(decision_id) filter (where decision_id = any (%(renamed)s)))",
}
"""What is done by table where rows with the ids `renamed` have come to have the sides of others."""

RAISE = "update contract set violated_since = %s where contract_id = any (%s)"


def read_bound(cursor: Any) -> list[BoundContract]:
    """Read all contracts with the attributes that they speak of."""
    cursor.execute(BOUND)
    return [
        BoundContract(contract_id, dependent_id, referenced_id, Fraction(least), is_violated)
        for contract_id, dependent_id, referenced_id, least, is_violated in cursor
    ]


def write_turned(cursor: Any, commit: BatchCommit) -> bool:
    """Write what a batch made of contracts; of those that it did not know, what SQL says. Tell whether it knew all."""
    cursor.execute(LISTED)
    listed = {contract_id for (contract_id,) in cursor}
    delta = commit.delta
    _put(
        cursor,
        commit.version,
        [
            (
                one.contract_id,
                one.kind,
                one.witness.hex(),
                shown_witness(delta, one.dependent_id, one.witness),
                one.cause_count,
                *json_of_cause(commit.contract_causes.get(one.contract_id)),
            )
            for one in delta.contracts
            if one.contract_id in listed
        ],
    )
    if listed <= delta.known_contracts:
        return listed == delta.known_contracts
    hold(cursor, commit.version, delta.known_contracts)
    return False


def hold(cursor: Any, version: int, without: Collection[int] = ()) -> None:
    """Hold contracts against the state at a version, all but some, and write what became of them; commits nothing."""
    cursor.execute(TURNED, (list(without),))
    turned: list[tuple[Any, ...]] = []
    for contract_id, is_violated, dependent_id, referenced_id, missing in cursor.fetchall():
        if not is_violated:
            turned.append((contract_id, ContractKind.MENDED, None, None, 0, None, None))
            continue
        witness = _missing(cursor, dependent_id, referenced_id)
        turned.append((contract_id, ContractKind.VIOLATED, *witness, missing, None, None))
    _put(cursor, version, turned)


def _missing(cursor: Any, dependent_id: int, referenced_id: int) -> tuple[str | None, str | None]:
    """Find key and text of a value that one attribute has and the other lacks, wherever shards are.

    None where a batch that is being committed brings all of them to servers that do not have it yet.
    """
    asked = (dependent_id, [dependent_id], [referenced_id])
    cursor.execute(MISSING, asked)
    found = [cursor.fetchone()] + [_missing_on(server, asked) for server in read_servers(cursor)]
    return next((one for one in found if one is not None), (None, None))


def _missing_on(server: ShardServer, asked: tuple[int, list[int], list[int]]) -> tuple[str, str | None] | None:
    with reaching(server), connect(server.address, "subsetd contracts") as other, other.cursor() as cursor:
        cursor.execute(MISSING, asked)
        found: tuple[str, str | None] | None = cursor.fetchone()
    return found


def follow_column(cursor: Any, table: tuple[str, str], old: str, new: str) -> None:
    """Let contracts, decisions and candidates call a column by its new name."""
    change = "columns = array_replace({side}_columns, %(old)s, %(new)s)"
    _rename(cursor, change, "%(old)s = any ({side}_columns)", table, {"old": old, "new": new})


def follow_table(cursor: Any, old: tuple[str, str], new: tuple[str, str]) -> None:
    """Let contracts, decisions and candidates call a table by its new name."""
    change = "schema = %(schema)s, {side}_table = %(table)s"
    _rename(cursor, change, "true", old, {"schema": new[0], "table": new[1]})


def _rename(cursor: Any, change: str, condition: str, table: tuple[str, str], values: Mapping[str, str]) -> None:
    """Rename what is followed; what speaks of something gone that had the new name gives way to it."""
    parameters: dict[str, Any] = {**values, "old_schema": table[0], "old_table": table[1]}
    for name, key in (
        ("contract", "contract_id"),
        ("foreign_key_decision", "decision_id"),
        ("foreign_key_candidate", "refresh_id"),
    ):
        renamed: list[int] = []
        for side in ("dependent", "referenced"):
            cursor.execute(
                f"update {name} set {side}_{change.format(side=side)} where {side}_schema = %(old_schema)s "
                f"and {side}_table = %(old_table)s and {condition.format(side=side)} returning {key}",
                parameters,
            )
            renamed += [one for (one,) in cursor]
        if name in GIVES_WAY:
            cursor.execute(GIVES_WAY[name], {"renamed": renamed})


def _put(cursor: Any, version: int, turned: list[tuple[Any, ...]]) -> None:
    """Write transitions: contract, kind, key and text of a witness, number of values, position and row as JSON."""
    if not turned:
        return
    execute_values(
        cursor,
        "insert into contract_transition (version, contract_id, kind, witness_key, witness_value, cause_count, "
        "position, changed_row) values %s",
        [(version, *one) for one in turned],
        template="(%s, %s, %s, %s::uuid, %s, %s, %s::jsonb, %s::jsonb)",
    )
    cursor.execute(RAISE, (version, [one[0] for one in turned if one[1] is ContractKind.VIOLATED]))
    cursor.execute(RAISE, (None, [one[0] for one in turned if one[1] is ContractKind.MENDED]))
