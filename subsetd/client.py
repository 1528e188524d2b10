"""Own the client of the HTTP service for notebooks: `Client` waits for each answer, `AsyncClient` does not block."""

from __future__ import annotations

try:
    import httpx as _httpx  # noqa: F401  what is missing is told before anything else
except ImportError as error:
    raise ImportError("subsetd.client needs httpx: pip install 'subsetd[client]'") from error

from subsetd._asking import JobFailed, Problem
from subsetd._async_client import AsyncClient, AsyncRows
from subsetd._sync_client import Client, Rows

__all__ = ["AsyncClient", "AsyncRows", "Client", "JobFailed", "Problem", "Rows"]
