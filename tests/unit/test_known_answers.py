"""Answers from memory are those of the newest version, computed once for all who ask, and nothing else is kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from service.api import known_answers
from service.api.known_answers import KnownAnswers
from service.api.recent_history import NewestHistory
from service.core.errors import StateError
from service.core.model import AttributeName, TransitionKind
from service.usecases.answers import NOTHING_KNOWN, AttributeRef, News, StateHead, TransitionInfo
from tests.waiting import BOUND_SECONDS

PATH = "/api/v1/uinds"
ONE, OTHER = (AttributeRef(number, AttributeName("s", "t", str(number))) for number in (1, 2))


def page_of(version: int, told: str) -> bytes:
    """Write a page as the routes do."""
    head = {"version": version, "transaction_consistent": None, "next_cursor": None, "as_of": version}
    return json.dumps({**head, "items": [told]}, separators=(",", ":")).encode()


def transition(version: int) -> TransitionInfo:
    """Make one of a version."""
    return TransitionInfo(version, None, TransitionKind.BROKE, ONE, OTHER, None, None, 1, None, None)


class Service:
    """Be a state with a version, and the route that answers from it; both take a moment.

    Nothing goes on from one version to the next, unless `goes_on` is set; then something happened at `happened`.
    """

    def __init__(self) -> None:
        self.version = 1
        self.named_further = b""
        self.goes_on = False
        self.happened: list[int] = []
        self.read_first = lambda: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.computed = 0
        self.status = 200
        self.is_away = False
        self.while_computing = lambda: None
        self.app = KnownAnswers(self._route, NewestHistory(self))

    async def read(self, known: StateHead) -> News:
        """Be the reader of what is new."""
        self.read_first()
        if self.is_away:
            raise StateError("away")
        found = [transition(version) for version in self.happened if known.version < version <= self.version]
        goes_on = known.version > 0 and (self.goes_on or known.version == self.version)
        head = replace(NOTHING_KNOWN, version=self.version)
        await asyncio.sleep(0)
        return News(head, goes_on, found, found[-1].version if found else 0)

    def close(self) -> None:
        raise AssertionError("nobody closes it here")

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        version = self.version
        self.computed += 1
        self.while_computing()
        await asyncio.sleep(0.01)
        await self.gate.wait()
        scope["route"] = known_answers.Route(scope["path"])
        etag = b'"%d%b"' % (version, self.named_further)
        headers = [(b"etag", etag), (b"cache-control", b"no-cache"), (b"x-more", b"1")]
        body = page_of(version, f"read at {version}")
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body[:7], "more_body": True})
        await send({"type": "http.response.body", "body": body[7:]})

    async def ask(self, path: str = PATH, query: bytes = b"", method: str = "GET", known: bytes = b"") -> Any:
        """Ask, and give (status, headers, body, but for what follows from the version alone)."""
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"if-none-match", known)] if known else []
        scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
        await self.app(scope, None, send)  # type: ignore[arg-type]
        assert scope["route"].path == path  # type: ignore[attr-defined]
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(one.get("body", b"") for one in sent[1:])


def test_many_who_ask_the_same_share_one_answer() -> None:
    async def run() -> None:
        service = Service()
        answers = await asyncio.gather(*(service.ask() for _ in range(50)))
        assert {(status, body) for status, _, body in answers} == {(200, page_of(1, "read at 1"))}
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
                assert (await service.ask())[2] == page_of(version, f"read at {version}")
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
        assert (await service.ask(known=b'"1"'))[2] == page_of(2, "read at 2")

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
        assert {body for _, _, body in late} == {page_of(2, "read at 2")}
        assert (await first)[2] == page_of(1, "read at 1")  # of the version when it asked

    asyncio.run(run())


def test_refusals_are_not_kept() -> None:
    async def run() -> None:
        service = Service()
        service.status = 422
        answers = await asyncio.gather(*(service.ask() for _ in range(5)))
        assert {(status, body) for status, _, body in answers} == {(422, page_of(1, "read at 1"))}
        assert service.computed == 5
        service.status = 200
        assert (await service.ask())[0] == 200

    asyncio.run(run())


def test_who_waited_for_what_is_not_kept_waits_for_nobody_else() -> None:
    async def run() -> None:
        service = Service()
        service.status = 422
        service.gate.clear()
        asking = [asyncio.create_task(service.ask()) for _ in range(50)]

        async def computed(number: int) -> None:
            while service.computed < number:
                await asyncio.sleep(0)

        async with asyncio.timeout(BOUND_SECONDS):
            for number in (1, 2):  # the second begins behind all questions
                await computed(number)
                service.gate.set()
                await computed(number + 1)
                service.gate.clear()
            await computed(50)
        service.gate.set()
        assert {status for status, _, _ in await asyncio.gather(*asking)} == {422}

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

    monkeypatch.setattr(
        known_answers, "MOST_BYTES", 3 * (known_answers.ENTRY_BYTES + len(b"9") + len(page_of(1, "read at 1")))
    )
    asyncio.run(run())


@pytest.mark.parametrize("further", [b"", b"-h2"])
def test_what_shows_the_same_at_a_later_version_is_not_computed_anew(further: bytes) -> None:
    async def run() -> None:
        service = Service()
        service.goes_on, service.named_further = True, further
        await service.ask()
        for version in (2, 3, 7):
            service.version = version
            status, headers, body = await service.ask(known=b'"1"')
            etag = b'"%d%b"' % (version, further)
            assert (status, body, headers[b"etag"]) == (200, page_of(version, "read at 1"), etag)
            assert headers[b"content-length"] == b"%d" % len(body)
            assert (await service.ask(known=etag))[0] == 304
        assert service.computed == 1
        service.version, service.happened = 9, [8]
        assert (await service.ask())[2] == page_of(9, "read at 9")
        service.version = 10
        assert (await service.ask())[2] == page_of(10, "read at 9")
        service.version, service.goes_on = 11, False
        assert (await service.ask())[2] == page_of(11, "read at 11")

    asyncio.run(run())


@pytest.mark.parametrize(
    "asked",
    [("/api/v1/attributes", b""), ("/api/v1/clusters", b""), (PATH, b"as_of=1"), (PATH, b"limit=9&as%5fo%66=1")],
)
def test_what_each_version_changes_is_computed_for_each(asked: tuple[str, bytes]) -> None:
    async def run() -> None:
        service = Service()
        service.goes_on = True
        for service.version in (1, 2, 3):
            await service.ask(*asked)
        assert service.computed == 3

    asyncio.run(run())


def test_a_crowd_that_waits_while_versions_pass_is_answered_together() -> None:
    """Whoever waited is told of the version that was the newest when it asked, though a newer one is there by then."""

    async def run() -> None:
        service = Service()

        def commit() -> None:
            service.version += 1

        service.read_first = commit
        service.gate.clear()
        waiting = []
        for number in range(2, 100):
            waiting.append(asyncio.create_task(service.ask()))
            while service.version < number:  # until this one has begun to ask
                await asyncio.sleep(0)
        while service.computed == 0:
            await asyncio.sleep(0)
        service.gate.set()
        assert all(status == 200 for status, _, _ in await asyncio.gather(*waiting))
        assert service.computed == 2

    asyncio.run(run())


def test_young_changes_are_answered_without_the_route() -> None:
    async def run() -> None:
        service = Service()
        service.goes_on, service.happened = True, [3, 5, 6]
        path = "/api/v1/changes"
        for version, since in [(1, 1), (4, 2), (6, 2), (7, 5), (7, 6), (7, 7)]:
            service.version = version
            body = json.loads((await service.ask(path, b"since=%d&limit=2" % since))[2])
            expected = [one for one in service.happened if since < one <= version]
            assert [one["version"] for one in body["items"]] == expected[:2]
            assert (body["version"], body["since"]) == (version, since)
            assert (body["next_cursor"] is None) == (len(expected) <= 2)
        assert service.computed == 0
        others = [
            b"",
            b"since=0",
            b"since=8",
            b"since=x",
            b"since=3&since=3",
            b"since=3&limit=0",
            b"since=3&limit=1001",
        ]
        others += [b"since=3&kind=broke", b"since=3&kind=", b"since=3&cursor=x"]
        for number, query in enumerate(others, 1):
            await service.ask(path, query)
            assert service.computed == number, query

    asyncio.run(run())


def test_a_version_is_read_after_it_was_asked_for() -> None:
    """Whoever asks is told a version that was the newest later than that, however many share a reading."""
    clock = 0

    class Clock:
        async def read(self, known: StateHead) -> News:
            nonlocal clock
            clock += 1
            told = clock
            await asyncio.sleep(0)
            return News(replace(known, version=told), True, [], 0)

        def close(self) -> None:
            pass

    async def run() -> None:
        newest = NewestHistory(Clock())

        async def ask() -> tuple[int, int]:
            return clock, (await newest()).head.version

        found = [await asyncio.gather(*(ask() for _ in range(20))) for _ in range(20)]
        staggered = [asyncio.create_task(ask()) for _ in range(20) if not await asyncio.sleep(0)]
        found.append(await asyncio.gather(*staggered))
        assert all(before < told for many in found for before, told in many)
        assert clock < 100

    asyncio.run(run())
