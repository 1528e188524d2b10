"""Own the models of coefficients over time and of running bootstraps; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Identity, Integer, Table, Text, func

from service.store.table_base import metadata

coefficient_sample = Table(
    "coefficient_sample",
    metadata,
    Column("dependent_id", Integer, primary_key=True, autoincrement=False),
    Column("referenced_id", Integer, primary_key=True, autoincrement=False),
    Column("since_version", BigInteger, primary_key=True, autoincrement=False),
    Column("until_version", BigInteger, nullable=False, comment="last look that found the same"),
    Column("overlap", BigInteger, nullable=False, comment="distinct values in both"),
    Column("distinct_count", BigInteger, nullable=False, comment="of the dependent"),
    comment="what looks found of pairs whose IND does not hold; while it holds, uind says so",
    # With room on the page a span goes on without a new place in the index.
    postgresql_with={"fillfactor": "70"},
)


def _time(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp())


bootstrap_run = Table(
    "bootstrap_run",
    metadata,
    Column("run_id", Integer, Identity(), primary_key=True),
    Column("source_name", Text, nullable=False, unique=True),
    Column("stage", Text, nullable=False),
    Column("done", BigInteger),
    Column("total", BigInteger),
    _time("started_at"),
    _time("stage_started_at"),
    _time("progressed_at"),
    Column("ended_at", DateTime(timezone=True), comment="without success"),
    Column("fault", Text),
    comment="bootstraps that run, died or failed; one that succeeds takes its row away",
)
