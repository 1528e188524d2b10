"""What of subsetd is for Python programs and notebooks: the client, and `find_relationships`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subsetd.client import AsyncClient, Client, Problem
    from subsetd.relationships import Relationship, find_relationships

__all__ = ["AsyncClient", "Client", "Problem", "Relationship", "find_relationships"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing beside: a client needs no numpy, and relationships no httpx."""
    if name not in __all__:
        raise AttributeError(f"module 'subsetd' has no attribute {name!r}")
    if name in ("Relationship", "find_relationships"):
        from subsetd import relationships as home
    else:
        from subsetd import client as home  # type: ignore[no-redef]
    return getattr(home, name)
