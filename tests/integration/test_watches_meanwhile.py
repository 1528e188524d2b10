"""A watch that is replaced, removed or asked something at the moment of a look, or of its removal."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg2
import pytest

from service.core.errors import NotFoundError
from service.store.watch_looks import PostgresLook
from service.store.watches import PostgresWatches
from service.usecases.watches import AlertState
from tests import states
from tests.corpora import is_locked
from tests.following import Stream
from tests.integration.test_watches import BROKEN, LATER, break_it, engine, stream, watching
from tests.waiting import wait_for
from tests.watching import Watching, new_watch, pair_rule

__all__ = ["engine", "stream", "watching"]


def test_what_a_look_finds_by_a_rule_that_is_replaced_meanwhile_is_not_told(
    database_url: str, stream: Stream, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watching.watches.add(new_watch(pair_rule(), debounce=30))
    break_it(database_url, stream)
    assert watching.look() == []
    real = PostgresLook.add_alert

    def replace_first(*given: Any) -> None:
        watching.watches.replace(made.watch_id, new_watch(pair_rule("s.customers.id", "s.orders.customer")))
        real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresLook, "add_alert", replace_first)
        assert watching.look(31) == []
    assert states.query(database_url, "select from watch_standing") == []


def test_what_a_look_tells_of_a_watch_that_is_removed_meanwhile_is_given_up(
    database_url: str, stream: Stream, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watching.watches.add(new_watch(pair_rule()))
    break_it(database_url, stream)
    real, removed = PostgresLook.save, Future[None]()

    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as pool:

        def save_beside(*given: Any) -> None:
            nonlocal removed
            removed = pool.submit(watching.watches.remove, made.watch_id)
            wait_for(lambda: removed.done() or is_locked(database_url, "transactionid", granted=False))
            real(*given)

        patched.setattr(PostgresLook, "save", save_beside)
        assert watching.look() == [BROKEN]
        removed.result()
    (alert,) = watching.alerts()
    assert (alert.state, alert.fault) == (AlertState.FAILED, "the watch was removed")


@pytest.mark.parametrize(
    "ask",
    [
        lambda watches: watches.test(1),
        lambda watches: watches.silence(1, None, datetime.now(UTC) + LATER, "", "Ada"),
    ],
)
def test_what_is_asked_of_a_watch_that_is_being_removed_waits_and_is_refused(
    database_url: str, stream: Stream, watching: Watching, ask: Callable[[PostgresWatches], object]
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    with ThreadPoolExecutor(1) as pool, closing(psycopg2.connect(database_url)) as remover:
        remover.cursor().execute("delete from watch")
        asked = pool.submit(ask, watching.watches)
        wait_for(lambda: asked.done() or is_locked(database_url, "transactionid", granted=False))
        remover.commit()
        with pytest.raises(NotFoundError, match="There is no watch 1;"):
            asked.result()
