"""Answers from memory are those of the newest version, computed once for all who ask, and nothing else is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.api import known_answers
from service.api.known_answers import KnownAnswers, NewestVersion
from service.core.errors import StateError

PATH = "/api/v1/uinds"


class Service:
    """Be a state with a version, and the route that answers from it; both take a moment."""

    def __init__(self) -> None:
        self.version = 1
        self.computed = 0
        self.status = 200
        self.is_away = False
        self.while_computing = lambda: None
        self.app = KnownAnswers(self._route, self._read)

    def _read(self) -> int:
        if self.is_away:
            raise StateError("away")
        return self.version

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        version = self.version
        self.computed += 1
        self.while_computing()
        await asyncio.sleep(0.01)
        scope["route"] = "the route"
        headers = [(b"etag", b'"%d"' % version), (b"cache-control", b"no-cache"), (b"x-more", b"1")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"page of ", "more_body": True})
        await send({"type": "http.response.body", "body": b"%d" % version})

    async def ask(self, path: str = PATH, query: bytes = b"", method: str = "GET", known: bytes = b"") -> Any:
        """Ask, and give (status, headers, body)."""
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"if-none-match", known)] if known else []
        scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
        await self.app(scope, None, send)  # type: ignore[arg-type]
        assert scope["route"] == "the route"
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(one.get("body", b"") for one in sent[1:])


def test_many_who_ask_the_same_share_one_answer() -> None:
    async def run() -> None:
        service = Service()
        answers = await asyncio.gather(*(service.ask() for _ in range(50)))
        assert {(status, body) for status, _, body in answers} == {(200, b"page of 1")}
        assert service.computed == 1
        await asyncio.gather(*(service.ask(query=b"limit=%d" % (number % 5)) for number in range(50)))
        assert service.computed == 6

    asyncio.run(run())


def test_a_new_version_is_answered_anew() -> None:
    async def run() -> None:
        service = Service()
        for version in range(1, 4):
            service.version = version
            for _ in range(3):
                assert (await service.ask())[2] == b"page of %d" % version
        assert service.computed == 3

    asyncio.run(run())


def test_who_has_the_answer_is_told_so() -> None:
    async def run() -> None:
        service = Service()
        for known in (b'"1"', b'W/"1"', b'"0", "1"', b"*"):
            status, headers, body = await service.ask(known=known)
            assert (status, body) == (304, b"")
            assert headers == {b"etag": b'"1"', b"cache-control": b"no-cache"}
        assert (await service.ask(known=b'"0"'))[0] == 200
        service.version = 2
        assert (await service.ask(known=b'"1"'))[2] == b"page of 2"

    asyncio.run(run())


def test_who_waited_for_an_answer_that_is_old_by_then_gets_a_new_one() -> None:
    async def run() -> None:
        service = Service()

        def commit() -> None:
            service.version = 2

        service.while_computing = commit
        first = asyncio.create_task(service.ask())
        await asyncio.sleep(0.005)
        late = await asyncio.gather(*(service.ask() for _ in range(10)))
        assert {body for _, _, body in late} == {b"page of 2"}
        assert (await first)[2] == b"page of 1"  # of the version when it asked

    asyncio.run(run())


def test_refusals_are_not_kept() -> None:
    async def run() -> None:
        service = Service()
        service.status = 422
        answers = await asyncio.gather(*(service.ask() for _ in range(5)))
        assert {(status, body) for status, _, body in answers} == {(422, b"page of 1")}
        assert service.computed == 5
        service.status = 200
        assert (await service.ask())[0] == 200

    asyncio.run(run())


def test_a_route_that_raises_leaves_nobody_waiting() -> None:
    async def run() -> None:
        service = Service()

        def fail() -> None:
            raise ZeroDivisionError

        service.while_computing = fail
        found = await asyncio.gather(*(service.ask() for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [ZeroDivisionError] * 5
        service.while_computing = lambda: None
        assert (await service.ask())[0] == 200

    asyncio.run(run())


def test_without_a_database_the_route_answers() -> None:
    async def run() -> None:
        service = Service()
        await service.ask()
        service.is_away, service.status = True, 503
        assert (await service.ask())[0] == 503

    asyncio.run(run())


@pytest.mark.parametrize(("path", "method"), [("/api/v1/state", "GET"), (PATH, "DELETE"), (f"{PATH}/a/b", "GET")])
def test_all_else_goes_to_its_route(path: str, method: str) -> None:
    async def run() -> None:
        service = Service()
        for _ in range(2):
            await service.ask(path, method=method)
        assert service.computed == 2

    asyncio.run(run())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = Service()
        for number in range(10):
            await service.ask(query=b"%d" % number)
        assert service.computed == 10
        await service.ask(query=b"9")
        await service.ask(query=b"7")
        assert service.computed == 10
        await service.ask(query=b"6")
        assert service.computed == 11
        for _ in range(2):  # a question counts as well: three times as long as all that is kept, it is not
            await service.ask(query=b"x" * 3 * known_answers.MOST_BYTES)
        assert service.computed == 13
        monkeypatch.setattr(known_answers, "LARGEST", 5)
        service.version = 2
        for _ in range(2):
            await service.ask(query=b"9")
        assert service.computed == 15

    monkeypatch.setattr(known_answers, "MOST_BYTES", 3 * (known_answers.ENTRY_BYTES + len(b"9") + len(b"page of 1")))
    asyncio.run(run())


def test_a_version_is_read_after_it_was_asked_for() -> None:
    """Whoever asks is told a version that was the newest later than that, however many share a reading."""
    clock = 0

    async def run() -> None:
        nonlocal clock

        def read() -> int:
            nonlocal clock
            clock += 1
            return clock

        newest = NewestVersion(read)

        async def ask() -> tuple[int, int]:
            return clock, await newest()

        found = [await asyncio.gather(*(ask() for _ in range(20))) for _ in range(20)]
        staggered = [asyncio.create_task(ask()) for _ in range(20) if not await asyncio.sleep(0)]
        found.append(await asyncio.gather(*staggered))
        assert all(before < told for many in found for before, told in many)
        assert clock < 100

    asyncio.run(run())
