"""Own the comparisons of a soak: what states, clients and restored backups hold, against SQL over the sources."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tests import states
from tests.endurance.following import broken_invariants
from tests.endurance.soak.clients import StreamClient, Transition, unlike
from tests.endurance.soak.lanes import Followed, Lane
from tests.endurance.soak.room import Commands, Crashing
from tests.endurance.workload import tables_of
from tests.postgres import administer

PATIENCE = 240.0
SHOWN = 1500

LOGGED = "select version, dependent_id, referenced_id, kind from ind_transition where version > {} order by 1, 2, 3"
HOLDING = "select dependent_id, referenced_id from uind where until_version is null"
DROPPED = "select concat_ws('.', schema_name, table_name, column_name) from attribute where dropped_version is not null"


def waited(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait for a condition; tell whether it came to pass."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def differences(url: str, wanted: states.State) -> list[str]:
    """Say how a state differs from a recomputation of its source, and which invariants do not hold."""
    try:
        found = states.read(url)
    except AssertionError as error:
        return [f"a state does not agree with itself: {str(error)[:SHOWN]}"]
    dropped = {name for (name,) in states.query(url, DROPPED)}
    counters = {name: counted for name, counted in found.counters.items() if name not in dropped}
    told = [
        *unequal("counters of attributes", counters, wanted.counters),
        *unequal("generator records", found.records, wanted.records),
        *unequal("clusters", found.clusters, wanted.clusters),
    ]
    if found.inds != wanted.inds:
        told.append(
            f"INDs: {sorted(found.inds - wanted.inds)[:5]} do not hold, {sorted(wanted.inds - found.inds)[:5]} do"
        )
    return told + broken_invariants(url)


def unequal(what: str, found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    """Say where two mappings differ, with the first three places."""
    keys = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    shown = "; ".join(f"{key}: found {found.get(key)}, wanted {wanted.get(key)}" for key in keys[:3])
    return [f"{len(keys)} {what} differ: {shown[:SHOWN]}"] if keys else []


def replayed(
    base: Collection[tuple[int, int]], logged: Collection[Transition]
) -> tuple[set[tuple[int, int]], list[str]]:
    """Give the INDs that a log of transitions leads to, and where it contradicts itself."""
    holding, faults = set(base), []
    for version, dependent, referenced, kind in logged:
        pair = (dependent, referenced)
        if (pair in holding) == (kind == "appeared"):
            faults.append(f"the log says that {pair} {kind} at version {version}, as it already was")
        (holding.add if kind == "appeared" else holding.discard)(pair)
    return holding, faults


class Comparison:
    """Compare all lanes while nothing is written; what differs is said with the lane's name."""

    def __init__(self, commands: Commands, server: Crashing, folder: Path, differences: list[str]) -> None:
        self.differences = differences
        self._commands, self._server, self._folder = commands, server, folder

    def say(self, *told: str, of: str) -> None:
        for one in told:
            self.differences.append(f"{of}: {one}")
            self._commands.log("difference", of=of, told=one)

    def backed_up(self, lane: Lane, name: str) -> Path | None:
        """Write a backup of the lane's first state."""
        path = self._folder / f"{name}.subsetd"
        path.unlink(missing_ok=True)
        code, said = self._commands.run(lane.followers[0].url, "backup", str(path))
        if code:
            self.say(f"a backup failed: {said[-SHOWN:]}", of=lane.name)
            return None
        return path

    def compare(self, lane: Lane, number: int) -> states.State | None:
        """Compare the states that follow a lane with its source, and their logs of transitions with themselves."""
        wanted = states.expected(tables_of(lane.source_url))
        for one in lane.followers:
            if not waited(lambda one=one: lane.is_applied(one.url, number)):
                self.say("not all changes were applied in time", of=one.name)
            self._drop_columns(one.url, lane, one.name)
            self.say(*differences(one.url, wanted), of=one.name)
            logged = states.query(one.url, LOGGED.format(one.base_version))
            led_to, faults = replayed(one.base_inds, logged)
            self.say(*faults[:3], of=f"{one.name}, transitions")
            if led_to != set(states.query(one.url, HOLDING)):
                self.say("the log of transitions does not lead to the INDs that hold", of=one.name)
            letters = states.query(one.url, "select count(*) from dead_letter")
            if letters != [(0,)]:
                self.say(f"{letters[0][0]} records were set aside", of=one.name)
        return wanted

    def compare_clients(self, one: Followed, clients: Collection[StreamClient]) -> int:
        """Hold what each client of a state's stream saw to what the state logged; give the number of transitions."""
        ((head,),) = states.query(one.url, "select max(version) from state_version")
        logged = states.query(one.url, LOGGED.format(one.base_version))
        for client in clients:
            if not waited(lambda client=client: client.version >= head, 60):
                self.say(f"a client of the stream has {client.version} of {head} versions", of=one.name)
            self.say(*unlike(client.seen, logged), of=f"{one.name}, stream")
        return len(logged)

    def verify(self, one: Followed, *arguments: str) -> None:
        """Let `subsetd verify` look."""
        code, said = self._commands.run(one.url, "verify", *arguments)
        if code:
            self.say(f"subsetd verify {' '.join(arguments)}: {said[-SHOWN:]}", of=one.name)

    def restored(self, lane: Lane, backup: Path, number: int, wanted: states.State) -> bool:
        """Restore a backup into another database, go on where its feed can, and compare; tell whether it was."""
        database = f"restored_{number}"
        administer(self._server, f"create database {database} template template0")
        url = self._server.url_of(database)
        try:
            code, said = self._commands.run(url, "restore", str(backup))
            if not code and lane.name != "direct":
                code, said = self._commands.run(url, "consume", "--feed", lane.feed, "--until-end")
            if code:
                self.say(f"a backup could not be restored, or not gone on from: {said[-SHOWN:]}", of=lane.name)
                return False
            self._drop_columns(url, lane, f"{lane.name}, restored")
            self.say(*differences(url, wanted), of=f"{lane.name}, restored")
            return True
        finally:
            administer(self._server, f"drop database {database} with (force)")
            backup.unlink(missing_ok=True)

    def _drop_columns(self, url: str, lane: Lane, of: str) -> None:
        """Take out what the writers have dropped: the state keeps its values until it is told."""
        gone = {name for (name,) in states.query(url, DROPPED)}
        for table, column in lane.writer.dropped:
            if f"s.{table}.{column}" not in gone:
                code, said = self._commands.run(url, "attribute", "drop", f"s.{table}.{column}")
                if code:
                    self.say(f"attribute drop s.{table}.{column}: {said[-SHOWN:]}", of=of)
