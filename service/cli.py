"""Own the `subsetd` command: what a person types."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry
from rich.text import Text

from service import (
    __version__,
    answer_commands,
    attribute_commands,
    contract_commands,
    corpus_commands,
    dead_letter_commands,
    demo,
    foreign_key_commands,
    graph_commands,
    join_track_command,
    key_commands,
    sketch_commands,
    terminal,
    wiring,
)
from service.audit_command import audit
from service.audit_runner import auditing
from service.bootstrap_command import (
    KeyOption,
    QualifyOption,
    RowImagesOption,
    bootstrap,
    images_told,
    run_bootstrap,
    spark_bootstrap,
)
from service.coefficient_command import coefficients
from service.command_help import command_of
from service.config import Settings
from service.core.errors import FeedError, NotFoundError, RecordError, SubsetdError
from service.evidence_command import explain
from service.join_tracking import compacting_joins
from service.joinable_command import joinable
from service.joinable_runner import searching_joinable
from service.key_discovery_command import discover
from service.key_runner import tracking_keys
from service.observe import ConsumerObserver
from service.preflight_command import preflight
from service.reading_options import ExcludeOption, MasterOption, job_told
from service.refresh_service import refreshing_corpora
from service.server import ending_on_signals, serve_until
from service.terminal import err, out
from service.usecases import queries
from service.usecases.batches import ErrorPolicy, Totals
from service.usecases.verify import verify as verify_state

app = typer.Typer(
    name="subsetd",
    help="Keeps the inclusion dependencies of changing data current.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(preflight)
app.command()(coefficients)
app.command()(audit)
app.command()(joinable)
app.add_typer(sketch_commands.app, name="sketch")
app.add_typer(corpus_commands.app, name="corpus")
app.add_typer(graph_commands.app, name="graph")
app.add_typer(contract_commands.app, name="contract")
app.add_typer(foreign_key_commands.app, name="foreign-keys")
key_commands.app.command()(discover)
app.add_typer(key_commands.app, name="keys")
foreign_key_commands.app.command()(explain)
for said in (contract_commands.accept, contract_commands.reject, contract_commands.pin, contract_commands.decisions):
    foreign_key_commands.app.command()(said)
app.add_typer(join_track_command.app, name="join-index")
app.add_typer(attribute_commands.app, name="attribute")
app.add_typer(dead_letter_commands.app, name="dead-letters")


OnErrorOption = Annotated[
    ErrorPolicy | None,
    typer.Option(
        "--on-error", help="none: stop at a bad record; all: set it aside; default SUBSETD_ON_ERROR, or none."
    ),
]
StatsOption = Annotated[Path | None, typer.Option("--stats-json", help="Write the run's figures to this file.")]


def main() -> None:
    """Run the command; an error that the user can mend is one message and its exit code, never a stack trace."""
    try:
        command_of(app)()
    except SubsetdError as error:
        err.print("[bold red]error:[/]", Text(str(error)))
        if isinstance(error, RecordError):
            err.print(
                "All before this record is applied, and nothing behind it. --on-error all sets such records aside."
            )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    if version:
        print(f"subsetd {__version__}")
        raise typer.Exit


@app.command("demo")
def demo_command(
    once: Annotated[bool, typer.Option("--once", help="End after one round of changes, without serving.")] = False,
) -> None:
    """Show it all on real data: bootstrap, follow changes that make and break dependencies, serve the answers."""
    settings = demo.settings_of(wiring.configured_settings(log_level="warning"))
    with (
        wiring.state_database(settings) as url,
        wiring.reading_engine(url) as engine,
        wiring.demonstration(settings, demo.NAME, demo.TABLES) as source,
    ):
        reader = wiring.make_reader(engine)
        with reader.snapshot() as snapshot:
            is_new = snapshot.head.version == 0
        if not wiring.is_followed(url, source.url, demo.NAME):
            out.print("[bold]1.[/] Reading the Chinook music store's database of eleven tables with one Spark job.")
            with wiring.new_postgres_feed(source.url, demo.NAME, ["demo.progress"], replace=True) as told:
                arguments = ["-", "--name", demo.NAME, *([] if is_new else ["--replace"]), *told]
                run_bootstrap(url, settings, arguments, source=source.url)
        else:
            out.print("[bold]1.[/] The database was read in an earlier run; the state goes on where it stands.")
        demo.show_declared(reader, out)
        with reader.snapshot(with_values=True) as snapshot:
            demo.show_suggested(snapshot, out)
        feed = wiring.feed_address(source.url, demo.NAME)
        observer = ConsumerObserver(CollectorRegistry())
        consumer = wiring.make_consumer(url, feed, settings, observer)
        out.print("\n[bold]2.[/] Following the database, without a broker, while the store sells music.")

        def applied() -> int | None:
            if observer.following_since is None:
                return None
            return consumer.totals.inserted + consumer.totals.updated + consumer.totals.deleted

        with _running(consumer.run) as failed:
            demo.play(source, applied, reader, out, failed)
            if once:
                out.print("\nThe round is over. `subsetd demo` without --once also serves the answers.")
                return
            registry = CollectorRegistry()
            with (
                tracking_keys(url, settings) as tracked,
                searching_joinable(url, engine, settings) as joinable_searches,
            ):
                app_ = wiring.make_service(engine, settings, tracked, joinable_searches, registry)
                serve_until(
                    app_, settings.host, settings.port, failed, lambda port: demo.show_next(settings.host, port, out)
                )


app.command()(bootstrap)


@app.command()
def consume(
    feed: Annotated[
        str, typer.Option("--feed", help="kafka://host:port/topic,..., postgresql://...?name=NAME or file:PATH")
    ],
    until_end: Annotated[bool, typer.Option("--until-end", help="End when all that is there now is applied.")] = False,
    on_error: OnErrorOption = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Source that the feed is of, where several could be; repeatable."),
    ] = None,
    stats_json: StatsOption = None,
) -> None:
    """Follow a change feed and keep the state current; SIGTERM ends it behind the batch in hand."""
    _consume(feed, until_end, on_error, stats_json, source)


def _consume(
    feed: str,
    until_end: bool,
    on_error: ErrorPolicy | None,
    stats_json: Path | None,
    sources: Sequence[str] | None = None,
) -> None:
    given = {} if on_error is None else {"on_error": on_error.value}
    settings = wiring.configured_settings(**given, **({"feed_sources": ",".join(sources)} if sources else {}))
    stop = threading.Event()
    with wiring.state_database(settings) as url, ending_on_signals(stop.set):
        consumer = wiring.make_consumer(url, feed, settings, ConsumerObserver(CollectorRegistry()))
        wiring.tune_process()
        try:
            with (
                wiring.sending_transitions(url, settings),
                wiring.compacting_sketches(url),
                compacting_joins(url),
            ):
                totals = consumer.run(stop, until_end)
        finally:
            if stats_json is not None:
                stats_json.write_text(json.dumps(asdict(consumer.totals), indent=1))
    terminal.show_totals(totals)


@app.command()
def follow(
    source: Annotated[str, typer.Argument(help="postgresql://user@host:port/database")],
    name: Annotated[str, typer.Option("--name", help="Name of the source.")],
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End when all that was committed at the source before is applied.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Read a source anew that was read before, with a new slot.")
    ] = False,
    exclude: ExcludeOption = None,
    qualify: QualifyOption = False,
    row_images: RowImagesOption = None,
    key: KeyOption = None,
    master: MasterOption = None,
    on_error: OnErrorOption = None,
    stats_json: StatsOption = None,
) -> None:
    """Read a Postgres database once, then follow its changes through a replication slot; a second call goes on."""
    with wiring.state_database(wiring.configured_settings(), migrate=True) as url:
        if replace or not wiring.is_followed(url, source, name):
            settings = wiring.configured_settings()
            err.print("Making a replication slot; it waits for the transactions that are running.")
            with wiring.new_postgres_feed(source, name, exclude or (), replace) as told:
                arguments = ["-", "--name", name, *told, *job_told(master), *images_told(row_images, key)]
                arguments += [flag for flag, given in (("--replace", replace), ("--qualify", qualify)) if given]
                run_bootstrap(url, settings, arguments, source=wiring.source_url(source, name))
    _consume(wiring.feed_address(source, name), until_end, on_error, stats_json)


@app.command()
def unfollow(
    name: Annotated[str, typer.Argument(help="Name of the source.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Where it is, with a password if it needs one.")
    ] = None,
) -> None:
    """Drop the replication slot and the publication of a followed source; what was applied stays."""
    with wiring.state_database(wiring.configured_settings()) as url:
        was_there = wiring.unfollow(url, name, source)
    out.print("Slot and publication are dropped." if was_there else "There was neither slot nor publication any more.")


@app.command()
def serve() -> None:
    """Serve the answers over HTTP, at SUBSETD_HOST and SUBSETD_PORT: http://127.0.0.1:8321 if neither is set."""
    settings = wiring.configured_settings()
    with (
        wiring.state_database(settings) as url,
        wiring.reading_engine(url, settings) as engine,
        tracking_keys(url, settings) as tracked,
        searching_joinable(url, engine, settings) as searches,
    ):
        service = wiring.make_service(engine, settings, tracked, searches, CollectorRegistry())
        with refreshing_corpora(url, settings), auditing(url, settings):
            serve_until(service, settings.host, settings.port, threading.Event(), _say_address(settings))


@app.command()
def run(
    feed: Annotated[
        str | None, typer.Option("--feed", help="Feed to follow, as consume takes it; default SUBSETD_FEED.")
    ] = None,
) -> None:
    """Bring the state's schema up to date, follow a feed and serve the answers, in one process."""
    settings = wiring.configured_settings()
    address = feed or settings.feed
    if address is None:
        raise FeedError(
            "No feed is named: give --feed or SUBSETD_FEED "
            "(kafka://host:port/topic,..., postgresql://...?name=NAME or file:PATH)."
        )
    with (
        wiring.state_database(settings, migrate=True) as url,
        wiring.reading_engine(url, settings) as engine,
        tracking_keys(url, settings) as tracked,
        searching_joinable(url, engine, settings) as searches,
    ):
        registry = CollectorRegistry()
        observer = ConsumerObserver(registry)
        consumer = wiring.make_consumer(url, address, settings, observer)
        service = wiring.make_service(engine, settings, tracked, searches, registry, observer)
        wiring.tune_process()
        with (
            wiring.sending_transitions(url, settings),
            wiring.compacting_sketches(url),
            compacting_joins(url),
            refreshing_corpora(url, settings),
            auditing(url, settings),
            _running(consumer.run) as failed,
        ):
            serve_until(service, settings.host, settings.port, failed, _say_address(settings))


FeedOption = Annotated[str | None, typer.Option("--feed", help="Name or address of the feed; default: all.")]


@app.command()
def pause(feed: FeedOption = None) -> None:
    """Let the running consumer end its batch and wait, with its place as the state's writer, until it is resumed."""
    _set_paused(feed, True)


@app.command()
def resume(feed: FeedOption = None) -> None:
    """Let a paused feed be followed again."""
    _set_paused(feed, False)


def _set_paused(feed: str | None, paused: bool) -> None:
    with wiring.state_database(wiring.configured_settings()) as url:
        for name in wiring.set_paused(url, feed, paused):
            out.print(Text(f"{name}: {'paused' if paused else 'resumed'}"))


# The help lists commands in this order.
for command in (answer_commands.status, answer_commands.inds, answer_commands.explain, answer_commands.attributes):
    app.command()(command)


@app.command()
def verify(
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="NAME=ADDRESS: recompute this source from its present data; repeatable."),
    ] = None,
    sql_only: Annotated[bool, typer.Option("--sql-only", help="Check the stored state alone.")] = False,
) -> None:
    """Check the state's invariants, and hold it against a fresh recomputation; exit code 1 when something differs.

    A source is recomputed from where it was read, unless changes have been applied since: files are as they were then.
    Then give the present data with --source NAME=ADDRESS. A database that is read again must stand still meanwhile.
    """
    settings = wiring.configured_settings()
    given = dict(_named_address(text) for text in source or ())
    with wiring.state_database(settings) as url, wiring.reading_engine(url) as engine:
        with wiring.make_reader(engine).snapshot() as snapshot:
            state = queries.state(snapshot)
        broken = 0
        with wiring.make_verifier(engine).checks() as checks:
            out.print(f"Verifying version {checks.version}.")
            for finding in verify_state(checks):
                mark = "[green]holds[/]" if finding.holds else f"[bold red]{finding.violations:,} violations[/]"
                out.print(f"{finding.invariant}  {finding.statement} ({finding.checked:,} checked): {mark}")
                for example in finding.examples:
                    out.print(Text(f"      {example}"))
                broken += not finding.holds
        for one in () if sql_only else state.sources:
            has_changed = state.head.version > max(s.bootstrapped_version for s in state.sources)
            address = given.pop(one.name, None if has_changed else one.location)
            if address is None:
                out.print(
                    Text(
                        f"I4  {one.name} is not recomputed: changes have been applied since it was read from "
                        f"{one.location}. Give its present data: --source {one.name}=ADDRESS"
                    )
                )
                continue
            out.print(Text(f"I4  recomputing {one.name} from {one.location}"))
            ended = spark_bootstrap(url, settings, [address, "--name", one.name, "--check"])
            out.print("      [green]equal[/]" if ended == 0 else "      [bold red]it differs, or could not be read[/]")
            broken += ended != 0
    if given:
        raise NotFoundError(f"There is no source {next(iter(given))!r}; `subsetd status` lists those there are.")
    if broken:
        raise typer.Exit(1)


def _named_address(text: str) -> tuple[str, str]:
    name, is_given, address = text.partition("=")
    if not (name and is_given and address):
        raise NotFoundError(f"--source {text!r} is not NAME=ADDRESS.")
    return name, address


@contextmanager
def _running(follow: Callable[[threading.Event], Totals]) -> Iterator[threading.Event]:
    """Run a consumer on a thread; gives an event that is set when it fails, and raises its error at the end."""
    stop, failed = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def body() -> None:
        try:
            follow(stop)
        except BaseException as error:  # told to the caller below
            errors.append(error)
            failed.set()

    thread = threading.Thread(target=body, name="subsetd-consumer")
    thread.start()
    try:
        yield failed
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def _say_address(settings: Settings) -> Callable[[int], None]:
    return lambda port: err.print(
        f"Serving on http://{settings.host}:{port} (dashboard: /, routes: /docs)", highlight=False
    )


if __name__ == "__main__":
    main()
