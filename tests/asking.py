"""Own how tests ask over HTTP: clients that share what TLS trusts, which each would read from a file for itself."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx


def http_client(**options: Any) -> httpx.Client:
    """Make a client; options are those of httpx, of which `verify` is given."""
    return httpx.Client(verify=_trusted(), **options)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context()
