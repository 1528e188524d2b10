"""Own the state that the examples of the API speak of, served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.core.foreign_keys.sides import Side
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.watches import PostgresWatches
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Question
from service.usecases.joinable import JoinQuery, JoinQuestion
from tests import states
from tests.corpora import GivenCorpus, GivenTable
from tests.integration.serving import app_over, searches_over, serving
from tests.states import Tables
from tests.watching import new_watch, pair_rule

TABLES = [GivenTable(0, "2019/orders.csv", 0, ["id", "customer"]), GivenTable(1, "customers.csv", 2, ["id"])]
REFRESH = 7
"""The number that the examples give to a refresh."""


@contextmanager
def served_examples(database_url: str, api_key: str | None = None) -> Iterator[str]:
    """Serve what the examples speak of, and give the address: three tables at version 2, a corpus at generation 2."""
    shop = Tables({"orders": ["customer_id"], "customers": ["id", "region"], "regions": ["id"]})
    shop.add("orders", ["1"], ["2"], ["2"])
    shop.add("customers", ["1", "n"], ["2", "n"], ["3", "s"])
    shop.add("regions", ["n"], ["s"], ["w"])
    states.store(database_url, shop)
    states.execute(database_url, "update attribute set schema_name = 'demo'")
    states.execute(
        database_url,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) "
        "select source_id, array[1], array[2] from source",
    )
    states.execute(database_url, "insert into state_version (version, generation, kind) values (2, 1, 'batch')")
    states.execute(
        database_url,
        "insert into contract (dependent_schema, dependent_table, dependent_columns, referenced_schema, "
        "referenced_table, referenced_columns, least_coefficient, created_by) "
        "values ('demo', 'orders', '{customer_id}', 'demo', 'regions', '{id}', 1, 'Ada')",
    )
    states.execute(
        database_url,
        "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version) "
        "values ('kafka:made', 'demo.orders', 0, 7, 'RecordError', 'no JSON', 'no JSON', 2)",
    )
    lake = GivenCorpus(database_url)
    for tables in (TABLES, []):
        lake.refresh({(1, 2, 3)}, tables)
    while (refresh := lake.queue()) < REFRESH:
        lake.corpora.cancel(refresh)
    states.execute(database_url, "insert into tracked_key (attribute_id, kind, since_version) values (1, 'pinned', 1)")
    engine = make_engine(database_url, "test-examples")
    PostgresWatches(engine).add(new_watch(pair_rule("demo.orders.customer_id", "demo.customers.id"), "w"))
    ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question())
    lake.index()
    app = app_over(engine, api_key=api_key, joinable=searches_over(engine, at_once=0))
    for jobs in (app.state.joinable._jobs, app.state.tracked_keys._jobs):
        jobs._newest = 0  # of the examples each is the first; a service's numbers begin anywhere
    app.state.joinable.ask(JoinQuery([["berlin"]]), JoinQuestion("lake"))
    app.state.tracked_keys.track(Side("demo", "customers", ("id", "region")), None)
    with serving(app) as address:
        yield address
    engine.dispose()
