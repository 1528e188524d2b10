"""Own the states that rows measure: one durable Postgres in the work folder, a database for each state, clones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg2
from psycopg2.sql import SQL, Identifier

from benchmarks import tpch
from benchmarks.context import Context, subsetd
from benchmarks.processes import Measured, run
from service.store.embedded import EmbeddedPostgres
from service.store.tables import SCHEMA_REVISION


@dataclass(frozen=True, slots=True)
class Server:
    """Give access to the benchmark's Postgres: the embedded one with its default settings, fsync on."""

    postgres: EmbeddedPostgres

    @property
    def pid(self) -> int:
        return int((self.postgres.cluster / "postmaster.pid").read_text().split()[0])

    def url(self, database: str) -> str:
        return self.postgres.url_of(database)

    @contextmanager
    def connection(self, database: str, autocommit: bool = False) -> Iterator[psycopg2.extensions.connection]:
        """Open a connection for a block."""
        connection = psycopg2.connect(self.url(database))
        try:
            connection.autocommit = autocommit
            yield connection
        finally:
            connection.close()

    def create(self, database: str, template: str | None = None) -> str:
        """Make a database anew, empty or as a copy of another one's files, and return its address."""
        with self.connection("postgres", autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(database)))
            copied = SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(Identifier(template)) if template else SQL("")
            cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(database)) + copied)
            cursor.execute("CHECKPOINT")
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, ending what is still connected to it."""
        with self.connection("postgres", autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(database)))

    @contextmanager
    def clone(self, template: str, database: str) -> Iterator[str]:
        """Copy a state for a block and give the copy's address."""
        try:
            yield self.create(database, template)
        finally:
            self.drop(database)

    def has(self, database: str) -> bool:
        with self.connection("postgres") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,))
            return cursor.fetchone() is not None


@contextmanager
def server(context: Context) -> Iterator[Server]:
    """Start the benchmark's Postgres for a block; its databases stay for the next row."""
    with EmbeddedPostgres(context.work / "postgres") as postgres:
        yield Server(postgres)


def environment(url: str) -> dict[str, str]:
    """Return the settings under which subsetd works on a state."""
    return {"SUBSETD_DATABASE_URL": url}


def bootstrap(context: Context, postgres: Server, folder: Path, name: str, database: str, *options: str) -> Measured:
    """Bootstrap a folder into a new database by the command that users type."""
    url = postgres.create(database)
    return run(
        [subsetd(), "bootstrap", folder, "--name", name, *options],
        log=context.logs / f"bootstrap-{database}.log",
        environment=environment(url),
        beside={"postgres": postgres.pid},
    )


def tpch_database(context: Context) -> str:
    return f"tpch_{context.scale_factor:g}".replace(".", "_")


def tpch_state(context: Context, postgres: Server) -> str:
    """Return the database with TPC-H's state, bootstrapping it when an earlier row has not."""
    database = tpch_database(context)
    if not finished(postgres, database):
        context.say("bootstrapping TPC-H first")
        bootstrap(context, postgres, tpch.tables(context.work, context.scale_factor), tpch.NAME, database)
    return database


def finished(postgres: Server, database: str) -> bool:
    """Tell whether a database holds a bootstrapped state of this schema; a run that was killed leaves none."""
    if not at_revision(postgres, database):
        return False
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM state_version")
        return bool(one(cursor))


def at_revision(postgres: Server, database: str) -> bool:
    """Tell whether there is a database of this schema."""
    if not postgres.has(database):
        return False
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('alembic_version') IS NOT NULL")
        if not one(cursor):
            return False
        cursor.execute("SELECT version_num FROM alembic_version")
        return one(cursor) == SCHEMA_REVISION


def counts(postgres: Server, database: str) -> dict[str, int]:
    """Count attributes, clusters, current INDs and values of a state, as `tpch.EXPECTED` names them."""
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM attribute), (SELECT count(*) FROM cluster),"
            " (SELECT count(*) FROM uind WHERE until_version IS NULL), (SELECT sum(value_count)::bigint FROM cluster)"
        )
        row = cursor.fetchone()
        assert row is not None
        return dict(zip(("attributes", "clusters", "inds", "values"), row, strict=True))


def attribute_ids(postgres: Server, database: str) -> dict[str, list[int]]:
    """Return the attribute ids of every table, in the order of its columns."""
    ids: dict[str, list[int]] = {}
    with postgres.connection(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT table_name, attribute_id FROM attribute ORDER BY table_name, ordinal")
        for table, attribute_id in cursor:
            ids.setdefault(table, []).append(attribute_id)
    return ids


def one(cursor: psycopg2.extensions.cursor) -> object:
    """Return the only cell of a query's answer."""
    row = cursor.fetchone()
    assert row is not None
    return row[0]


@dataclass(frozen=True, slots=True)
class Consumed:
    """Hold what one run of `subsetd consume` says of itself (`--stats-json`), and what it was seen to take.

    `seconds` go from the first record to the last commit; those of the `steps` overlap. `values` counts the netted
    values of all batches, an access is one gen_rec read or written, `without_caches` what it would be without
    ValCache and complete counts.
    """

    seconds: float
    steps: dict[str, float]
    tuples: int
    batches: int
    values: int
    accesses: int
    without_caches: int
    warmed: int
    warm_up_seconds: float
    measured: Measured

    @property
    def tuples_per_second(self) -> float:
        return self.tuples / self.seconds


def consume(context: Context, postgres: Server, database: str, feed: Path | str, warm_up: str = "before") -> Consumed:
    """Apply a file, or the feed of an address, to a state by the command that users type.

    Its start-up is not in `seconds`. A consumer runs for days, so it is measured with a full ValCache unless `warm_up`
    says otherwise.
    """
    address, log = (f"file:{feed}", feed.stem) if isinstance(feed, Path) else (feed, database)
    stats_file = context.work / "stats.json"
    stats_file.unlink(missing_ok=True)
    measured = run(
        [subsetd(), "consume", "--feed", address, "--until-end", "--stats-json", stats_file],
        log=context.logs / f"consume-{log}.log",
        environment={**environment(postgres.url(database)), "SUBSETD_WARM_UP": warm_up},
        beside={"postgres": postgres.pid},
    )
    stats = json.loads(stats_file.read_text())
    return Consumed(
        seconds=stats["elapsed"],
        steps=stats["seconds"],
        tuples=stats["inserted"] + stats["updated"] + stats["deleted"],
        batches=stats["batches"],
        values=stats["values"],
        accesses=stats["read"] + stats["written"],
        without_caches=stats["without_caches"],
        warmed=stats["warmed"],
        warm_up_seconds=stats["warm_up_seconds"],
        measured=measured,
    )
