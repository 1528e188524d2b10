"""A mask and a look at one moment: no alert keeps a value that is not to be kept, whichever of the two is first."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from service.store import masking
from service.store.masking import mask
from service.store.watch_looks import PostgresLook
from tests import states
from tests.following import Stream
from tests.integration.test_watches import BROKEN, break_it, engine, stream, watching
from tests.waiting import wait_for
from tests.watching import Watching, new_watch, pair_rule

__all__ = ["engine", "stream", "watching"]

WAITS = """
select from pg_locks where relation = 'watch_alert'::regclass and not granted
    and database = (select oid from pg_database where datname = current_database())
"""


def has_ended_or_waits(url: str, work: threading.Thread) -> bool:
    return not work.is_alive() or bool(states.query(url, WAITS))


def beside(
    url: str, work: Callable[[], object], place: tuple[object, str], patched: pytest.MonkeyPatch
) -> threading.Thread:
    """Let work begin where a function is called, which goes on when the work has ended, or waits for its end."""
    thread = threading.Thread(target=work)
    real = getattr(*place)

    def first(*given: object) -> None:
        thread.start()
        wait_for(lambda: has_ended_or_waits(url, thread))
        real(*given)

    patched.setattr(*place, first)
    return thread


def value_told(watching: Watching) -> bool:
    (alert,) = watching.alerts()
    return "witness_value" in alert.body["subjects"][0]


def test_a_mask_waits_for_a_look_and_takes_the_value_out_of_what_it_wrote(
    database_url: str, stream: Stream, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching.watches.add(new_watch(pair_rule(), with_values=True))
    break_it(database_url, stream)
    masked = beside(
        database_url,
        lambda: mask(database_url, "s.orders.customer", "none", print),
        (PostgresLook, "add_alert"),
        monkeypatch,
    )
    assert watching.look() == [BROKEN]
    masked.join()
    assert not value_told(watching)


def test_a_look_that_comes_while_a_mask_ends_sees_what_it_left(
    database_url: str, stream: Stream, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching.watches.add(new_watch(pair_rule(), with_values=True))
    break_it(database_url, stream)
    looked = beside(database_url, watching.look, (masking, "refuse_shards"), monkeypatch)
    mask(database_url, "s.orders.customer", "none", print)
    looked.join()
    (alert,) = watching.alerts()
    assert alert.body["subjects"][0].get("witness_value") is None
