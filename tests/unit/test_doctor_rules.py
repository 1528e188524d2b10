"""What the doctor says of facts about a machine, a database and what runs: no finding without the way out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.usecases.doctor import (
    CorpusFacts,
    DatabaseFacts,
    DiskFacts,
    FeedFacts,
    Gathered,
    OperationFacts,
    TableRowsFacts,
    diagnose,
)
from service.usecases.preflight_facts import Finding, Level

NOW = datetime(2026, 11, 22, tzinfo=UTC)
DATABASE = DatabaseFacts("database 'x' at h:1", 18, "0012", "0012", True, False, 0.1, True, (5, 50), 10, None)
OPERATION = OperationFacts(NOW, 7, NOW, "subsetd consumer", None, None, 0, (), (NOW, 0), 100, ())
WELL = Gathered((3, 11), None, [DiskFacts("x", "/x", 100 << 30, 50 << 30)], DATABASE, OPERATION)


def wrong(gathered: Gathered) -> list[Finding]:
    return [finding for finding in diagnose(gathered) if finding.level is not Level.OK]


def test_nothing_is_said_against_what_is_well() -> None:
    assert wrong(WELL) == []
    assert len(diagnose(WELL)) >= 5


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"python": (3, 14)}, "warn", "3.11 to 3.13"),
        ({"java": "no Java 17 or 21"}, "warn", "install a Java"),
        ({"disks": [DiskFacts("x", "/x", 100 << 30, 1 << 30)]}, "fail", "make room"),
        ({"disks": [DiskFacts("x", "/x", 100 << 30, 9 << 30)]}, "warn", "make room"),
        ({"settings": {"SUBSETD_A": "is B"}}, "warn", "docs/settings.md"),
    ],
)
def test_of_a_machine(changed: dict[str, object], level: str, way_out: str) -> None:
    (finding,) = wrong(replace(WELL, **changed))  # type: ignore[arg-type]
    assert (finding.level, way_out in finding.way_out) == (level, True)


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"major": 14}, "fail", "use one of these"),
        ({"major": 19}, "warn", "use one of these"),
        ({"is_read_only": True}, "fail", "primary"),
        ({"skew_seconds": -60.0}, "warn", "NTP"),
        ({"off": ["fsync"]}, "warn", "ALTER SYSTEM SET fsync = on"),
        ({"connections": (49, 50)}, "warn", "max_connections and restart the server; an embedded one"),
        ({"oldest_transaction": (17, "psql", 7200.0)}, "warn", "pg_terminate_backend(17)"),
        ({"xid_age": 1_500_000_000}, "fail", "VACUUM (FREEZE)"),
        ({"has_autovacuum": False}, "warn", "ALTER SYSTEM SET autovacuum = on"),
        ({"tables": [TableRowsFacts("gen_rec", 1000, 60_000, True)]}, "warn", "VACUUM (VERBOSE) gen_rec"),
        ({"tables": [TableRowsFacts("uind", 1, 0, False)]}, "warn", "ALTER TABLE uind RESET (autovacuum_enabled)"),
        ({"revision": "0011"}, "fail", "subsetd backup FILE, then subsetd run"),
        ({"revision": "9999", "is_known_revision": False}, "fail", "a newer one"),
    ],
)
def test_of_a_database(changed: dict[str, object], level: str, way_out: str) -> None:
    (finding,) = wrong(replace(WELL, database=replace(DATABASE, **changed)))  # type: ignore[arg-type]
    assert (finding.level, way_out in finding.way_out) == (level, True)


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"left_of_bootstraps": 3}, "warn", "run it again"),
        ({"shards_away": ["server 'east' (shard 1): Cannot reach it"]}, "fail", "bring it back"),
        ({"faulty_sketches": ["s.t.c: torn"]}, "warn", "--replace"),
        ({"audit": (NOW, 2)}, "fail", "subsetd verify"),
        ({"audit": (NOW - timedelta(days=90), 0)}, "warn", "subsetd audit"),
        ({"history_rows": 50_000_000}, "warn", "SUBSETD_HISTORY_DAYS"),
        ({"outgoing": [("kafka://b/t", 3, False)]}, "warn", "DELETE FROM outgoing WHERE sink = 'kafka://b/t'"),
        ({"keys": [("me", NOW + timedelta(days=3))]}, "warn", "make another one"),
        ({"corpora": [CorpusFacts("c", "failed", "no Java", None, None)]}, "warn", "subsetd corpus refresh c --wait"),
        (
            {"corpora": [CorpusFacts("c", "landed", None, None, NOW - timedelta(hours=2))]},
            "warn",
            "start subsetd serve",
        ),
        ({"corpora": [CorpusFacts("c", "running", None, NOW - timedelta(hours=2), None)]}, "warn", "corpus cancel c"),
    ],
)
def test_of_what_runs(changed: dict[str, object], level: str, way_out: str) -> None:
    (finding,) = wrong(replace(WELL, operation=replace(OPERATION, **changed)))  # type: ignore[arg-type]
    assert (finding.level, way_out in finding.way_out) == (level, True)


def test_of_a_consumer_that_stands_still() -> None:
    """It holds the writer's lock, as one that works does: what waits, and since when, tells them apart."""
    feed, since = FeedFacts("f", False, 5, has_records=True), NOW - timedelta(minutes=2)
    idle, blocked = replace(OPERATION, committed_at=since), replace(OPERATION, blocked=(17, "psql", 3600.0))
    assert wrong(replace(WELL, feeds=[feed])) == []
    assert wrong(replace(WELL, operation=idle, feeds=[replace(feed, has_records=False)])) == [], "markers, or a log"
    (finding,) = wrong(replace(WELL, operation=idle, feeds=[feed]))
    assert finding.found == "5 records wait, and subsetd consumer has committed nothing since 2026-11-21 23:58"
    (finding,) = wrong(replace(WELL, operation=blocked, feeds=[replace(feed, has_records=False)]))
    assert finding.found == "its consumer waits for 60 min for a lock of psql; 5 records wait"
    assert "pg_terminate_backend(17)" in finding.way_out
