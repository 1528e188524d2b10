"""One process at a time lets watches look; the others wait for their turn, also when their connection is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from sqlalchemy import Engine

from service.core.errors import StateError
from service.store.database import LostConnectionError, make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.watch_looks import PostgresLooks
from service.usecases.watch_evaluation import Evaluator
from tests import states
from tests.following import shop_tables
from tests.postgres import administer
from tests.watching import Watching, new_watch, pair_rule

NAME = "another"


@pytest.fixture
def watching(database_url: str) -> Iterator[Watching]:
    """Look first, and hold the turn."""
    states.store(database_url, shop_tables())
    engine = make_engine(database_url, "first")
    made = Watching(engine)
    made.watches.add(new_watch(pair_rule()))
    made.look()
    yield made
    made.looks.close()
    engine.dispose()


@pytest.fixture
def another(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url, NAME)
    yield engine
    engine.dispose()


def test_one_process_looks_and_another_takes_over(watching: Watching, another: Engine) -> None:
    with closing(PostgresLooks(another)) as other:
        assert not Evaluator(other, watching.clock).evaluate()
        watching.looks.close()
        assert Evaluator(other, watching.clock).evaluate()
        assert not watching.evaluator.evaluate()


def test_who_waits_for_its_turn_says_that_the_connection_was_lost_and_looks_later(
    watching: Watching, another: Engine, postgres_server: EmbeddedPostgres
) -> None:
    with closing(PostgresLooks(another)) as other:
        evaluator = Evaluator(other, watching.clock)
        assert not evaluator.evaluate()
        administer(
            postgres_server,
            f"select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = '{NAME}'",
        )
        with pytest.raises(LostConnectionError, match="was lost"):
            evaluator.evaluate()
        watching.looks.close()
        assert evaluator.evaluate()


def test_a_look_that_others_hold_up_for_longer_than_a_lock_timeout_is_taken_again_by_the_same(
    watching: Watching, another: Engine, database_url: str
) -> None:
    """The timeout is the role's or the database's; the holders are a mask, or VACUUM FULL."""
    watching.looks.close()
    engine = make_engine(database_url, "hurried", lock_timeout_ms=20)
    with (
        closing(PostgresLooks(engine)) as looks,
        closing(PostgresLooks(another)) as others,
        closing(psycopg2.connect(database_url)) as holder,
    ):
        evaluator = Evaluator(looks, watching.clock)
        holder.cursor().execute("lock table attribute in access exclusive mode")
        assert evaluator.evaluate(), "what began to look writes nothing"
        holder.rollback()
        holder.cursor().execute("lock table watch_alert in access exclusive mode")
        with pytest.raises(StateError, match="Others were in the way of a statement on database"):
            evaluator.evaluate()
        assert not Evaluator(others, watching.clock).evaluate()
        holder.rollback()
        assert evaluator.evaluate()
    engine.dispose()
