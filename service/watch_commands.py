"""Own `subsetd watch`: rules that tell somebody, what they told, silences, and loads that they wait for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry
from rich.text import Text

from service import wiring
from service.core.errors import NotFoundError
from service.core.watch_rules import Rule, RuleKind, WatchError
from service.terminal import Format, FormatOption, out, print_list, user_name
from service.usecases import queries
from service.usecases.watch_register import WatchRegister
from service.usecases.watches import Alert, AlertState, Channel, ChannelKind, Load, NewWatch, Watch
from service.watch_wiring import make_watches, watch_sender

app = typer.Typer(
    help="Rules that tell somebody: what breaks or comes back, by webhook, Slack, mail or a topic.",
    no_args_is_help=True,
)

WatchArgument = Annotated[int, typer.Argument(help="Id of a watch; `subsetd watch list` lists them.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who says so; default: the user of this process.")]
ForOption = Annotated[str, typer.Option("--for", help="How long: 30s, 15m, 2h or 3d.")]

TEST_SECONDS = 60.0
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the watch.")],
    kind: Annotated[RuleKind, typer.Argument(help="What it looks at.")],
    when: Annotated[
        str,
        typer.Option(
            "--when",
            help="ind: broken, holding; contract: violated, held; coefficient: below, above; unique: lost, regained; "
            "lag: seconds, records (of a file or a slot: bytes). Default: the first.",
        ),
    ] = "",
    dependent: Annotated[str | None, typer.Option("--dependent", help="schema.table.column; * is any text.")] = None,
    referenced: Annotated[str | None, typer.Option("--referenced", help="The same.")] = None,
    contract: Annotated[int | None, typer.Option("--contract", help="Id of a contract; default: any.")] = None,
    attribute: Annotated[
        str | None, typer.Option("--attribute", help="schema.table.column; with *: all tracked keys that match.")
    ] = None,
    corpus: Annotated[str | None, typer.Option("--corpus", help="Name of a corpus; * is any text.")] = None,
    bound: Annotated[
        str | None, typer.Option("--bound", help="Coefficient, or of a lag seconds, records or bytes.")
    ] = None,
    margin: Annotated[
        str | None, typer.Option("--margin", help="How far behind the bound a coefficient is right again.")
    ] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="https://host/path")] = None,
    secret_file: Annotated[
        typer.FileText | None, typer.Option("--secret-file", help="File with what signs the webhook; - reads stdin.")
    ] = None,
    slack: Annotated[str | None, typer.Option("--slack", help="Address of a Slack webhook.")] = None,
    email: Annotated[list[str] | None, typer.Option("--email", help="name@host; repeatable.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic at SUBSETD_ALERT_BROKER.")] = None,
    debounce: Annotated[
        str, typer.Option("--debounce", help="What does not stand for so long is not told: 0s, 30s, 5m.")
    ] = "30s",
    fired_only: Annotated[bool, typer.Option("--fired-only", help="Do not tell when it is over.")] = False,
    with_values: Annotated[bool, typer.Option("--with-values", help="Let alerts name a value that did it.")] = False,
    by: ByOption = None,
) -> None:
    """Watch something from now on, and tell somebody when it turns."""
    numbers = {name: _number(given, name) for name, given in (("bound", bound), ("margin", margin))}
    rule = Rule(kind, when, dependent, referenced, contract, attribute, corpus, **numbers)
    given = [
        Channel(ChannelKind.WEBHOOK, webhook) if webhook else None,
        Channel(ChannelKind.SLACK, slack) if slack else None,
        Channel(ChannelKind.EMAIL, to=tuple(email)) if email else None,
        Channel(ChannelKind.KAFKA, topic=topic) if topic else None,
    ]
    channels = [one for one in given if one is not None]
    if len(channels) != 1:
        raise WatchError("A watch has one channel: --webhook, --slack, --email or --topic.")
    channel = replace(channels[0], secret=None if secret_file is None else _secret_of(secret_file))
    seconds = _seconds(debounce, "--debounce")
    with _register() as register:
        made = register.add(NewWatch(name, rule, channel, seconds, not fired_only, with_values, by or user_name()))
    out.print(Text(f"Watch {made.watch_id}, {made.name}: tells when {made.rule}."))


@app.command("list")
def list_(format_: FormatOption = Format.TABLE) -> None:
    """List the watches, and how much of what they speak of is as they tell."""
    with _register() as register:
        found = queries.walk(
            lambda after: queries.page_of(
                register.watches.all(0 if after is None else int(after[0]), queries.MAX_LIMIT + 1),
                queries.MAX_LIMIT,
                lambda one: (one.watch_id,),
            )
        )
        header = ["id", "name", "tells when", "channel", "debounce", "bad"]
        print_list(header, map(_row, found), format_, one_word=True)


@app.command()
def remove(watch_id: WatchArgument) -> None:
    """Forget a watch; what it told stays in the history."""
    with _register() as register:
        register.watches.remove(watch_id)
    out.print(f"Watch {watch_id} is gone.")


@app.command()
def test(watch_id: WatchArgument) -> None:
    """Send an alert that says it is a test, and say what became of it; exit code 1 when it was not taken."""
    settings = wiring.configured_settings()
    # A service that runs sends it; else this process does, and of this watch alone: others' channels may need
    # settings that this shell has not.
    with (
        wiring.state_database(settings) as url,
        watch_sender(url, settings, CollectorRegistry(), watch_id) as (sender, _, engine),
        closing(sender),
    ):
        watches = make_watches(engine, settings)
        alert = watches.test(watch_id)
        deadline = time.monotonic() + TEST_SECONDS
        while alert.state is AlertState.PENDING and time.monotonic() < deadline:
            sender.look()
            time.sleep(0.1)
            alert = watches.watches.alert(alert.alert_id)
    if alert.state is AlertState.DELIVERED:
        out.print(f"It was taken: alert {alert.delivery_id}.")
        return
    fault = alert.fault or "what came before it was not taken yet; `subsetd watch history` tells"
    out.print(Text(f"It was not taken: {fault}"))
    raise typer.Exit(1)


@app.command()
def history(
    watch_id: Annotated[int | None, typer.Option("--watch", help="Of this watch alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, the newest.")] = 50,
    format_: FormatOption = Format.TABLE,
) -> None:
    """List what was told, to be told, or kept silent, newest first."""
    with _register() as register:
        found = register.watches.alerts(watch_id, None, None, limit)
    header = ["id", "at", "watch", "kind", "version", "says", "state", "attempts", "fault"]
    print_list(header, map(_told, found), format_)


@app.command()
def silence(
    lasts: ForOption,
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    watch_id: Annotated[int | None, typer.Option("--watch", help="Id of a watch.")] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Of names of watches or of columns; * is any text.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Let a watch, or all that a pattern matches, be silent for a while; what still stands then is told then."""
    with _register() as register:
        made = register.silence(watch_id, pattern, _until(lasts), reason, by or user_name())
    out.print(f"Silence {made.silence_id} until {made.until.isoformat(timespec='seconds')}.")


@app.command()
def unsilence(silence_id: Annotated[int, typer.Argument(help="Id of a silence.")]) -> None:
    """End a silence now."""
    with _register() as register:
        register.watches.end_silence(silence_id)
    out.print(f"Silence {silence_id} has ended.")


@app.command()
def silences(format_: FormatOption = Format.TABLE) -> None:
    """List silences: those in force, then the last that were."""
    with _register() as register:
        found = register.watches.silences()
    header = ["id", "watch", "pattern", "until", "reason", "by", "in force"]
    rows = [
        [
            one.silence_id,
            one.watch_id,
            one.pattern,
            one.until.isoformat(timespec="seconds"),
            one.reason,
            one.created_by,
            one.is_active,
        ]
        for one in found
    ]
    print_list(header, rows, format_, one_word=True)


@app.command()
def quiet(
    name: Annotated[str, typer.Argument(help="SCHEMA or SCHEMA.TABLE.")],
    lasts: Annotated[str | None, typer.Option("--for", help="How long: 15m, 2h, 3d.")] = None,
    until_loaded: Annotated[
        bool,
        typer.Option("--until-loaded", help="Until its source is bootstrapped, `watch loaded` says so, or 24 hours."),
    ] = False,
    by: ByOption = None,
) -> None:
    """Announce a load: watches wait with what they tell of these tables until it has ended."""
    if (lasts is None) != until_loaded:
        raise WatchError("Say how long it takes: --for 2h, or --until-loaded.")
    with _register() as register:
        until = None if lasts is None else _until(lasts)
        made = _announce(register, name, until, by or user_name())
    out.print(f"Load {made.load_id}: watches wait until {made.until.isoformat(timespec='seconds')} at most.")


def _announce(register: WatchRegister, name: str, until: datetime | None, by: str) -> Load:
    """Announce a load of what has this name; the name of a schema may have a dot itself, as that of a table may."""
    for dot in re.finditer(r"\.", name):
        with suppress(NotFoundError):
            return register.announce(name[: dot.start()], name[dot.end() :], until, by)
    return register.announce(name, None, until, by)


@app.command()
def loaded(load_id: Annotated[int, typer.Argument(help="Id of an announced load.")]) -> None:
    """Say that a load has ended."""
    with _register() as register:
        register.watches.end_load(load_id)
    out.print(f"Load {load_id} has ended.")


@app.command()
def loads(format_: FormatOption = Format.TABLE) -> None:
    """List announced loads: those that are waited for, then the last that were."""
    with _register() as register:
        found = register.watches.loads()
    header = ["id", "schema", "table", "until", "by", "waited for"]
    rows = [
        [one.load_id, one.schema, one.table, one.until.isoformat(timespec="seconds"), one.created_by, one.is_active]
        for one in found
    ]
    print_list(header, rows, format_, one_word=True)


@contextmanager
def _register() -> Iterator[WatchRegister]:
    settings = wiring.configured_settings()
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        yield make_watches(engine, settings)


def _secret_of(file: typer.FileText) -> str | None:
    try:
        return file.read().strip() or None
    except UnicodeDecodeError:
        fault = "it is no text in UTF-8; write random bytes as hexadecimal digits"
        raise typer.BadParameter(fault, param_hint="--secret-file") from None


def _seconds(text: str, option: str) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time such as 30s, 15m, 2h or 3d", param_hint=option)
    return float(match[1]) * UNITS[match[2]]


def _until(lasts: str) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(seconds=_seconds(lasts, "--for"))
    except OverflowError:
        raise typer.BadParameter(f"{lasts!r} is longer than there are years", param_hint="--for") from None


def _number(text: str | None, option: str) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"{text!r} is no number", param_hint=f"--{option}") from None


def _row(one: Watch) -> list[Any]:
    return [one.watch_id, one.name, str(one.rule), one.channel.kind.value, f"{one.debounce:g}s", one.bad]


def _told(one: Alert) -> list[Any]:
    at = one.created_at.isoformat(timespec="seconds")
    says = one.body["summary"]
    return [one.alert_id, at, one.watch, one.kind.value, one.version, says, one.state.value, one.attempts, one.fault]
