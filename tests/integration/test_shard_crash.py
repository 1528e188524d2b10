"""Who dies at any statement at a server of shards, in one process or in tasks, is as if he had not been."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.store import shard_writing, shards
from service.store.shard_servers import ShardServer
from tests.following import Stream, consume, random_changes
from tests.integration.test_shard_servers import KilledError, require_true, shards_settle, spread_stream, stream
from tests.integration.test_shards import Driver
from tests.integration.test_verify import findings

__all__ = ["spread_stream", "stream"]


class Dying:
    """Stand before a server's connection, and die in front of its n-th statement or commit, or behind it."""

    def __init__(self, connection: Any, step: int) -> None:
        self._connection = connection
        self._left = step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        return self._counted(found) if name in ("execute", "copy_expert", "commit") else found

    def __enter__(self) -> Dying:
        self._connection.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._connection.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._connection)

    def cursor(self) -> Any:
        cursor = Dying(self._connection.cursor(), 0)
        cursor._count = self._count  # type: ignore[method-assign]
        return cursor

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self._count()
            done = function(*given)
            self._count()
            return done

        return call

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise KilledError


def dying(step: int) -> Callable[[Any, Any, ShardServer], None]:
    return lambda at_home, other, server: shards_settle(at_home, Dying(other, step), server)


@pytest.mark.parametrize("way", ["one process", "tasks"])
def test_a_crash_at_any_statement_at_a_server_is_as_if_it_had_not_been(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It dies behind the state's commit, or undoing what the state never heard of: whoever comes next goes on."""
    rng = random.Random(6)
    for step in itertools.count(1):
        random_changes(spread_stream, rng, 12)
        if way == "tasks":
            with Driver(database_url, spread_stream) as driver:
                driver.read(12)
                driver.apply()
        try:
            with monkeypatch.context() as patching:
                patching.setattr(shards if way == "tasks" else shard_writing, "settle", dying(step))
                consume(database_url, spread_stream)
            break
        except KilledError:
            consume(database_url, spread_stream)
            assert all(finding.holds for finding in findings(database_url)), step
    assert step > 12, "there were statements to die at"
    require_true(database_url, spread_stream)
