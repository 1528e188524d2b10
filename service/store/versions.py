"""Own which version of the state is served, and that whoever listens hears of a new one."""

from __future__ import annotations

from typing import Any

NEWEST = "(select max(version) from state_version)"
"""The newest version, as a part of a query; NULL before the first bootstrap."""

NOTIFY_CHANNEL = "subsetd_version"
"""Where each new version is told of, by NOTIFY."""


def read_served(cursor: Any) -> tuple[int, int]:
    """Read (version, generation) of what is served; both are 0 before the first bootstrap."""
    cursor.execute("select version, generation from state_version order by version desc limit 1")
    version, generation = cursor.fetchone() or (0, 0)
    return version, generation


def tell_version(cursor: Any, version: int) -> None:
    """Let listeners hear of a version, when the transaction that wrote it commits."""
    cursor.execute("select pg_notify(%s, %s)", (NOTIFY_CHANNEL, str(version)))
