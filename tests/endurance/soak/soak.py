"""Own the run of a soak: servers, feeds and clients are started, loaded, killed and compared until its time is over."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg2

from service.stream.postgres_address import parse_address
from tests.broker import KafkaBroker
from tests.connect import SOURCE_SETTINGS, Connect
from tests.endurance.soak import plan
from tests.endurance.soak.checks import Comparison, waited
from tests.endurance.soak.chores import CHANGES, Files, Lake, Schema, audit, kill_audit
from tests.endurance.soak.clients import Poller, StreamClient
from tests.endurance.soak.gate import Gate
from tests.endurance.soak.judge import Killed, Seen
from tests.endurance.soak.lanes import KEPT_SECONDS, Followed, Lane, Topics, remember_base
from tests.endurance.soak.room import Commands, Crashing, Log, Service
from tests.endurance.soak.sampler import Sampler
from tests.endurance.soak.writers import Writer, tables
from tests.ports import free_ports
from tests.postgres import administer

WITNESS = "run witness"
STATE_SETTINGS = {"shared_buffers": "256MB", "max_connections": "200", "max_wal_size": "512MB"}
CLIENTS_OF_SERVE = 3
COMPILING = 40
"""Transactions of each feed before the load begins."""


class Soak:
    """Hold all parts of a soak; `seen` is what is judged in the end."""

    def __init__(self, seconds: float, seed: int, rate: float, folder: Path, log: Log) -> None:
        self.seconds, self.seed, self.rate, self.folder, self.log = seconds, seed, rate, folder, log
        self.seen = Seen()
        self.gate = Gate()
        self._rng = random.Random(f"soak {seed}")
        self._hands_off = threading.Lock()
        """Held while a change of columns is announced: what would be half announced could not be told from a defect."""
        self._commands = Commands(folder, log)
        self._schema = Schema(seed, self._commands)
        self._lanes: dict[str, Lane] = {}
        self._services: dict[str, Service] = {}
        self._clients: dict[str, list[StreamClient]] = {}
        self._pollers: dict[str, Poller] = {}
        self._ends = threading.Event()
        self._marks = 0
        self._fault: BaseException | None = None

    def run(self) -> None:
        """Run the whole soak. What fails outside of what is compared is a difference as well: it ends the soak."""
        try:
            with self._servers(), self._following():
                self._load()
        finally:
            self._gather()

    def _load(self) -> None:
        self.log("begins", seconds=self.seconds, seed=self.seed)
        sample = Sampler(self.gate, self.seen, self._services, self.folder).sample
        self.gate.begin()
        threads = [threading.Thread(target=lane.writer.run, daemon=True) for lane in self._lanes.values()]
        threads += [
            threading.Thread(target=self._guarded, args=(do,), daemon=True) for do in (self._kill, self._chores, sample)
        ]
        for thread in threads:
            thread.start()
        try:
            for at in plan.comparisons(self.seconds):
                if not self.gate.wait_until(at):
                    self.seen.differences.append(f"it ended before the comparison at {at:.0f} s")
                    break
                self._compare()
        finally:
            self.seen.seconds = self.gate.seconds
            self.gate.stop()
            for thread in threads:
                thread.join(300)
            for service in self._services.values():  # behind a kill in the last moment
                waited(lambda service=service: self._is_ready(service), 60)

    # What runs

    @contextmanager
    def _servers(self) -> Iterator[None]:
        (port,) = free_ports(1)
        (self.folder / "broker").mkdir()
        self._state = Crashing(self.folder / "state", extra_settings=STATE_SETTINGS)
        settings = {**SOURCE_SETTINGS, "shared_buffers": "256MB", "max_wal_size": "512MB"}
        self._source = Crashing(self.folder / "source", extra_settings=settings, port=port)
        self._broker = KafkaBroker(self.folder / "broker")
        self._broker.as_a_service = True
        try:
            with self._state, self._source:
                self._broker.start()
                yield
        finally:
            self._broker.kill()

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Make sources and states, and let consumers and clients follow."""
        with self._topics() as topics:
            for name, rate in plan.RATES.items():
                administer(self._source, f"create database src_{name}")
                emit = topics if name == "made" else None
                source_url = self._source.url_of(f"src_{name}")
                writer = Writer(name, source_url, self.seed, rate * self.rate, self.gate, emit)
                writer.make()
                administer(self._state, f"create database st_{name} template template0")
                followed = Followed(f"run {name}", f"st_{name}", self._state.url_of(f"st_{name}"))
                self._lanes[name] = Lane(name, source_url, writer, followers=[followed])
            self._lake = Lake(self.seed, self._commands, self._state, self.folder / "lake")
            self._files = Files(self.seed, self._commands, self._state, self.folder)
            self._comparison = Comparison(self._commands, self._state, self.folder, self.seen.differences)
            self._connect = self._made_connect()
            try:
                self._begin_made(topics)
                self._begin_direct()
                self._begin_debezium()
                for lane in self._lanes.values():
                    for one in lane.followers:
                        remember_base(one)
                        settings = {"on_error": "none"}
                        self._services[one.name] = Service(
                            self._commands, one.name, one.url, ("run", "--feed", lane.feed), settings, self._give_up
                        )
                made = self._lanes["made"].followers[0]
                self._services["serve"] = Service(self._commands, "serve", made.url, ("serve",), {}, self._give_up)
                self._require_ready()
                self._compile()
                self._begin_clients()
                yield
            finally:
                self._ends.set()
                for service in self._services.values():
                    service.close()
                self._connect.kill()

    @contextmanager
    def _topics(self) -> Iterator[Topics]:
        topics = Topics(self._broker, "made.")
        try:
            yield topics
        finally:
            topics.close()

    def _command(self, url: str, *arguments: str) -> None:
        code, said = self._commands.run(url, *arguments)
        if code:
            raise RuntimeError(f"subsetd {' '.join(arguments)}: {said[-2000:]}")

    def _begin_made(self, topics: Topics) -> None:
        lane = self._lanes["made"]
        lane.feed, lane.topics = topics.feed, topics
        url = lane.followers[0].url
        self._command(url, "bootstrap", lane.source_url, "--name", "made")
        backup = str(self.folder / "first.subsetd")
        self._command(url, "backup", backup)
        administer(self._state, "create database st_witness template template0")
        witness = Followed(WITNESS, "st_witness", self._state.url_of("st_witness"))
        self._command(witness.url, "restore", backup)
        lane.followers.append(witness)

    def _begin_direct(self) -> None:
        lane = self._lanes["direct"]
        self._command(lane.followers[0].url, "follow", lane.source_url, "--name", "direct", "--until-end")
        lane.feed = f"{lane.source_url}?name=direct"
        parse_address(lane.feed)

    def _made_connect(self) -> Connect:
        (self.folder / "connect").mkdir()
        connect = Connect(
            self.folder / "connect",
            self._broker,
            self._lanes["debezium"].source_url,
            with_schema=True,
            topic_creation_default_retention_ms=str(KEPT_SECONDS * 1000),
            topic_creation_default_segment_bytes=str(32 << 20),
            topic_creation_default_compression_type="lz4",
            retriable_restart_connector_wait_ms="1000",
        )
        connect.as_a_service = True
        return connect

    def _begin_debezium(self) -> None:
        lane = self._lanes["debezium"]
        self._connect.make_slot()
        self._command(lane.followers[0].url, "bootstrap", lane.source_url, "--name", "debezium")
        self._connect.start()
        lane.writer.mark(self._next_mark())
        lane.writer.beat()
        if not waited(lambda: len(self._connect.topics()) == len(tables()) + 2):
            raise RuntimeError(f"the connector has made the topics {self._connect.topics()} alone")
        lane.feed = self._connect.feed

    def _compile(self) -> None:
        """Let all follow some transactions, and start anew: the first processes of an installation compile kernels.

        That takes them a dozen seconds and some 45 MB once; what is judged is a start as all later ones are. The two
        servers in Java keep what classes they have loaded: a start of Connect is half as dear then.
        """
        mark = self._next_mark()
        for lane in self._lanes.values():
            for _ in range(COMPILING):
                lane.writer.transaction()
            lane.writer.mark(mark)
        for lane in self._lanes.values():
            for one in lane.followers:
                if not waited(lambda lane=lane, one=one: lane.is_applied(one.url, mark)):
                    raise RuntimeError(f"{one.name} does not follow: {self._services[one.name].said()}")
        for server in (self._connect, self._broker):
            server.stop()
        for server in (self._broker, self._connect):
            server.start()
        for service in self._services.values():
            with service.ended():
                pass
        self._require_ready()

    def _require_ready(self) -> None:
        for service in self._services.values():
            if not waited(lambda service=service: self._is_ready(service)):
                raise RuntimeError(f"{service.name} is not ready: {service.said()}")

    def _begin_clients(self) -> None:
        for lane in self._lanes.values():
            address = self._services[lane.followers[0].name].address
            self._pollers[lane.name] = Poller(address, lambda lane=lane: lane.writer.beats, self.gate)
            for one in lane.followers:
                address = self._services[one.name].address
                self._clients[one.name] = [StreamClient(address, one.base_version, self._ends)]
        made = self._lanes["made"].followers[0]
        address = self._services["serve"].address
        self._clients[made.name] += [
            StreamClient(address, made.base_version, self._ends) for _ in range(CLIENTS_OF_SERVE)
        ]

    def _followers(self) -> list[Followed]:
        return [one for lane in self._lanes.values() for one in lane.followers]

    @staticmethod
    def _is_ready(service: Service) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{service.address}/readyz", timeout=60).status_code == 200
        return False

    # What is done to it

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except BaseException as error:
            self._fault = error
            self.log("failed", error="".join(traceback.format_exception(error)))
            self.gate.stop()

    def _kill(self) -> None:
        free_at = 0.0
        for kill in plan.kills(self.seed, self.seconds):
            if not self.gate.wait_until(max(kill.at, free_at)):
                return
            with self._hands_off, self.gate.working() as goes_on:
                if goes_on:
                    self._kill_one(kill.part)
            # One that comes late, behind a comparison or another, is a kill of its own all the same.
            free_at = self.gate.load_seconds + plan.LEAST * plan.between_kills(self.seconds)

    def _give_up(self, reason: str) -> None:
        self.seen.differences.append(f"given up: {reason}")
        self.gate.stop()

    def _kill_one(self, part: str) -> None:
        """Kill a part, and start it again if it is one that stays; what had ended before is no kill."""
        at: float | None = self.gate.seconds
        faults: list[str] = []
        match part:
            case "broker":
                self._broker.kill()
                self._broker.start()
            case "state Postgres":
                self._state.crash()
                self._state.back()
            case "source Postgres":
                self._source.crash()
                self._source.back()
            case "Connect":
                self._restart_connect()
            case "audit":
                one = self._rng.choice(self._followers())
                after, java = self._rng.uniform(0, 8), self._rng.random() < 0.5
                at, faults = kill_audit(self._commands, one, after, java, lambda: self.gate.seconds)
            case "refresh":
                at, faults = self._lake.kill(self._rng.uniform(0, 2.0), lambda: self.gate.seconds)
            case "consume file":
                at, faults = self._files.follow(lambda: self.gate.seconds)
                self.seen.did["files followed"] += 1
            case _ if not self._services[part].kill():
                at = None
        self.seen.differences += faults
        if at is None:
            self.log("nothing to kill", part=part, faults=faults)
            return
        back = at if part in plan.JOBS else self.gate.seconds
        if part in {"broker", "source Postgres", "Connect"}:
            self._let_connect_read()
        self.seen.kills.append(Killed(part, at, back))
        self.log("kill", part=part, at=round(at, 1), back=round(back, 1), reads=round(self.gate.seconds, 1))

    def _restart_connect(self) -> None:
        """Kill the connector and start it at once; what it said in its life is kept, for a start begins a new log."""
        self._connect.kill()
        with (self.folder / "connect.log").open("ab") as kept:
            kept.write((self._connect.folder / "server.log").read_bytes())
        with suppress(RuntimeError):  # one whose task failed is started anew by whoever waits for it
            self._connect.start()

    def _let_connect_read(self) -> None:
        """Start the connector anew where it does not come back by itself, as whoever runs one does."""

        def reads() -> bool:
            with suppress(psycopg2.Error):
                return self._connect.is_up()
            return False

        for _ in range(5):
            with suppress(RuntimeError):  # its task has failed: it does not come back
                if waited(reads, 8):
                    return
            self._restart_connect()
        raise RuntimeError("the connector does not come back")

    def _chores(self) -> None:
        followers = self._followers()
        lanes = list(self._lanes.values())
        turn = 0
        while not self.gate.stopped.wait(plan.chore_seconds(self.seconds)):
            turn += 1
            lane = lanes[turn % len(lanes)]
            with self._hands_off, self.gate.working() as goes_on:
                if goes_on:
                    self._schema.change(lane)
            with self.gate.working() as goes_on:
                if not goes_on:
                    return
                if turn % 4 == 1:
                    self._lake.refresh(self.seen, lambda: self.gate.seconds)
                elif turn % 2 == 0:
                    one = followers[turn // 2 % len(followers)]
                    audit(self._commands, one, self.seen, lambda: self.gate.seconds)

    # What is compared

    def _next_mark(self) -> int:
        self._marks += 1
        return 1_000_000_000 + self._marks

    def _compare(self) -> None:
        began = self.gate.seconds
        lanes = list(self._lanes.values())
        number = len(self.seen.paused)
        with self._hands_off:
            backups = {}
            turn = [lane for lane in lanes if lane.name != "direct"][number % 2]
            backups[turn.name] = self._comparison.backed_up(turn, "under-load")
            with self.gate.resting():
                paused_at = self.gate.seconds
                mark = self._next_mark()
                for lane in lanes:
                    lane.writer.mark(mark)
                for lane in lanes:
                    wanted = self._comparison.compare(lane, mark)
                    for one in lane.followers:
                        self.seen.did["transitions"] = max(
                            self.seen.did["transitions"],
                            self._comparison.compare_clients(one, self._clients[one.name]),
                        )
                        self._comparison.verify(one, "--sql-only")
                    if lane.name == "direct" and number % 2 == 0:
                        backups[lane.name] = self._comparison.backed_up(lane, "resting")
                    if backup := backups.get(lane.name):
                        self.seen.did["backups restored"] += self._comparison.restored(lane, backup, number, wanted)
                    lane.writer.dropped.clear()
                lane = lanes[number % len(lanes)]
                one = lane.followers[0]
                with self._services[one.name].ended():  # a recomputation bears no consumer beside it
                    self._comparison.verify(one, "--source", f"{lane.name}={lane.source_url}")
                self.seen.paused.append((paused_at, self.gate.seconds))
        self.seen.did["comparisons"] += 1
        self.log("compared", began=round(began, 1), took=round(self.gate.seconds - began, 1))

    def _gather(self) -> None:
        """Put together what was seen."""
        seen = self.seen
        for lane in self._lanes.values():
            seen.changes[lane.name] = lane.writer.counts["changes"]
            for what in ("truncates", "rolled back", "lost with the source", "transactions"):
                seen.did[what] += lane.writer.counts[what]
            if lane.writer.error is not None:
                seen.differences.append(f"the writer of {lane.name} failed: {lane.writer.error!r}")
                self.log("failed", error="".join(traceback.format_exception(lane.writer.error)))
        seen.changes["file"] = CHANGES * seen.did["files followed"]
        seen.did.update(self._schema.did)
        seen.differences += self._schema.faults
        for name, poller in self._pollers.items():
            seen.freshness[name] = poller.points + poller.unseen(seen.seconds)
            seen.differences += [f"{name}: {fault}" for fault in poller.faults[:3]]
            seen.did["polls"] += poller.answers.total()
        for clients in self._clients.values():
            seen.did["streams opened"] += sum(client.connections for client in clients)
            seen.did["transitions seen by clients"] += sum(len(client.seen) for client in clients)
        for service in self._services.values():
            seen.exits += service.exits
            seen.differences += service.faults
        if self._fault is not None:
            seen.differences.append(f"the soak itself failed: {self._fault!r}")
