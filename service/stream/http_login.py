"""Own HTTP addresses with a login: the login goes into a header, and into no message."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request


def split_login(address: str) -> tuple[str, dict[str, str]] | None:
    """Give an address without user and password, and the headers that send them (Basic); None where it is none.

    A character of either that has a meaning in addresses is escaped (`/` as %2F).
    """
    try:
        parts = urlsplit(address)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.path
    except ValueError:
        return None
    if not is_good:
        return None
    host = parts.netloc.rpartition("@")[2]
    headers = {}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(login).decode()
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), headers


def request_of(address: str, login: Mapping[str, str], headers: Mapping[str, str] = MappingProxyType({})) -> Request:
    """Make a request whose login no redirect takes to another host."""
    request = Request(address, headers=dict(headers))
    for name, value in login.items():
        request.add_unredirected_header(name, value)
    return request
