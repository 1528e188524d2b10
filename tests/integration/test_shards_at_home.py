"""What befalls the state's own database while shards' servers are written to is told of it, and not of a server."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import make_url

from service.core.errors import ShardAwayError
from service.store import shard_writing, shards
from service.store.database import LostConnectionError, place
from tests import states
from tests.following import Stream, Watch, consume, random_changes
from tests.integration.test_shard_servers import require_true, spread_stream, stream

__all__ = ["spread_stream", "stream"]


def ending_at_home(url: str, function: Callable[..., object]) -> Callable[..., object]:
    """Let the session of the state's own database end as a function begins to use it, once."""
    ended: list[int] = []

    def call(at_home: Any, *given: Any) -> object:
        if not ended:
            ended.append(at_home.connection.info.backend_pid)
            states.execute(url, f"select pg_terminate_backend({ended[0]}, 10000)")
        return function(at_home, *given)

    return call


def test_what_befalls_the_states_own_database_is_not_said_to_be_a_servers(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away would be waited for, by whoever takes the shards over."""
    monkeypatch.setattr(shards, "settle", ending_at_home(database_url, shards.settle))
    with pytest.raises(LostConnectionError, match=re.escape(place(make_url(database_url)))) as raised:
        consume(database_url, spread_stream)
    assert not isinstance(raised.value, ShardAwayError)
    assert "server '" not in str(raised.value)


@pytest.mark.parametrize(("module", "name"), [(shard_writing, "settle"), (shards, "write_again")])
def test_what_befalls_the_states_own_database_behind_a_commit_is_not_said_to_be_a_servers(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    random_changes(spread_stream, random.Random(6), 25)
    watch = Watch()
    monkeypatch.setattr(module, name, ending_at_home(database_url, getattr(module, name)))
    consume(database_url, spread_stream, watch=watch)
    (told,) = watch.errors
    assert isinstance(told, LostConnectionError)
    assert not isinstance(told, ShardAwayError)
    assert re.match(r"Version \d+ is committed, and nothing of it is to be done again", str(told))
    require_true(database_url, spread_stream)
