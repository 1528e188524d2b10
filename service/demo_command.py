"""Own `subsetd demo`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from service import demo as demonstration
from service import feed_wiring, serving_wiring, wiring
from service.bootstrap_command import run_bootstrap
from service.feed_wiring import running_consumer
from service.joinable_runner import searching_joinable
from service.key_runner import tracking_keys
from service.observe import ConsumerObserver
from service.server import serve_until
from service.terminal import out


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after one round of changes, without serving.")] = False,
) -> None:
    """Show it all on real data: bootstrap, follow changes that make and break dependencies, serve the answers."""
    settings = demonstration.settings_of(wiring.configured_settings(log_level="warning"))
    with (
        wiring.state_database(settings) as url,
        wiring.reading_engine(url) as engine,
        feed_wiring.demonstration(settings, demonstration.NAME, demonstration.TABLES) as source,
    ):
        reader = wiring.make_reader(engine)
        with reader.snapshot() as snapshot:
            is_new = snapshot.head.version == 0
        if not feed_wiring.is_followed(url, source.url, demonstration.NAME):
            out.print("[bold]1.[/] Reading the Chinook music store's database of eleven tables with one Spark job.")
            name, unread = demonstration.NAME, ["demo.progress"]
            with feed_wiring.new_postgres_feed(url, source.url, name, unread, replace=True) as told:
                arguments = ["--name", name, *([] if is_new else ["--replace"]), *told]
                run_bootstrap(url, settings, source.url, arguments)
        else:
            out.print("[bold]1.[/] The database was read in an earlier run; the state goes on where it stands.")
        demonstration.show_declared(reader, out)
        with reader.snapshot(with_values=True) as snapshot:
            demonstration.show_suggested(snapshot, out)
        feed = feed_wiring.feed_address(source.url, demonstration.NAME)
        registry = CollectorRegistry()
        observer = ConsumerObserver(registry, lag_unit=feed_wiring.lag_unit(feed))
        consumer = feed_wiring.make_consumer(url, feed, settings, observer)
        out.print("\n[bold]2.[/] Following the database, without a broker, while the store sells music.")

        def applied() -> int | None:
            if observer.following_since is None:
                return None
            return consumer.totals.inserted + consumer.totals.updated + consumer.totals.deleted

        with running_consumer(consumer) as failed:
            demonstration.play(source, applied, reader, out, failed)
            if once:
                out.print("\nThe round is over. `subsetd demo` without --once also serves the answers.")
                return
            with (
                tracking_keys(url, settings) as tracked,
                searching_joinable(url, engine, settings) as joinable_searches,
            ):
                retry = partial(feed_wiring.retry_dead_letter, url, settings)
                app = serving_wiring.make_service(
                    engine, settings, tracked, joinable_searches, retry, registry, observer
                )
                serve_until(
                    app,
                    settings.host,
                    settings.port,
                    failed,
                    lambda port: demonstration.show_next(settings.host, port, out),
                )
