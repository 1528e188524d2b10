"""Own how history ends: which old versions and transitions nobody can ask for any more, dropped in small pieces.

What is dropped is the beginning of the history, so that what is left has no gap. Stays, however old it is: the newest
batch and whatever is newer than it, what was not sent yet or a watch has not looked at, and of each pair and each
contract the newest transition, which says since when it stands as it does, and by which value.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from service.store.locks import BOOTSTRAP_LOCK, RETENTION_LOCK, is_held

PIECE = 5000
"""Versions that one transaction looks at: some tens of milliseconds, in which no batch waits."""

# Versions come in the order of time: a piece ends in front of the first one that is young enough. A sink's place of
# contracts counts contracts, not versions. Where no version goes nothing does: who keeps answers in memory sees that
# history was dropped by the first version.
FIRST_KEPT = """
with oldest as (
    select version, committed_at from state_version order by version limit :piece
), wanted (version) as (
    select coalesce(
        min(version) filter (where committed_at >= now() - make_interval(secs => :seconds)), max(version) + 1)
    from oldest
    union all select coalesce(max(version), 0) from state_version where kind = 'batch'
    union all select coalesce(max(version), 0) from state_version where kind <> 'schema'
    union all select version + 1 from outgoing where sink not like '% contracts'
    union all select seen_version + 1 from watch
)
select min(oldest.version) as oldest, least as first
from oldest, (select min(version) as least from wanted) kept group by least having least > min(oldest.version)
"""

# What stays of older pieces, however much that is, is looked at when a transition of this one came behind it.
SUCCEEDED = """
delete from {table} t using {table} newer where newer.version >= :oldest and newer.version < :first
and {same} and newer.version > t.version
"""
TO_BE_SUCCEEDED = """
delete from {table} t where version >= :oldest and version < :first and exists (
    select from {table} newer where {same} and newer.version > t.version)
"""
OF_PAIR = {
    "table": "ind_transition",
    "same": "newer.dependent_id = t.dependent_id and newer.referenced_id = t.referenced_id",
}
OF_CONTRACT = {"table": "contract_transition", "same": "newer.contract_id = t.contract_id"}

DROPPED = (
    """
    delete from uind using ind_transition t where t.version >= :oldest and t.version < :first and t.kind = 'broke'
    and uind.dependent_id = t.dependent_id and uind.referenced_id = t.referenced_id and until_version = t.version
    """,
    *(query.format(**of) for of in (OF_PAIR, OF_CONTRACT) for query in (SUCCEEDED, TO_BE_SUCCEEDED)),
    "delete from coefficient_sample where until_version < :first",
    "delete from batch_position where version < :first",
    "delete from state_version where version < :first",
)


def drop_piece(engine: Engine, seconds: float) -> int:
    """Drop some of the versions that are older than this, with their history; give how many went, 0 when none may.

    Whoever comes while another process drops, or while a bootstrap runs, drops nothing. Raises StateError.
    """
    with engine.begin() as connection:
        # Whatever bounds the statements of answers, a piece comes to its end.
        connection.execute(text("set local statement_timeout = 0"))
        if not _is_our_turn(connection):
            return 0
        piece = connection.execute(text(FIRST_KEPT), {"piece": PIECE, "seconds": seconds}).one_or_none()
        if piece is None:
            return 0
        went = 0
        for statement in DROPPED:
            went = connection.execute(text(statement), dict(piece._mapping)).rowcount
        return went


def _is_our_turn(connection: Connection) -> bool:
    is_ours = connection.scalar(text("select pg_try_advisory_xact_lock(:lock)"), {"lock": RETENTION_LOCK})
    # A bootstrap looks up where partitions began that are new to it.
    return bool(is_ours) and not connection.scalar(text(f"select {is_held(BOOTSTRAP_LOCK)}"))
