"""Own the model of what is kept of coefficients over time; `tables` has the others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table

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
