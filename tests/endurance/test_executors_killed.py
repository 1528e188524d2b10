"""Executors are killed in every stage of every job, and the answer is that of one undisturbed process.

Long proofs alone (`make endurance ONLY=executors`); what a task does that Spark runs twice is shown by
tests/spark/test_late_tasks.py in each run. Following, which has no last stage, has a proof of its own:
tests/endurance/test_follow_killed.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.store.embedded import EmbeddedPostgres
from tests.endurance.anywhere import JOBS, done, run_on, undisturbed
from tests.endurance.spark_masters import Settings
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="many executors: make endurance ONLY=executors runs it")


@pytest.mark.parametrize("job", JOBS)
def test_executors_killed_in_every_stage_of_a_job_change_nothing(
    postgres_server: EmbeddedPostgres, tmp_path: Path, job: Any, tell: Callable[..., None]
) -> None:
    """In each stage that Spark's log has: one as its first task begins, one as a task has done all and not told."""
    settings = Settings(tmp_path / "settings")
    expected = undisturbed(job, postgres_server, tmp_path / "here")
    environment = settings.write(settings.event_log(), "begin+end")
    run = run_on("local-cluster[3,1,1024]", environment)
    assert done(job, postgres_server, tmp_path / "there", run) == expected
    kills = {path.name for path in settings.kills().iterdir()}
    stages = settings.python_stages()
    assert kills == {f"{stage}-{point}" for stage in stages for point in ("begin", "end")}
    assert len(stages) >= 2
    tell(stages=len(stages), executors_killed=len(kills))
