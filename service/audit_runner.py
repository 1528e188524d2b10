"""Own the audits that a service runs by the schedule of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from service import wiring
from service.config import ConfigError, Settings
from service.core.corpus_choices import Algorithm
from service.core.errors import SourceError, StateError
from service.job_process import JobProcess, spark_command
from service.observe import tell_audit
from service.scheduler import next_time, running_every
from service.store.audits import AuditTurn
from service.usecases.audit_schedule import AuditSchedule

if TYPE_CHECKING:
    from service.api.problems import Check


@contextmanager
def auditing(url: str, settings: Settings) -> Iterator[Callable[[], Check | None]]:
    """Audit the tracked tables when the schedule of the settings says so, if there is one, beside the service.

    Gives what tells how that goes, None where there is no schedule.
    """
    if settings.audit_schedule is None:
        yield lambda: None
        return
    try:
        next_time(settings.audit_schedule, _now())
    except SourceError as error:
        raise ConfigError(f"SUBSETD_AUDIT_SCHEDULE: {error}") from error
    options = audit_options(settings.audit_algorithm)
    with wiring.reading_engine(url) as engine:
        schedule = AuditSchedule(
            settings.audit_schedule,
            partial(_newest_audit, engine),
            lambda: JobProcess(spark_command("spark_jobs.audit", settings.spark_master, options), [url]),
            next_time,
            _now,
            tell_audit,
            AuditTurn(engine),
        )
        try:
            with running_every({"audits": (5, schedule.look)}):
                yield partial(_check, schedule)
        finally:
            schedule.close()


def audit_options(algorithm: Algorithm | None) -> list[str]:
    """Give the options of an audit's job; without an algorithm it takes the one that costs less."""
    return [f"--algorithm={algorithm}"] if algorithm else []


def _newest_audit(engine: Engine) -> datetime | None:
    with wiring.make_reader(engine).snapshot() as snapshot:
        found = snapshot.audits(None, 1)
    return found[0].started_at if found else None


def _check(schedule: AuditSchedule) -> Check:
    """Tell how scheduled audits go, for the overview; what one found is told of the newest audit."""
    from service.api.problems import Check

    try:
        fault = schedule.fault()
    except StateError as error:
        fault = str(error)
    return Check(name="scheduled audits", ok=fault is None, detail=fault or "none has failed, none is overdue")


def _now() -> datetime:
    return datetime.now(UTC)
