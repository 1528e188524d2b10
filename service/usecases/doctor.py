"""Own what is wrong with a state and with what runs it: pure rules over facts that others gather.

What is wrong with a feed is told by preflight's rules; here is what only shows once it is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from service.core.model import slot_feed, told_anew
from service.usecases.preflight_facts import Finding, Level

PYTHONS = ((3, 11), (3, 13))
POSTGRES = (15, 18)
"""Oldest and newest that are tested (docs/versions.md)."""

GB = 1 << 30
FREE_WARN, FREE_FAIL = 0.10, 2 * GB
"""Least share of a disk, and least bytes, that should be free."""

SKEW_SECONDS = 5.0
STUCK_SECONDS = 60.0
OLD_TRANSACTION_SECONDS = 3600.0
DEAD_ROWS = 50_000
DEAD_SHARE = 0.5
XID_AGE = 1_000_000_000
HISTORY_ROWS = 20_000_000
OVERDUE = timedelta(hours=1)
EXPIRY = timedelta(days=14)
AUDIT_DAYS = 30


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """Describe the disk of a folder, in bytes."""

    about: str
    path: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class TableRowsFacts:
    """Describe a table by Postgres' own statistics."""

    name: str
    live: int
    dead: int
    has_autovacuum: bool


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Describe the server that holds the state; `off` are settings that lose data.

    `skew_seconds` is its clock less ours.
    """

    place: str
    major: int
    revision: str | None
    expected: str
    is_known_revision: bool
    is_read_only: bool
    skew_seconds: float
    has_autovacuum: bool
    connections: tuple[int, int]
    """(used, most)"""
    xid_age: int
    oldest_transaction: tuple[int, str, float] | None
    """(process, application, seconds)"""
    off: Sequence[str] = ()
    tables: Sequence[TableRowsFacts] = ()


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """Describe a corpus by its newest refresh; `due_at` is when the next one should have begun."""

    name: str
    state: str | None
    fault: str | None
    progressed_at: datetime | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class FeedFacts:
    """Describe a feed: `waiting` is how much it is behind its end (None: not known), `held_bytes` WAL at its source."""

    name: str
    is_paused: bool
    waiting: int | None = None
    unit: str = "records"
    lost: str | None = None
    """What is not there any more that the state has not read."""
    has_records: bool = False
    """Whether something of what waits is surely to be applied: all of it may be markers, or the log of others."""
    is_followed: bool = True
    fault: str | None = None
    """What its consumer said last of what keeps it from following."""
    gone: Sequence[str] = ()
    """Topics that were followed and are not there any more: one that was found by its prefix stops nothing."""


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """Describe what runs on the state, and what was left over; `outgoing` are (sink, version, is used)."""

    now: datetime
    version: int
    committed_at: datetime | None
    writer: str | None
    blocked: tuple[int, str, float] | None
    """(process, application, seconds) of whoever holds the lock that the consumer waits for."""
    bootstrap: str | None
    left_of_bootstraps: int
    faulty_sketches: Sequence[str]
    audit: tuple[datetime, int] | None
    """(when, differences)"""
    history_rows: int
    outgoing: Sequence[tuple[str, int, bool]]
    corpora: Sequence[CorpusFacts] = ()
    keys: Sequence[tuple[str, datetime]] = ()
    """Keys of the service that expire, with when."""
    undelivered: Sequence[tuple[str, int, str | None]] = ()
    """Watches whose alerts failed in the last day, or wait for an hour: how many, and why the newest did."""
    shards_away: Sequence[str] = ()
    """Why shards on servers of their own cannot be asked, each server once."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Hold what was looked at; None could not be."""

    python: tuple[int, int]
    java: str | None
    """Why no job can run; None where one can."""
    disks: Sequence[DiskFacts] = ()
    database: DatabaseFacts | None = None
    operation: OperationFacts | None = None
    feeds: Sequence[FeedFacts] = ()
    keeps_history: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """What contradicts what among the settings, by their name."""


def diagnose(gathered: Gathered) -> list[Finding]:
    """Find what is wrong, and what is well, from the machine up to the feeds."""
    found = [*_machine(gathered)]
    if gathered.database is not None:
        found += _database(gathered.database)
    if gathered.operation is not None:
        found += _operation(gathered.operation, gathered)
        for feed in gathered.feeds:
            found += _feed(feed, gathered.operation)
    return found


def _machine(gathered: Gathered) -> Iterator[Finding]:
    version = ".".join(map(str, gathered.python))
    oldest, newest = PYTHONS
    if oldest <= gathered.python <= newest:
        yield Finding(Level.OK, "Python", version)
    else:
        yield Finding(Level.WARN, "Python", f"{version} is not tested", "use Python 3.11 to 3.13")
    if gathered.java is None:
        yield Finding(Level.OK, "Java", "one that Spark runs on was found")
    else:
        yield Finding(
            Level.WARN,
            "Java",
            f"no bootstrap, refresh or audit can run: {gathered.java}",
            "install a Java 17 or 21 (Debian: openjdk-17-jre-headless), or set JAVA_HOME",
        )
    for name, told in gathered.settings.items():
        yield Finding(Level.WARN, name, told, "correct one of the two, docs/settings.md")
    for disk in gathered.disks:
        yield _disk(disk)


def _disk(disk: DiskFacts) -> Finding:
    about, free = f"disk of {disk.about}", f"{disk.free / GB:.1f} of {disk.total / GB:.1f} GB are free at {disk.path}"
    way_out = "make room, or move it to a larger disk; SUBSETD_HISTORY_DAYS bounds what the state keeps"
    if disk.free < FREE_FAIL:
        return Finding(Level.FAIL, about, free, way_out)
    if disk.free < FREE_WARN * disk.total:
        return Finding(Level.WARN, about, free, way_out)
    return Finding(Level.OK, about, free)


def _database(one: DatabaseFacts) -> Iterator[Finding]:
    about = one.place
    oldest, newest = POSTGRES
    if not oldest <= one.major <= newest:
        level = Level.FAIL if one.major < oldest else Level.WARN
        yield Finding(level, about, f"is Postgres {one.major}; {oldest} to {newest} are supported", "use one of these")
    yield _revision(one)
    if one.is_read_only:
        yield Finding(
            Level.FAIL,
            about,
            "is read-only: nothing can be applied",
            "give the primary's address, or ALTER DATABASE ... RESET default_transaction_read_only",
        )
    if (told := skew_told(one.skew_seconds)) is not None:
        yield Finding(Level.WARN, about, told, "set both clocks by NTP")
    if one.off:
        yield Finding(
            Level.WARN,
            about,
            f"{', '.join(one.off)} off: a crash of the server loses or damages what was committed",
            "; ".join(f"ALTER SYSTEM SET {name} = on" for name in one.off),
        )
    used, most = one.connections
    if used > 0.9 * most:
        yield Finding(
            Level.WARN,
            about,
            f"{used} of {most} connections are in use",
            "end what is not needed, or raise max_connections and restart the server; an embedded one has no more: "
            "move the state to a server of your own, by subsetd backup and restore",
        )
    if one.oldest_transaction is not None and one.oldest_transaction[2] > OLD_TRANSACTION_SECONDS:
        process, application, seconds = one.oldest_transaction
        yield Finding(
            Level.WARN,
            about,
            f"a transaction of {application or 'a client without a name'} is open for {seconds / 3600:.1f} h: nothing "
            "that was deleted since is vacuumed",
            f"end that client, or SELECT pg_terminate_backend({process})",
        )
    if one.xid_age > XID_AGE:
        yield Finding(
            Level.FAIL, about, f"{one.xid_age:,} transactions were not frozen", "VACUUM (FREEZE), before 2,000,000,000"
        )
    if not one.has_autovacuum:
        yield Finding(
            Level.WARN, about, "autovacuum is off: tables grow without end", "ALTER SYSTEM SET autovacuum = on"
        )
    for table in one.tables:
        if not table.has_autovacuum:
            yield Finding(
                Level.WARN,
                f"table {table.name}",
                "is never vacuumed",
                f"ALTER TABLE {table.name} RESET (autovacuum_enabled)",
            )
        elif table.dead > max(DEAD_ROWS, DEAD_SHARE * table.live):
            yield Finding(
                Level.WARN,
                f"table {table.name}",
                f"has {table.dead:,} dead rows beside {table.live:,}: vacuum does not keep up",
                f"VACUUM (VERBOSE) {table.name}, and see what it says is in its way",
            )


def skew_told(seconds: float) -> str | None:
    """Say that a database's clock is so many seconds ahead of ours; nothing of so few that it makes no difference."""
    if abs(seconds) <= SKEW_SECONDS:
        return None
    return f"its clock is {seconds:+.0f} s from this machine's: lags, schedules and expiries are off by that"


def _revision(one: DatabaseFacts) -> Finding:
    if one.revision == one.expected:
        return Finding(Level.OK, one.place, f"Postgres {one.major}, schema revision {one.revision}")
    found = f"is at schema revision {one.revision or 'none'}, this release works with {one.expected}"
    if one.revision is None:
        way_out = "subsetd bootstrap, follow or run makes it"
    elif one.is_known_revision:
        way_out = "subsetd backup FILE, then subsetd run, which migrates it, with a feed or without"
    else:
        way_out = "use the release that made it, or a newer one"
    return Finding(Level.FAIL, one.place, found, way_out)


def _operation(one: OperationFacts, gathered: Gathered) -> Iterator[Finding]:
    if one.bootstrap is not None:
        yield Finding(Level.OK, "bootstrap", f"one is at work ({one.bootstrap})")
    elif one.left_of_bootstraps:
        yield Finding(
            Level.WARN,
            "bootstrap",
            f"one died and left {one.left_of_bootstraps} tables, which nobody reads",
            "run it again: it drops them first",
        )
    for told in one.shards_away:
        way_out = (
            "bring it back; until then the state stays at its version, and what is asked of values is answered with 503"
        )
        yield Finding(Level.FAIL, "shards", told, way_out)
    for told in one.faulty_sketches:
        yield Finding(Level.WARN, "sketches", told, "bootstrap the source again with --replace")
    if one.audit is None:
        yield Finding(Level.OK, "audit", "there was none yet (subsetd audit, SUBSETD_AUDIT_SCHEDULE)")
    else:
        at, differences = one.audit
        if differences:
            yield Finding(
                Level.FAIL,
                "audit",
                f"the last one, of {at:%Y-%m-%d %H:%M}, found {differences} INDs served wrongly or not at all",
                "subsetd verify says where; bootstrap the sources again with --replace",
            )
        elif one.now - at > timedelta(days=AUDIT_DAYS):
            yield Finding(
                Level.WARN, "audit", f"the last one was on {at:%Y-%m-%d}", "subsetd audit, or SUBSETD_AUDIT_SCHEDULE"
            )
        else:
            yield Finding(Level.OK, "audit", f"the last one, of {at:%Y-%m-%d %H:%M}, found nothing wrong")
    if one.history_rows > HISTORY_ROWS and not gathered.keeps_history:
        yield Finding(
            Level.WARN,
            "history",
            f"{one.history_rows:,} versions are kept, some 375 bytes each",
            "SUBSETD_HISTORY_DAYS=90, or SUBSETD_BATCH_WAIT_MS=1000",
        )
    for sink, version, is_used in one.outgoing:
        if not is_used and version < one.version:
            yield Finding(
                Level.WARN,
                "history",
                f"all since version {version} is kept for {sink}, which no setting names here",
                f"set SUBSETD_TRANSITIONS_TOPIC, or DELETE FROM outgoing WHERE sink = '{sink}'",
            )
    for corpus in one.corpora:
        yield from _corpus(corpus, one.now)
    for name, count, fault in one.undelivered:
        yield Finding(
            Level.WARN,
            f"watch {name}",
            f"{count} alerts did not go out: {fault or 'nobody sends them'}",
            "subsetd watch history; subsetd watch test ID tries its channel; subsetd serve or run sends what waits",
        )
    for name, at in one.keys:
        if at < one.now + EXPIRY:
            said = "has expired" if at < one.now else f"expires on {at:%Y-%m-%d}"
            yield Finding(Level.WARN, f"key {name}", said, "make another one for who uses it")


def _corpus(corpus: CorpusFacts, now: datetime) -> Iterator[Finding]:
    about = f"corpus {corpus.name}"
    if corpus.state == "failed":
        yield Finding(
            Level.WARN,
            about,
            f"its last refresh failed: {corpus.fault}",
            f"subsetd corpus refresh {corpus.name} --wait",
        )
    elif corpus.state == "running" and corpus.progressed_at is not None and now - corpus.progressed_at > OVERDUE:
        yield Finding(
            Level.WARN,
            about,
            f"its refresh made no progress since {corpus.progressed_at:%Y-%m-%d %H:%M}",
            f"subsetd corpus cancel {corpus.name}; a service that is started again begins it anew",
        )
    elif corpus.due_at is not None and now - corpus.due_at > OVERDUE:
        yield Finding(
            Level.WARN,
            about,
            f"a refresh was due at {corpus.due_at:%Y-%m-%d %H:%M} and did not begin",
            "start subsetd serve or subsetd run: they do what is scheduled",
        )
    else:
        yield Finding(Level.OK, about, f"its last refresh: {corpus.state or 'none yet'}")


def _feed(feed: FeedFacts, operation: OperationFacts) -> Iterator[Finding]:
    about = f"feed {feed.name}"
    waits = "" if feed.waiting is None else f"{feed.waiting:,} {feed.unit} wait"
    if feed.fault is not None:
        yield Finding(
            Level.WARN, about, f"its consumer said last: {feed.fault}", "mend that; docs/operation.md has the ways out"
        )
    for topic in feed.gone:
        told = "is not there any more: what was not read of it is lost"
        if feed.is_followed:
            yield Finding(Level.OK, f"topic {topic}", f"{told}; its feed goes on without it")
        else:
            way_out = "a feed with ?prefix= goes on without it; leave it out of --feed where that names it"
            yield Finding(Level.WARN, f"topic {topic}", told, way_out)
    if feed.lost is not None:
        is_slots = feed.name.startswith(slot_feed(""))
        anew = "read the source anew by subsetd follow ... --replace" if is_slots else told_anew(feed.name)
        forget = f"if nobody is to follow it any more, subsetd unfollow {feed.name} --gone is enough"
        yield Finding(Level.FAIL, about, feed.lost, f"{anew}; {forget}")
    elif feed.is_paused:
        yield Finding(Level.WARN, about, f"is paused; {waits or 'nothing is applied'}", "subsetd resume")
    elif not feed.is_followed and feed.waiting != 0:
        yield Finding(
            Level.WARN,
            about,
            f"nobody follows it; {waits or 'what waits is not known'}",
            "start subsetd run or consume",
        )
    elif operation.blocked is not None and operation.blocked[2] > STUCK_SECONDS:
        process, application, seconds = operation.blocked
        yield Finding(
            Level.WARN,
            about,
            f"its consumer waits for {seconds / 60:.0f} min for a lock of {application or 'a client without a name'}; "
            f"{waits or 'what waits is not known'}",
            f"end that client, or SELECT pg_terminate_backend({process})",
        )
    elif feed.has_records and stands_still(operation):
        yield Finding(
            Level.WARN,
            about,
            f"{waits}, and {operation.writer} has committed nothing since {operation.committed_at:%Y-%m-%d %H:%M}",
            "its log says what it waits for; start it again",
        )
    elif waits:
        yield Finding(Level.OK, about, waits)


def stands_still(one: OperationFacts) -> bool:
    """Tell whether nothing was committed for so long that a feed with records should have moved."""
    return one.committed_at is not None and (one.now - one.committed_at).total_seconds() > STUCK_SECONDS
