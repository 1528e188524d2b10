"""Own `subsetd api-key` and `subsetd write-log`: who may ask over HTTP, and who changed what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from service import wiring
from service.terminal import Format, FormatOption, err, out, print_list
from service.usecases.access import AccessControl, ApiKey, Scope
from service.usecases.write_log import Write, WriteLog

app = typer.Typer(help="Keys of the HTTP service: create, list, revoke.", no_args_is_help=True)

PORTION = 1000

NameArgument = Annotated[str, typer.Argument(help="Name of the key.")]
UNITS = {"d": "days", "h": "hours"}


@app.command()
def create(
    name: NameArgument,
    scope: Annotated[Scope, typer.Option("--scope", help="What the key is for; admin holds write holds read.")],
    expires: Annotated[str, typer.Option("--expires", help="For how long it is good: 90d, 12h, or never.")] = "90d",
) -> None:
    """Make a key, and print it: it is kept nowhere, and shown this once."""
    lifetime = _lifetime(expires)
    with _access() as (access, writes):
        made, key = access.create(name, scope, lifetime)
        end = "never expires" if made.expires_at is None else f"expires at {made.expires_at:%Y-%m-%d %H:%M %Z}"
        err.print(Text(f"The key {made.name!r} has the scope {made.scope} and {end}. It is shown this once:"))
        print(key, flush=True)  # before anything can fail: the name is taken by now
        _log(writes, "create", name)


@app.command("list")
def list_(format_: FormatOption = Format.TABLE) -> None:
    """List the keys; what is revoked stays in the list."""
    with _access() as (access, _):
        found = list(_all(access))
    _print(found, format_, [name for name in ApiKey.__dataclass_fields__ if name != "key_id"])


@app.command()
def revoke(name: NameArgument) -> None:
    """Take a key back, with the sessions that began with it; services that run notice within seconds."""
    with _access() as (access, writes):
        access.revoke(name)
        _log(writes, "revoke", name)
    out.print(Text(f"The key {name!r} is revoked."))


def write_log(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Most lines, the newest.")] = 50,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List who changed what over HTTP, newest first, and what became of it."""
    with _access() as (_, writes):
        found = writes.writes(None, limit)
    _print(found, format_, ["written_at", "who", "session", "address", "method", "route", "target", "status"])


@contextmanager
def _access() -> Iterator[tuple[AccessControl, WriteLog]]:
    settings = wiring.configured_settings()
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        yield wiring.make_access(engine, settings), wiring.make_write_log(engine)


def _all(access: AccessControl) -> Iterator[ApiKey]:
    after = 0
    while True:
        found = access.keys(after, PORTION)
        yield from found
        if len(found) < PORTION:
            return
        after = found[-1].key_id


def _log(writes: WriteLog, command: str, name: str) -> None:
    route = f"subsetd api-key {command}"
    writes.add(Write("cli", None, None, "command", route, f"/api/v1/api-keys/{name}", None))


def _lifetime(text: str) -> timedelta | None:
    if text == "never":
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,4})([dh])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time: write 90d, 12h, or never.", param_hint="--expires")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def _print(found: list[Any], format_: Format, fields: list[str]) -> None:
    print_list(fields, ([_shown(asdict(one)[name]) for name in fields] for one in found), format_)


def _shown(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value
