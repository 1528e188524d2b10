"""Clients that poll tell what they saw of a server that hangs or closes connections, not only of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from benchmarks import http_load
from benchmarks.http_load import Load
from benchmarks.rows import api_load

CLIENTS, SECONDS, EVERY = 3, 1.0, 0.1
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Answering(asyncio.Protocol):
    """Answer so many questions of a connection; then hang, or close it."""

    def __init__(self, answers: int, closes: bool) -> None:
        self.left = answers
        self.closes = closes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.left:
            self.left -= 1
            self.transport.write(ANSWER)
            if self.closes and not self.left:
                self.transport.close()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bool], Load]:
    """Let clients poll a server that answers so often, and give what they saw."""
    monkeypatch.setattr(http_load, "WARM_UP", 0)
    monkeypatch.setattr(http_load, "LATE", 0.2)

    async def poll(answers: int, closes: bool) -> Load:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: Answering(answers, closes), "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            return await http_load.poll(port, CLIENTS, SECONDS, EVERY, ["/a"])

    return lambda answers, closes: asyncio.run(poll(answers, closes))


def test_who_is_answered_sees_no_error(seen: Callable[[int, bool], Load]) -> None:
    load = seen(1000, False)
    assert load.errors == []
    assert len(load.of(200)) > 2 * CLIENTS


def test_who_still_waits_at_the_end_has_waited_so_long_and_in_vain(seen: Callable[[int, bool], Load]) -> None:
    load = seen(2, False)
    assert [error.partition(" after")[0] for error in load.errors] == ["/a: no answer"] * CLIENTS
    waited = sorted(load.of(200, "/a"))
    assert len(waited) == 3 * CLIENTS
    assert min(waited[-CLIENTS:]) > 0.2


def test_a_connection_that_is_closed_between_two_questions_is_an_error(seen: Callable[[int, bool], Load]) -> None:
    load = seen(2, True)
    assert [error.partition(" was")[0] for error in load.errors] == ["/a: the connection"] * CLIENTS
    assert len(load.of(200)) == 2 * CLIENTS


def test_answers_are_held_to_those_that_were_due() -> None:
    load = Load()
    load.seconds[f"{api_load.PAGE} 200"] = [0.001] * 20
    found = {one.metric: one for one in api_load._results("part", load, [0.1, 0.2], due=180, has_goals=True)}
    answers = found["part: answers"]
    assert (answers.value, answers.baseline_value, answers.holds) == (20, 180, False)
