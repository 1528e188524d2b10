"""Own decisions about foreign keys and contracts in Postgres: who adds and ends them, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from typing import Any

import psycopg2
from sqlalchemy import Connection, Engine, text

from service.core.contracts import ContractKind
from service.core.errors import ConflictError, NoStateError, NotFoundError
from service.core.foreign_keys.sides import ForeignKey, Side
from service.store.contract_upkeep import BINDING, LOCK_OUT_BATCHES, hold
from service.store.database import state_error
from service.store.shard_reading import keep_shards
from service.store.side_columns import NAMED, SIDES, foreign_key_of, same, side_parts, side_values
from service.store.versions import read_served
from service.usecases.answers import Key
from service.usecases.foreign_key_decisions import (
    EXACT,
    Contract,
    ContractEvent,
    ContractState,
    Decision,
    Undecided,
    Verdict,
)

GIVEN = " and ".join(f"{one} = %({one})s" for one in SIDES)

FOLLOWED = """
select column_name from attribute where (schema_name, table_name) = (%s, %s) and column_name = any (%s)
  and parts is null and dropped_version is null and stale_version is null
"""

NOT_FOLLOWED = """
exists (select from unnest({side}_columns) as given (name) where not exists (
    select from attribute where (schema_name, table_name, column_name) = ({side}_schema, {side}_table, given.name)
      and parts is null and dropped_version is null and stale_version is null))
"""

DECISIONS = f"""
select decision_id, {NAMED}, verdict, decided_by, decided_at, note,
       not exists (select from foreign_key_decision later where later.decision_id > decision.decision_id
                   and {same("later", "decision")}) as is_current,
       {NOT_FOLLOWED.format(side="dependent")} or {NOT_FOLLOWED.format(side="referenced")} as is_stale
from foreign_key_decision decision where decision_id < :before order by decision_id desc limit :limit
"""

CONTRACTS = f"""
select c.contract_id, decision_id, {NAMED}, least_coefficient, created_by, created_at, violated_since,
       d.attribute_id is null as lacks_dependent, r.attribute_id is null as lacks_referenced, d.distinct_count, (
           select coalesce(sum(value_count), 0)::bigint from cluster
           where attribute_ids @> array[d.attribute_id, r.attribute_id]
       ) as overlap
from contract c {BINDING}
where c.contract_id > :after and (cast(:one as numeric) is null or c.contract_id = :one) and {{condition}}
order by c.contract_id limit :limit
"""

EVENTS = f"""
select t.version, v.committed_at, t.contract_id, {NAMED}, t.kind, t.witness_value, t.witness_key::text as witness_key,
       t.cause_count, t.position, t.changed_row
from contract_transition t join contract using (contract_id) left join state_version v on v.version = t.version
where (t.version, t.contract_id) > (:version, :contract_id)
  and (t.version > :since or t.position is null) and t.contract_id > :newer_than
  and (cast(:one as integer) is null or t.contract_id = :one)
order by t.version, t.contract_id limit :limit
"""

# Ids are never given twice, so that fewer contracts below the same newest one are others.
TAG = """
select coalesce(max(contract_id), 0) || '.' || count(*) || '.'
       || (select coalesce(max(decision_id), 0) from foreign_key_decision)
from contract
"""

COUNTS = f"""
select case when d.attribute_id is null or r.attribute_id is null then 'unknown'
            when violated_since is null then 'held' else 'violated' end, count(*)
from contract c {BINDING} group by 1
"""

DECIDE = f"""
insert into foreign_key_decision ({NAMED}, verdict, decided_by, note)
values ({", ".join(f"%({one})s" for one in SIDES)}, %(verdict)s, %(by)s, %(note)s) returning decision_id
"""

NEWEST = f"select verdict, decided_by from foreign_key_decision where {GIVEN} order by decision_id desc limit 1"

ADD = f"""
insert into contract ({NAMED}, least_coefficient, created_by, decision_id)
values ({", ".join(f"%({one})s" for one in SIDES)}, %(least)s, %(by)s, %(decision_id)s) returning contract_id
"""

END_ACCEPTED = f"delete from contract where decision_id is not null and {GIVEN}"


class PostgresContracts:
    """Implement foreign_key_decisions.Contracts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def decide(
        self,
        foreign_key: ForeignKey,
        verdict: Verdict,
        by: str,
        note: str | None = None,
        seen: Verdict | Undecided | None = None,
    ) -> Decision:
        with self._writing() as (connection, cursor):
            version = _lock(cursor, foreign_key)
            values = {**side_values(foreign_key), "by": by, "verdict": verdict.value, "note": note}
            if seen is not None:
                _require_seen(cursor, values, foreign_key, seen)
            cursor.execute(DECIDE, values)
            (decision_id,) = cursor.fetchone()
            if verdict is Verdict.REJECT:
                cursor.execute(END_ACCEPTED, values)
            if verdict is Verdict.ACCEPT and _contract_of(cursor, values) is None:
                cursor.execute(ADD, {**values, "least": EXACT, "decision_id": decision_id})
                hold(cursor, version)
            return read_decisions(connection, decision_id + 1, 1)[0]

    def add(self, foreign_key: ForeignKey, least: Decimal, by: str) -> Contract:
        with self._writing() as (connection, cursor):
            version = _lock(cursor, foreign_key)
            values = {**side_values(foreign_key), "by": by, "least": least, "decision_id": None}
            there = _contract_of(cursor, values)
            if there is not None:
                raise ConflictError(f"Contract {there} is on {foreign_key} already; remove it first for another bound.")
            cursor.execute(ADD, values)
            (contract_id,) = cursor.fetchone()
            hold(cursor, version)
            return read_contract(connection, contract_id)

    def remove(self, contract_id: int) -> None:
        with self._writing() as (_, cursor):
            cursor.execute(LOCK_OUT_BATCHES)
            cursor.execute("delete from contract where contract_id = %s", (contract_id,))
            if not cursor.rowcount:
                raise _unknown(contract_id)

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Any]]:
        """Open one transaction, with a raw cursor in it."""
        with self._engine.begin() as connection, closing(connection.connection.cursor()) as cursor:
            try:
                yield connection, cursor
            except psycopg2.Error as error:
                raise state_error(error, self._engine.url) or error from error


def read_decisions(connection: Connection, before: int | None, limit: int) -> list[Decision]:
    """List decisions, newest first, those with an id below `before`."""
    values = {"before": 2**31 - 1 if before is None else before, "limit": limit}
    return [
        Decision(
            one.decision_id,
            foreign_key_of(one),
            Verdict(one.verdict),
            one.decided_by,
            one.decided_at,
            one.note,
            one.is_current,
            one.is_stale,
        )
        for one in connection.execute(text(DECISIONS), values)
    ]


def read_contracts(
    connection: Connection,
    after: int,
    limit: int,
    one: int | None = None,
    *,
    dependent: Side | None = None,
    referenced: Side | None = None,
) -> list[Contract]:
    """List contracts by (contract_id): all, one, or those of these sides."""
    given = {name: side for name, side in (("dependent", dependent), ("referenced", referenced)) if side is not None}
    values = {f"{name}_{part}": value for name, side in given.items() for part, value in side_parts(side).items()}
    condition = " and ".join(f"c.{part} = :{part}" for part in values) or "true"
    values |= {"after": after, "limit": limit, "one": one}
    found = []
    for row in connection.execute(text(CONTRACTS.format(condition=condition)), values):
        foreign_key = foreign_key_of(row)
        lacking = zip(foreign_key, (row.lacks_dependent, row.lacks_referenced), strict=True)
        unknown = tuple(str(side) for side, is_lacking in lacking if is_lacking)
        found.append(
            Contract(
                row.contract_id,
                row.decision_id,
                foreign_key,
                row.least_coefficient,
                row.created_by,
                row.created_at,
                row.violated_since,
                None if unknown else row.overlap,
                None if unknown else row.distinct_count,
                unknown,
            )
        )
    return found


def read_contract(connection: Connection, contract_id: int) -> Contract:
    """Find a contract; raise NotFoundError when there is none."""
    found = read_contracts(connection, 0, 1, contract_id)
    if not found:
        raise _unknown(contract_id)
    return found[0]


def read_events(
    connection: Connection, contract_id: int | None, after: Key, limit: int, newer_than: int = 0, since: int = 0
) -> list[ContractEvent]:
    """List transitions of one contract, or of all with an id above one, by (version, contract_id), behind `after`.

    A contract that is violated when it is added says so of the version that stood then. Who has seen that version has
    not seen this, so of `since` itself what no change brought is given as well.
    """
    known = {"one": contract_id, "newer_than": newer_than, "since": since}
    values = {**known, "version": after[0], "contract_id": after[1], "limit": limit}
    return [
        ContractEvent(
            one.version,
            one.committed_at,
            one.contract_id,
            foreign_key_of(one),
            ContractKind(one.kind),
            one.witness_value,
            one.witness_key,
            one.cause_count,
            one.position,
            one.changed_row,
        )
        for one in connection.execute(text(EVENTS), values)
    ]


def read_newest(connection: Connection) -> int:
    """Give the id of the contract that was added last; 0 when there is none."""
    return int(connection.scalar(text("select coalesce(max(contract_id), 0) from contract")))


def count_contracts(connection: Connection) -> dict[ContractState, int]:
    """Count contracts by how they stand."""
    found = {ContractState(state): count for state, count in connection.execute(text(COUNTS))}
    return {state: found.get(state, 0) for state in ContractState}


def read_tag(connection: Connection) -> str:
    """Name what there is of contracts and decisions, which are no part of a version."""
    return str(connection.scalar(text(TAG)))


def _lock(cursor: Any, foreign_key: ForeignKey) -> int:
    """Let no version come until the end of the transaction, and give the newest; the columns must be followed."""
    keep_shards(cursor)
    cursor.execute(LOCK_OUT_BATCHES)
    version, _ = read_served(cursor)
    if not version:
        raise NoStateError
    for side in foreign_key:
        cursor.execute(FOLLOWED, (side.schema, side.table, list(side.columns)))
        followed = {column for (column,) in cursor}
        for name in side.names:
            if name.column not in followed:
                raise NotFoundError(
                    f"No attribute {name} is followed in state version {version}; write names as `subsetd attributes` "
                    f"lists them."
                )
    return version


def _require_seen(cursor: Any, values: dict[str, Any], foreign_key: ForeignKey, seen: Verdict | Undecided) -> None:
    """Raise ConflictError where the newest decision is another than whoever decides has seen."""
    cursor.execute(NEWEST, values)
    verdict, by = cursor.fetchone() or (Undecided.UNDECIDED.value, None)
    if verdict != seen.value:
        decided = f"{by} has decided `{verdict}`" if by is not None else "no decision is there"
        raise ConflictError(f"Of {foreign_key} {decided} meanwhile. It was left so: look again, and decide.")


def _contract_of(cursor: Any, values: dict[str, Any]) -> int | None:
    cursor.execute(f"select contract_id from contract where {GIVEN}", values)
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def _unknown(contract_id: int) -> NotFoundError:
    return NotFoundError(f"There is no contract {contract_id}; `subsetd contract list` lists those there are.")
