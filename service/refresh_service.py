"""Own what runs refreshes of corpora, each as a Spark job: beside a service, and for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from service import corpus_wiring, wiring
from service.config import Settings
from service.job_process import JobProcess, spark_command
from service.scheduler import next_time, running_every
from service.usecases.corpora import Refresh
from service.usecases.refresh_corpora import Observer, RefreshRunner, Unobserved

CLEANING_SECONDS = 3600.0
"""How often a service clears what refreshes that died, removed corpora and past generations have left."""


@contextmanager
def refresh_runner(
    url: str, settings: Settings, observer: Observer | None = None, *, cancel: bool = False
) -> Iterator[RefreshRunner]:
    """Give what runs refreshes; those that run at the end are ended, and wait or are cancelled."""

    def start(refresh: Refresh) -> JobProcess:
        told = [f"--refresh-id={refresh.refresh_id}", f"--data-dir={settings.data_dir}"]
        return JobProcess(spark_command("spark_jobs.many_refresh", settings.spark_master, told), [url])

    with wiring.reading_engine(url) as engine:
        runner = RefreshRunner(
            corpus_wiring.make_corpus_register(engine, settings).corpora,
            start,
            next_time,
            partial(datetime.now, UTC),
            observer or Unobserved(),
            at_once=settings.refreshes_at_once,
        )
        try:
            yield runner
        finally:
            runner.close(cancel=cancel)


@contextmanager
def refreshing_corpora(url: str, settings: Settings) -> Iterator[None]:
    """Run refreshes that are due or asked for, and clear what is left over of corpora, beside the service."""
    from service.observe import RefreshObserver, tell_cleaned

    with wiring.reading_engine(url) as engine, refresh_runner(url, settings, RefreshObserver()) as runner:
        corpora = corpus_wiring.make_corpus_register(engine, settings).corpora
        tasks = {
            "refreshes": (1.0, runner.look),
            "refresh schedules": (10.0, runner.request_due),
            "leftovers of corpora": (CLEANING_SECONDS, lambda: tell_cleaned(corpora.clean())),
        }
        with running_every(tasks):
            yield
