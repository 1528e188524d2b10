"""Own the questions about corpora: each as a page that knows where the next one begins."""

from __future__ import annotations

from typing import cast

from service.core.errors import NotFoundError
from service.usecases.answers import Key, Page
from service.usecases.corpora import (
    Change,
    ColumnFilter,
    Corpus,
    CorpusColumn,
    CorpusFault,
    CorpusInd,
    CorpusTable,
    Refresh,
)
from service.usecases.corpora_ports import Corpora, CorpusSnapshot
from service.usecases.queries import page_of

LARGEST_ID = (1 << 31) - 1
ALL = ColumnFilter()
PAGE = 10_000
"""Items of a page for those who want them all."""


def corpora(register: Corpora, after: Key | None = None, limit: int = PAGE) -> Page[Corpus]:
    """List the corpora by name."""
    found = [one for one in register.all() if after is None or one.name.encode() > str(after[0]).encode()]
    return page_of(found, limit, lambda one: (one.name,))


def refreshes(register: Corpora, name: str, after: Key | None = None, limit: int = PAGE) -> Page[Refresh]:
    """List the refreshes of a corpus, newest first."""
    found = register.refreshes(name, before=_number(after), limit=limit + 1)
    return page_of(found, limit, lambda one: (one.refresh_id,))


def refresh(register: Corpora, name: str, refresh_id: int) -> Refresh:
    """Give a refresh of a corpus. Raises NotFoundError, also for one of another corpus."""
    corpus = register.named(name)
    found = register.refresh(refresh_id)
    if found.corpus != corpus.name:
        raise NotFoundError(f"The refresh {refresh_id} is none of {corpus.name!r}.")
    return found


def faults(register: Corpora, refresh_id: int, after: Key | None = None, limit: int = PAGE) -> Page[CorpusFault]:
    """List what a refresh could not read."""
    page = page_of(register.faults(refresh_id, after=_number(after), limit=limit + 1), limit, lambda one: (one[0],))
    return Page([fault for _, fault in page.items], page.next_key)


def inds(
    snapshot: CorpusSnapshot,
    dependent: ColumnFilter = ALL,
    referenced: ColumnFilter = ALL,
    after: Key | None = None,
    limit: int = PAGE,
) -> Page[CorpusInd]:
    """List INDs by the ids of both columns."""
    return page_of(snapshot.inds(dependent, referenced, after=_pair(after), limit=limit + 1), limit, _pair_of)


def changes(snapshot: CorpusSnapshot, after: Key | None = None, limit: int = PAGE) -> Page[Change]:
    """List what appeared and what went since the generation before, by the ids of both columns."""
    return page_of(snapshot.changes(after=_pair(after), limit=limit + 1), limit, _pair_of)


def tables(snapshot: CorpusSnapshot, after: Key | None = None, limit: int = PAGE) -> Page[CorpusTable]:
    """List the tables by their numbers."""
    return page_of(snapshot.tables(after=_number(after), limit=limit + 1), limit, lambda one: (one.table_number,))


def columns(snapshot: CorpusSnapshot, path: str, after: Key | None = None, limit: int = PAGE) -> Page[CorpusColumn]:
    """List the columns of a table by their positions; raise NotFoundError when there is no such table."""
    found = snapshot.columns(path, after=_number(after), limit=limit + 1)
    return page_of(found, limit, lambda one: (one.column.position,))


def _pair_of(one: CorpusInd | Change) -> Key:
    return one.dependent.column_id, one.referenced.column_id


def _number(key: Key | None) -> int | None:
    """Take the number of a key; one that is larger than any id stands behind all of them."""
    return None if key is None else min(cast(int, key[0]), LARGEST_ID)


def _pair(key: Key | None) -> tuple[int, int] | None:
    return None if key is None else (min(cast(int, key[0]), LARGEST_ID), min(cast(int, key[1]), LARGEST_ID))
