"""Own what goes on in a soak beside the changes: changes of columns, audits, refreshes of a corpus, files as feeds."""

from __future__ import annotations

import csv
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg2

from service.store import migrate
from tests import states
from tests.endurance.soak.checks import differences, waited
from tests.endurance.soak.judge import Failed, Seen
from tests.endurance.soak.lanes import Followed, Lane
from tests.endurance.soak.room import Commands, Crashing, kill_session
from tests.endurance.soak.writers import WORDS
from tests.following import COLUMNS, begun, random_changes
from tests.postgres import administer

ALTERED = ("customers", "products", "visits")
"""Tables with one partition: what comes by several may show old columns behind new ones."""

MOST_EXTRAS = 3
TRIES = 4
"""Of what a kill of its database cuts off."""

AUDITED = "select count(*), coalesce(sum(not_served + not_holding), 0) from audit"


class Schema:
    """Change columns of a lane's tables: added, renamed (announced), dropped."""

    def __init__(self, seed: int, commands: Commands) -> None:
        self.did: Counter[str] = Counter()
        self.faults: list[str] = []
        self._rng = random.Random(f"schema {seed}")
        self._commands = commands
        self._numbers: Counter[str] = Counter()

    def change(self, lane: Lane) -> None:
        """Make one change, by the lane's writer between two transactions; followed by a change that shows it."""
        table = lane.writer.tables[self._rng.choice(ALTERED)]
        extras = [column for column in table.cells if column.startswith("extra")]
        what = self._rng.choice(["add", "add", "rename", "drop"]) if extras else "add"
        if what == "add" and len(extras) >= MOST_EXTRAS:
            what = "drop"
        self._numbers[lane.name] += 1
        new = f"extra_{self._numbers[lane.name]}"
        old = self._rng.choice(extras) if extras else ""
        if what == "rename" and not self._announced(lane, f"s.{table.name}.{old}", f"s.{table.name}.{new}"):
            return

        def alter() -> None:
            statements = {
                "add": f"alter table s.{table.name} add column {new} text",
                "rename": f"alter table s.{table.name} rename column {old} to {new}",
                "drop": f"alter table s.{table.name} drop column {old}",
            }
            # The source may be killed in it; an announced name must come.
            while not lane.writer.alter(statements[what]):
                if what != "rename":
                    return
            if what == "add":
                table.cells[new] = ("text", lambda rng: rng.choice(WORDS))
            else:
                cells = table.cells.pop(old)
                if what == "rename":
                    table.cells[new] = cells
                else:
                    lane.writer.dropped.append((table.name, old))
            lane.writer.show(table)
            self.did[f"columns: {what}"] += 1

        lane.writer.between(alter)
        self._commands.log("columns", lane=lane.name, table=table.name, what=what, old=old, new=new)

    def _announced(self, lane: Lane, old: str, new: str) -> bool:
        for one in lane.followers:
            code, said = self._commands.run(one.url, "attribute", "rename", old, new)
            if code:
                self.faults.append(f"{one.name}: attribute rename {old} {new}: {said[-1000:]}")
                return False
        return True


def audit(commands: Commands, one: Followed, seen: Seen, now: Callable[[], float]) -> None:
    """Audit a state under load; see what differs, and what failed. An audit that a kill cuts off is run again."""
    said = ""
    for _ in range(TRIES):
        with one.audited:
            began = now()
            code, said = commands.run(one.url, "audit", "--filters=none")
        seen.did["audits" if code == 0 else "audits cut off"] += 1
        if code == 0:
            seen.audited.append(began)
            break
        seen.failed.append(Failed(f"{one.name}: an audit failed: {said[-1000:]}", began, now()))
        commands.log("audit failed", of=one.name, said=said[-1000:])
        waited(lambda: _answers(one.url), 60)
    else:
        seen.differences.append(f"{one.name}: no audit came to its end: {said[-1000:]}")
    found = []

    def is_read() -> bool:  # a kill of the state's server may come between any two statements
        with suppress(psycopg2.OperationalError):
            found[:] = states.query(one.url, AUDITED)
        return bool(found)

    if not waited(is_read, 60):
        seen.differences.append(f"{one.name}: its audits could not be read")
    elif differing := found[0][1]:
        seen.differences.append(f"{one.name}: an audit found {differing} differences: {said[-1000:]}")


def kill_audit(
    commands: Commands, one: Followed, after: float, java: bool, now: Callable[[], float]
) -> tuple[float | None, list[str]]:
    """Begin an audit, and end it, or its Java, in its work."""
    with one.audited:
        return commands.killed_in_work(one.url, "audit", after=after, java=java, now=now)


def _answers(url: str) -> bool:
    with suppress(psycopg2.OperationalError):
        return bool(states.query(url, "select 1"))
    return False


class Lake:
    """Own a corpus of small CSV files that change, in a state of its own, and hold its INDs to sets of Python."""

    TABLES, COLUMNS, ROWS = 24, 3, 40

    def __init__(self, seed: int, commands: Commands, server: Crashing, folder: Path) -> None:
        self.lock = threading.Lock()
        """Held by whoever refreshes: a kill is of a refresh of its own."""
        self.url = server.url_of("lake")
        self._rng = random.Random(f"lake {seed}")
        self._commands, self._folder = commands, folder
        administer(server, "create database lake template template0")
        migrate.upgrade(self.url)
        folder.mkdir()
        for number in range(self.TABLES):
            self._write(number)
        code, said = commands.run(self.url, "corpus", "add", "lake", str(folder))
        assert code == 0, said

    def refresh(self, seen: Seen, now: Callable[[], float]) -> None:
        """Change some files, refresh, and compare; a refresh that a kill of the database cuts off is run again."""
        with self.lock:
            for number in self._rng.sample(range(self.TABLES), 3):
                self._write(number)
            said = ""
            for _ in range(TRIES):
                began = now()
                code, said = self._commands.run(self.url, "corpus", "refresh", "lake", "--wait")
                if code == 0:
                    seen.did["refreshes"] += 1
                    seen.differences += self._compared()
                    return
                seen.failed.append(Failed(f"lake: a refresh failed: {said[-1000:]}", began, now()))
                waited(lambda: _answers(self.url), 60)
            seen.differences.append(f"lake: no refresh came to its end: {said[-1000:]}")

    def kill(self, after: float, now: Callable[[], float]) -> tuple[float | None, list[str]]:
        """Begin a refresh, and end it in its work: so small a corpus has no Java."""
        with self.lock:
            refresh = ("corpus", "refresh", "lake", "--wait", "--full")
            return self._commands.killed_in_work(self.url, *refresh, after=after, java=False, now=now)

    def _write(self, number: int) -> None:
        """Write a table whose columns are parts of few ranges, so that many hold others."""
        with (self._folder / f"{number:02}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([f"c{column}" for column in range(self.COLUMNS)])
            bounds = [self._rng.choice([5, 10, 20, 40]) for _ in range(self.COLUMNS)]
            for _ in range(self.ROWS):
                rows.writerow([f"v{self._rng.randrange(bound)}" for bound in bounds])

    def _compared(self) -> list[str]:
        told = self._folder.parent / "lake-inds.csv"
        told.unlink(missing_ok=True)
        for _ in range(TRIES):
            code, said = self._commands.run(self.url, "corpus", "export", "lake", str(told))
            if code == 0:
                break
            waited(lambda: _answers(self.url), 60)
        else:
            return [f"lake: the INDs could not be exported: {said[-1000:]}"]
        with told.open(newline="") as file:
            found = {
                (
                    one["dependent_table"],
                    int(one["dependent_position"]),
                    one["referenced_table"],
                    int(one["referenced_position"]),
                )
                for one in csv.DictReader(file)
            }
        columns = {}
        for path in sorted(self._folder.glob("*.csv")):
            with path.open(newline="") as file:
                rows = list(csv.reader(file))[1:]
            for column in range(self.COLUMNS):
                columns[path.name, column] = {row[column] for row in rows}
        wanted = {(*a, *b) for a, left in columns.items() for b, right in columns.items() if a != b and left <= right}
        if found != wanted:
            return [f"lake: {len(found - wanted)} INDs do not hold, {len(wanted - found)} are missing"]
        return []


CHANGES = 1500
"""Of each file that is followed."""


class Files:
    """Let short-lived consumers follow files, killed in their work, and hold what they leave to plain Python."""

    def __init__(self, seed: int, commands: Commands, server: Crashing, folder: Path) -> None:
        self._rng = random.Random(f"files {seed}")
        self._commands, self._server, self._folder = commands, server, folder
        self._number = 0

    def follow(self, now: Callable[[], float]) -> tuple[float | None, list[str]]:
        """Make a state and a file, and follow it to its end in spite of a kill; give when, and what differs."""
        self._number += 1
        database, folder = f"file_{self._number}", self._folder / f"file_{self._number}"
        folder.mkdir()
        administer(self._server, f"create database {database} template template0")
        url = self._server.url_of(database)
        try:
            migrate.upgrade(url)
            stream = begun(
                url, states.Tables(COLUMNS).add("orders", ["1", "1", None]).add("customers", ["1", "Ada"]), folder
            )
            random_changes(stream, self._rng, CHANGES)
            process = self._commands.start(
                "consume-file", url, "consume", "--feed", f"file:{stream.path}", batch_records=50
            )
            waited(lambda: records(url) > CHANGES // 3 or process.poll() is not None, 60)
            if process.poll() is not None:
                return None, [f"file feed: its consumer ended by itself with {process.returncode}"]
            killed_at = now()
            kill_session(process)
            code, said = self._commands.run(url, "consume", "--feed", f"file:{stream.path}", "--until-end")
            told = (
                [f"it ended with {code}: {said[-1000:]}"] if code else differences(url, states.expected(stream.tables))
            )
            return killed_at, [f"file feed: {one}" for one in told]
        finally:
            administer(self._server, f"drop database {database} with (force)")
            shutil.rmtree(folder)


def records(url: str) -> int:
    """Count the records that a state has applied."""
    return int(states.query(url, "select coalesce(sum(records), 0) from state_version")[0][0])
