"""Own what would go wrong with a Postgres as a source: its settings, tables, slots and publications."""

from __future__ import annotations

from collections.abc import Iterator

from service.core.sql_names import sql_name
from service.usecases.preflight_facts import (
    Facts,
    Finding,
    FollowedTable,
    Level,
    PublicationFacts,
    SourceFacts,
    StateFacts,
)

FREE_SLOTS = 1


def check_source(source: SourceFacts) -> Iterator[Finding]:
    about = source.place
    user = sql_name(source.user)
    restart = "; then restart the server"
    if source.version < 130000:
        yield Finding(Level.FAIL, about, f"is Postgres {source.version // 10000}", "upgrade it to 13 or later")
    if source.is_standby:
        yield Finding(Level.FAIL, about, "is a standby, which exports no snapshot", "give the address of its primary")
    if source.wal_level == "logical":
        yield Finding(Level.OK, about, "wal_level is logical")
    else:
        yield Finding(
            Level.FAIL, about, f"wal_level is {source.wal_level}", f"ALTER SYSTEM SET wal_level = logical{restart}"
        )
    if not source.may_replicate:
        yield Finding(
            Level.FAIL,
            about,
            f"the role {source.user} may not read changes",
            f"ALTER ROLE {user} REPLICATION (on Amazon RDS: GRANT rds_replication TO {user})",
        )
    for what, (used, most) in (
        ("max_wal_senders", source.senders),
        ("max_replication_slots", source.slots_used),
    ):
        if used + FREE_SLOTS > most:
            yield Finding(
                Level.FAIL, about, f"all {most} of {what} are taken", f"ALTER SYSTEM SET {what} = {most + 5}{restart}"
            )
    if source.keeps_any_wal:
        yield Finding(
            Level.WARN,
            about,
            "max_slot_wal_keep_size is -1: a slot that nobody reads fills the disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()",
        )
    if source.waits_for_any_reader:
        yield Finding(
            Level.WARN,
            about,
            "synchronous_standby_names has * or a feed's name: a feed is taken for a standby, and commits wait for it",
            "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (STANDBY)', with your standbys' application_name; "
            "SELECT pg_reload_conf()",
        )


def check_tables(source: SourceFacts, state: StateFacts | None) -> Iterator[Finding]:
    user = sql_name(source.user)
    followed = followed_of(source, state)
    whole = 0
    for table in source.tables:
        about = str(table)
        of_parts = ", and so for each of its partitions, to which it does not pass on" if table.is_partitioned else ""
        identity = "USING INDEX UNIQUE_INDEX" if table.virtual else "FULL"
        full = f"ALTER TABLE {table} REPLICA IDENTITY {identity}{of_parts}"
        known = followed.get((table.schema, table.name))
        if not table.may_read:
            yield Finding(
                Level.FAIL,
                about,
                f"the role {source.user} may not read it",
                f"GRANT USAGE ON SCHEMA {sql_name(table.schema)} TO {user}; GRANT SELECT ON {table} TO {user}",
            )
        if table.hides_rows:
            yield Finding(
                Level.FAIL, about, f"row security hides rows from {source.user}", f"ALTER ROLE {user} BYPASSRLS"
            )
        if table.is_unlogged:
            yield Finding(
                Level.FAIL, about, "is unlogged: its changes are told to nobody", f"ALTER TABLE {table} SET LOGGED"
            )
        if table.identity == "full" and table.virtual:
            yield Finding(
                Level.FAIL,
                about,
                "has replica identity full and virtual generated columns: once published, Postgres refuses its updates "
                "and deletes",
                f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT (without a primary key: USING INDEX UNIQUE_INDEX)"
                f"{of_parts}",
            )
        elif table.identity == "full":
            whole += 1
        elif known is not None and known.identity == "full" and not known.row_images:
            yield Finding(
                Level.FAIL, about, f"had replica identity full when it was read, and has {table.identity} now", full
            )
        elif known is not None and known.row_images and table.has_key:
            yield Finding(Level.OK, about, f"replica identity {table.identity}; the state keeps its rows")
        elif known is not None or not table.has_key or table.identity == "nothing":
            reason = "" if table.has_key else " and no key that is valid and not deferrable"
            yield Finding(
                Level.FAIL,
                about,
                f"has replica identity {table.identity}{reason}: updates and deletes cannot be applied",
                f"{full}; then bootstrap with --replace" if known is not None else full,
            )
        else:
            yield Finding(
                Level.WARN,
                about,
                f"has replica identity {table.identity}: a bootstrap will keep its rows in the state, by its key",
                f"{'--exclude it' if table.virtual else full}, if that is not wanted",
            )
    if whole:
        yield Finding(Level.OK, source.place, f"{whole} of {len(source.tables)} tables send whole rows")
    there = {(t.schema, t.name) for t in source.tables}
    for (schema, name), known in followed.items():
        if (schema, name) not in there:
            yield Finding(
                Level.WARN,
                f"{schema}.{name}",
                f"is followed as a table of {known.source}, and is not there (dropped, or renamed)",
                f"subsetd attribute drop {known.known_as} --force, or subsetd attribute rename {known.known_as} NEW",
            )


def check_slots(source: SourceFacts, facts: Facts) -> Iterator[Finding]:
    state = facts.state
    fences = [] if state is None else [s for _, location, s in state.sources if location == source.location and s]
    for slot in source.slots:
        about = f"slot {slot.name}"
        drop = f"SELECT pg_drop_replication_slot('{slot.name}')"
        if slot.wal_status == "lost":
            yield Finding(
                Level.FAIL,
                about,
                "has lost WAL that it needs",
                f"{drop}; then bootstrap with --replace behind a new slot",
            )
        elif slot.wal_status == "unreserved":
            yield Finding(
                Level.WARN,
                about,
                "is about to lose WAL that it needs",
                "let its reader catch up, or raise max_slot_wal_keep_size",
            )
        elif not slot.is_active:
            held = "WAL" if slot.held_bytes is None else f"{slot.held_bytes >> 20} MB of WAL"
            yield Finding(
                Level.WARN, about, f"is read by nobody, and holds back {held}", f"start its reader, or {drop}"
            )
        else:
            yield Finding(Level.OK, about, "is being read")
        if fences and slot.catalog_xmin is not None and state is not None and not state.positions:
            xmax = int(fences[0].split(":")[1]) & 0xFFFFFFFF
            if (slot.catalog_xmin - xmax) & 0xFFFFFFFF < 1 << 31 and slot.catalog_xmin != xmax:
                yield Finding(
                    Level.WARN,
                    about,
                    "may have been made after the bootstrap: changes in between would be in neither",
                    "bootstrap again with --replace, now that the slot is there",
                )


def followed_of(source: SourceFacts, state: StateFacts | None) -> dict[tuple[str, str], FollowedTable]:
    """Give the tables of a source that the state follows, by their names there."""
    if state is None:
        return {}
    names = {name for name, location, _ in state.sources if location == source.location}
    return {(table.schema, table.name): table for table in state.tables if table.source in names}


def check_publication(publication: PublicationFacts, source: SourceFacts) -> Iterator[Finding]:
    """Find what a publication leaves out of a source's changes."""
    about, name = f"publication {publication.name}", sql_name(publication.name)
    lacking = {"insert", "update", "delete", "truncate"} - publication.operations
    if lacking:
        yield Finding(
            Level.FAIL,
            about,
            f"leaves out {', '.join(sorted(lacking))}",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
    for table in source.tables:
        key = (table.schema, table.name)
        if table.is_partitioned and not publication.via_root:
            continue  # it is listed by its partitions: `check_connector` tells what that does
        if key not in publication.tables:
            yield Finding(Level.WARN, about, f"does not have {table}", f"ALTER PUBLICATION {name} ADD TABLE {table}")
        elif key in publication.cut:
            yield Finding(
                Level.FAIL,
                about,
                f"leaves out columns or rows of {table}",
                f"ALTER PUBLICATION {name} DROP TABLE {table}; ALTER PUBLICATION {name} ADD TABLE {table}",
            )
