"""Own the commands that follow feeds: consume, follow, unfollow, pause, resume."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry
from rich.text import Text

from service import feed_wiring, terminal, wiring
from service.bootstrap_command import (
    ForgetOption,
    KeyOption,
    MaskOption,
    QualifyOption,
    RowImagesOption,
    StoreValuesOption,
    images_told,
    run_bootstrap,
    values_told,
)
from service.config import Settings
from service.core.errors import SourceError
from service.feed_options import OnErrorOption, SourcesOption, feed_settings
from service.observe import ConsumerObserver
from service.process_memory import share_one_heap
from service.reading_options import ExcludeOption, MasterOption, job_told
from service.signals import ending_on_signals
from service.terminal import err, out
from service.upkeep import keeping_up
from service.usecases.batches import ErrorPolicy, Totals
from service.watch_runner import watching


def _in_a_folder(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the run, not behind it."""
    if path is None or (os.path.isdir(path.parent) and not os.path.isdir(path)):
        return path
    why = "it is a folder" if os.path.isdir(path) else f"there is no folder {path.parent}"
    raise SourceError(f"{path}: it cannot be written: {why}. Name another file by --stats-json.")


StatsOption = Annotated[
    Path | None,
    typer.Option("--stats-json", callback=_in_a_folder, help="Write the run's figures to this file."),
]
FeedOption = Annotated[str | None, typer.Option("--feed", help="Name or address of the feed; default: all.")]


def consume(
    feed: Annotated[
        str, typer.Option("--feed", help="kafka://host:port/topic,..., postgresql://...?name=NAME or file:PATH")
    ],
    until_end: Annotated[bool, typer.Option("--until-end", help="End when all that is there now is applied.")] = False,
    on_error: OnErrorOption = None,
    source: SourcesOption = None,
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
    share_one_heap()
    settings = wiring.configured_settings(**feed_settings(on_error, sources))
    stop = threading.Event()
    with wiring.state_database(settings) as url, ending_on_signals(stop.set):
        registry = CollectorRegistry()
        observer = ConsumerObserver(registry, lag_unit=feed_wiring.lag_unit(feed))
        consumer = feed_wiring.make_consumer(url, feed, settings, observer)
        feed_wiring.tune_process()
        try:
            with beside_the_consumer(url, settings, registry, observer, lambda: until_end and not stop.is_set()):
                totals = consumer.run(stop, until_end)
        finally:
            if stats_json is not None:
                _write_figures(stats_json, consumer.totals)
    terminal.show_totals(totals)


def _write_figures(path: Path, totals: Totals) -> None:
    try:
        path.write_text(json.dumps(asdict(totals), indent=1))
    except OSError as error:  # told alone: the run may have an error of its own
        err.print(Text(f"{path}: it cannot be written: {error.strerror or error}."))


@contextmanager
def beside_the_consumer(
    url: str,
    settings: Settings,
    registry: CollectorRegistry,
    observer: ConsumerObserver,
    has_read_all: Callable[[], bool],
) -> Iterator[None]:
    """Do what is done beside the consumer of a process, and look at watches."""
    with keeping_up(url, settings, observer), watching(url, settings, registry, observer, has_read_all=has_read_all):
        yield


def follow(
    source: Annotated[str, typer.Argument(help="postgresql://user@host:port/database")],
    name: Annotated[str, typer.Option("--name", help="Name of the source.")],
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End when all that was committed at the source before is applied.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Read a source anew that was read before, with a new slot.")
    ] = False,
    forget_options: ForgetOption = False,
    exclude: ExcludeOption = None,
    qualify: QualifyOption = False,
    row_images: RowImagesOption = None,
    key: KeyOption = None,
    store_values: StoreValuesOption = None,
    mask: MaskOption = None,
    master: MasterOption = None,
    on_error: OnErrorOption = None,
    stats_json: StatsOption = None,
) -> None:
    """Read a Postgres database once, then follow its changes through a replication slot; a second call goes on."""
    with wiring.state_database(wiring.configured_settings(), migrate=True) as url:
        if replace or not feed_wiring.is_followed(url, source, name):
            settings = wiring.configured_settings()
            # Where nothing is said the job leaves out the same tables, and tells of it.
            before = feed_wiring.excluded_before(url, name) if replace and not forget_options else ()
            err.print("Making a replication slot; it waits for the transactions that are running.")
            with feed_wiring.new_postgres_feed(url, source, name, exclude or before, replace) as told:
                arguments = ["--name", name, *told, *job_told(master, exclude), *images_told(row_images, key)]
                arguments += values_told(store_values, mask)
                flags = ("--replace", replace), ("--forget-options", forget_options), ("--qualify", qualify)
                arguments += [flag for flag, given in flags if given]
                run_bootstrap(url, settings, feed_wiring.source_url(source, name), arguments)
        else:
            feed_wiring.require_said(url, name, exclude or (), store_values, mask or ())
    _consume(feed_wiring.feed_address(source, name), until_end, on_error, stats_json)


def unfollow(
    name: Annotated[str, typer.Argument(help="Name of the source.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Where it is, with a password if it needs one.")
    ] = None,
    gone: Annotated[
        bool,
        typer.Option(
            "--gone",
            help="It is gone for good, and not asked: forget where its feed stands. NAME may be that of any feed, as "
            "`subsetd status` shows it; who follows it once more begins at its start.",
        ),
    ] = False,
) -> None:
    """Drop the replication slot and the publication of a followed source; what was applied stays."""
    if gone and source is not None:
        raise typer.BadParameter("--gone asks no source: leave --source out")
    with wiring.state_database(wiring.configured_settings()) as url:
        if gone:
            out.print(f"The feed {feed_wiring.forget_feed(url, name)} is forgotten.")
            return
        was_there = feed_wiring.unfollow(url, name, source)
    out.print("Slot and publication are dropped." if was_there else "There was neither slot nor publication any more.")


def pause(feed: FeedOption = None) -> None:
    """Let the running consumer end its batch and wait, with its place as the state's writer, until it is resumed."""
    _set_paused(feed, True)


def resume(feed: FeedOption = None) -> None:
    """Let a paused feed be followed again."""
    _set_paused(feed, False)


def _set_paused(feed: str | None, paused: bool) -> None:
    with wiring.state_database(wiring.configured_settings()) as url:
        for name in feed_wiring.set_paused(url, feed, paused):
            out.print(Text(f"{name}: {'paused' if paused else 'resumed'}"))
