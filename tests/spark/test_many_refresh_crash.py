"""A refresh that is killed or asked to end leaves the generation before."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from pyspark.sql import SparkSession

from service.usecases.corpora import RefreshState
from spark_jobs.many_refresh import CRASH_POINTS
from tests import states
from tests.joinable import ask
from tests.refreshing import Lake, expected_inds, refreshing, write_tables
from tests.waiting import wait_for
from tests.whole import IS_WHOLE

ORPHANS = """
select count(*) from join_segment s
where not exists (select from join_index i where i.corpus_id = s.corpus_id and s.segment_id = any (i.segment_ids))
"""


@pytest.mark.parametrize(
    ("where", "algorithm"),
    [((), "rarest-first"), (("--on-spark",), "rarest-first"), ((), "signatures")],
    ids=["driver", "spark", "signatures"],
)
def test_a_refresh_killed_at_any_stage_leaves_the_generation_before(
    spark: SparkSession, database_url: str, tmp_path: Path, where: tuple[str, ...], algorithm: str
) -> None:
    """One test for all stages: each run finds what the one before it left, which is signed by other parameters."""
    is_joinable = not where and algorithm == "rarest-first"
    tables = {f"{n}.csv": [[f"v{k}" for k in range(n, n + 5)], ["x"] * 5] for n in range(10)}
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake", algorithm=algorithm, joinable=is_joinable)
    lake.refresh(spark)
    lake.change({"bits": 64})
    before = lake.inds()
    tables["4.csv"] = [["v1", "v2", "v3"]]
    write_tables(tmp_path / "lake", tables)
    refresh_id = lake.queue()
    stages = [stage for stage in CRASH_POINTS if is_joinable or stage != "joining"]
    for stage in stages if IS_WHOLE or not where else ("storing", "landing"):  # each on Spark starts it anew
        with refreshing(lake, "--fail-at", stage, *where, refresh_id=refresh_id) as process:
            _, told = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, f"{stage}: {told}"
        assert lake.inds() == before, f"killed at {stage}"
        if is_joinable:
            assert ask(database_url, lake.name, [("v1", "x")], 9).generation == 1, f"killed at {stage}"
        assert lake.corpora.refresh(refresh_id).state is RefreshState.RUNNING, "its runner sees that it has died"
    with refreshing(lake, *where, refresh_id=refresh_id) as process:
        said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert lake.report["spark"] is bool(where)
    if is_joinable:
        joins = ask(database_url, lake.name, [("v1",), ("v2",)], 9)
        assert (joins.generation, joins.tables[0].table) == (2, "0.csv")
        assert states.query(database_url, ORPHANS) == [(0,)]
    expected = expected_inds(
        {(path, n): set(cells) for path, columns in tables.items() for n, cells in enumerate(columns)}
    )
    assert lake.inds() == expected
    assert said.startswith(f"generation 2: {len(expected):,} inclusion dependencies, ")
    assert not lake.report["full"], "what the killed ones left of the index does no harm"
    (parts,) = (lake.data_dir / "corpora").iterdir()
    assert [path.name for path in parts.iterdir() if path.name not in ("parts", "owner")] == ["generation-2"]
    signed = algorithm == "signatures"
    described = json.loads((parts / "generation-2" / "manifest.json").read_text())["parts"]
    named = {name for part in described for name in (part[0], *(part[4] or [])[:1])}
    assert {path.stem for path in (parts / "parts").iterdir()} == named
    assert len(named) == len(described) * (1 + signed)
    assert lake.report["signatures"] == ({"kept": 0, "made": 19} if signed else None)


@pytest.mark.parametrize("how", ["signal", "cancel"])
def test_a_refresh_that_is_asked_to_end_ends(database_url: str, tmp_path: Path, how: str) -> None:
    """It is held up amid, so that it cannot have landed before it is asked."""
    write_tables(tmp_path / "lake", {f"{n}.csv": [["a"]] for n in range(3)})
    lake = Lake(database_url, tmp_path / "lake")
    refresh_id = lake.queue()
    with closing(psycopg2.connect(database_url)) as other, other.cursor() as cursor:
        cursor.execute("lock table corpus_load_task in share mode")
        with refreshing(lake, refresh_id=refresh_id) as process:
            wait_for(lambda: states.query(database_url, "select 1 from pg_locks where not granted"))
            if how == "cancel":
                lake.corpora.cancel(refresh_id)
            else:
                process.send_signal(signal.SIGTERM)
            other.rollback()
            _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "stopped: the generation before is served" in told
    assert "Traceback" not in told
    assert lake.corpora.named(lake.name).generation is None


def test_an_error_is_one_message_and_exit_code_1(database_url: str, tmp_path: Path) -> None:
    lake = Lake(database_url, tmp_path / "nowhere")
    with refreshing(lake) as process:
        said, told = process.communicate(timeout=120)
    assert (process.returncode, said) == (1, "")
    assert [line for line in told.splitlines() if line.startswith("error: ")] == [told.splitlines()[-1]]
    assert "nowhere" in told
    assert "Traceback" not in told
