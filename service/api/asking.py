"""Own what every answer shares: its snapshot, its ETag, and how the names in a question become attributes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Header, Path, Request, Response

from service.api import schemas
from service.usecases import queries
from service.usecases.access import ANYONE, Caller
from service.usecases.answers import AttributeFilter, AttributeInfo
from service.usecases.ports import StateReader, StateSnapshot
from service.usecases.sketched_columns import ColumnInfo, resolve

CACHE_CONTROL = "no-cache"
"""Caches may keep an answer, and ask whether it still holds before they give it."""

DependentPath = Annotated[
    str,
    Path(
        description="full name `schema.table.column`, percent-encoded (`/` as `%2F`), or `id:17`",
        openapi_examples={"a column": {"value": "demo.orders.customer_id"}},
    ),
]
ReferencedPath = Annotated[
    str,
    Path(
        description="full name `schema.table.column`, percent-encoded (`/` as `%2F`), or `id:17`",
        openapi_examples={"a column": {"value": "demo.customers.id"}},
    ),
]


class NotModified(Exception):
    """The state still has the version that the client knows."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__()
        self.headers = headers


class Polled:
    """Name an answer after what it was computed from, and end where the client has it."""

    def __init__(self, response: Response, if_none_match: str | None) -> None:
        self.headers: dict[str, str] = {}
        self._response = response
        self._known = set() if if_none_match is None else {one.strip() for one in if_none_match.split(",")}

    def name_answer(self, tag: str) -> None:
        """Give the answer this tag."""
        self.headers = {"ETag": f'"{tag}"', "Cache-Control": CACHE_CONTROL}
        self._response.headers.update(self.headers)

    def name_further(self, more: str) -> None:
        """Add to the tag of the answer."""
        tag = self.headers["ETag"].strip('"')
        self.name_answer(f"{tag}-{more}")

    def depends_on_accept(self, form: str) -> None:
        """Name the answer after its form as well, which the header Accept chose: of each the bytes are others."""
        self.name_further(form)
        self.headers["Vary"] = "Accept"

    def stop_if_known(self) -> None:
        """End here, with 304, when the client has this answer; call it when the question is known to be good."""
        etag = self.headers["ETag"]
        if self._known & {etag, f"W/{etag}", "*"}:
            raise NotModified(self.headers)


class Asking(Polled):
    """Serve one request: open the snapshot, and let the answer be named after its version."""

    def __init__(self, reader: StateReader, response: Response, if_none_match: str | None) -> None:
        super().__init__(response, if_none_match)
        self._reader = reader

    @contextmanager
    def snapshot(self, *, with_values: bool = False) -> Iterator[StateSnapshot]:
        """Open the snapshot that the whole answer is computed from."""
        with self._reader.snapshot(with_values=with_values) as snapshot:
            self.name_answer(str(snapshot.head.version))
            yield snapshot

    def depends_on_uploads(self, snapshot: StateSnapshot) -> None:
        """Name the answer after what is uploaded as well, which is no part of a version."""
        self._name_further_if(snapshot.uploads_tag())

    def depends_on_sketches(self, snapshot: StateSnapshot) -> None:
        """Name the answer after how far the sketches' compactor is as well, who makes no version."""
        self._name_further_if(snapshot.sketches_tag())

    def depends_on_upkeep(self, snapshot: StateSnapshot) -> None:
        """Name the answer after what commands change beside versions: which letters and feeds there are, and pause."""
        self._name_further_if(snapshot.upkeep_tag())

    def depends_on_servers(self, away: Sequence[str]) -> None:
        """Name the answer after which servers of shards are away as well, when all else is in its name."""
        if away:
            self.name_further(f"{zlib.crc32(repr(away).encode()):08x}")

    def depends_on_history(self, snapshot: StateSnapshot) -> None:
        """Name the answer after where the history begins as well, which moves on without a new version."""
        if snapshot.head.first_version > 1:
            self.name_further(f"h{snapshot.head.first_version}")

    def _name_further_if(self, tag: str) -> None:
        if tag:
            self.name_further(tag)


def who_says(request: Request, said: str) -> str:
    """Name who says something: by his key, or where none is wanted as he names himself."""
    caller: Caller = request.state.caller
    return said if caller.name == ANYONE else caller.name


IfNoneMatch = Annotated[str | None, Header(description="the ETag of an earlier answer")]


async def _asking(request: Request, response: Response, if_none_match: IfNoneMatch = None) -> Asking:
    return Asking(request.app.state.reader, response, if_none_match)


Asked = Annotated[Asking, Depends(_asking)]


async def not_modified(_request: Request, error: Exception) -> Response:
    """Answer 304."""
    assert isinstance(error, NotModified)
    return Response(status_code=304, headers=error.headers)


def from_path(snapshot: StateSnapshot, segment: str) -> AttributeInfo:
    """Find the attribute that a segment of the path, still encoded, names."""
    return queries.resolve(snapshot, unquote(segment))


def column_from_path(snapshot: StateSnapshot, segment: str) -> ColumnInfo:
    """Find the attribute or uploaded sketch that a segment of the path, still encoded, names."""
    return resolve(snapshot, unquote(segment))


def sides(snapshot: StateSnapshot, asked: schemas.PairQuestion) -> tuple[AttributeFilter, AttributeFilter]:
    """Choose the two sides of pairs by what was asked."""
    named = [None if one is None else queries.resolve(snapshot, one) for one in (asked.dependent, asked.referenced)]
    arity = queries.arity_of_pairs(filter(None, named), asked.arity)
    return (
        _side(named[0], asked.dependent_schema, asked.dependent_table, arity),
        _side(named[1], asked.referenced_schema, asked.referenced_table, arity),
    )


def _side(named: AttributeInfo | None, schema: str | None, table: str | None, arity: int) -> AttributeFilter:
    attribute_id = None if named is None else named.attribute_id
    return AttributeFilter(schema=schema, table=table, attribute_id=attribute_id, arity=arity)
