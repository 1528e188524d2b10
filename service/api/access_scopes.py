"""Own which scope each route needs: what reads needs `read`, what changes needs `write`, but for what is named here."""

from __future__ import annotations

from service.usecases.access import Scope

READING = frozenset({"GET", "HEAD", "OPTIONS"})

OPEN = frozenset({"/healthz", "/readyz", "/"})
"""Paths that everybody may ask: they tell whether the service works, and the page asks for the key itself."""

PAGE_FILES = "/dashboard/"
"""Where the dashboard's files are: they hold no data."""

SESSION = "/api/v1/session"

STREAM = "/api/v1/stream"
"""An answer without an end: who may not ask any more hears no more of it."""

SEARCHES = "/api/v1/joinable"
"""Questions that are too long for an address: they are sent, and change nothing."""

KEYS, WRITES, CORPORA = "/api/v1/api-keys", "/api/v1/write-log", "/api/v1/corpora"


def needed_scope(method: str, path: str) -> Scope | None:
    """Give the scope that a request needs, by its path as it was sent or its template; None: everybody may ask."""
    if path in OPEN or path.startswith(PAGE_FILES) or (path == SESSION and method == "POST"):
        return None
    if _is_below(path, KEYS) or _is_below(path, WRITES):
        return Scope.ADMIN
    if method in READING or _is_below(path, SEARCHES) or path == SESSION:
        return Scope.READ
    # A corpus may name any folder that the service can read, and an index any that it can write.
    if path == CORPORA or (_is_below(path, CORPORA) and path.count("/") == CORPORA.count("/") + 1):
        return Scope.ADMIN
    return Scope.WRITE


def is_written(method: str, path: str) -> bool:
    """Tell whether a request is to change something, and is logged."""
    needed = needed_scope(method, path)
    return needed is not None and needed is not Scope.READ and method not in READING


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
