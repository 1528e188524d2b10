"""Own the row `sse`: clients of the stream see every transition once and in order, and the service's memory is flat.

With `--size 30` it goes on for half an hour.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from array import array
from collections.abc import Sequence
from statistics import mean, quantiles

import psutil
import psycopg2

from benchmarks.context import Context
from benchmarks.http_answers import serving
from benchmarks.results_file import Result
from benchmarks.state import environment, server
from service.store.migrate import upgrade

SEED = 11
CLIENTS = 200
SECONDS = 60
RATE = 20
"""Versions a second, each with TRANSITIONS."""

TRANSITIONS = 5
PATIENCE = 60
PATH = "/api/v1/stream?since=0"

ATTRIBUTES = """
insert into source (name, kind, location, bootstrapped_version) values ('made', 'csv', 'made', 1);
insert into state_version (version, generation, kind) values (1, 1, 'bootstrap');
insert into attribute select n, 1, 's', 't' || n, 'x', 0, 'string', 0, 0, 0, 0 from generate_series(0, 5) as n
"""
COMMIT = """
insert into state_version (version, generation, kind) values (%(version)s, 1, 'batch');
insert into ind_transition (version, dependent_id, referenced_id, kind, witness_value, cause_count)
 select %(version)s, 0, n, %(kind)s, 'value of ' || %(version)s, 1 from generate_series(1, %(count)s) as n
"""


class Client:
    """Follow the stream, and keep what tells whether anything was lost, doubled or turned round."""

    def __init__(self) -> None:
        self.versions = array("q")  # in half an hour all clients together see seven million
        self.arrived = array("d")
        self.transitions = 0

    async def follow(self, host: str, port: int, until: int) -> None:
        """Read until a version has come."""
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        kind = b""
        while not self.versions or self.versions[-1] < until:
            line = await reader.readline()
            if not line:
                raise ConnectionError("the stream has ended")
            name, _, value = line.partition(b": ")
            if name == b"event":
                kind = value.strip()
            elif name == b"data" and kind == b"transitions":
                told = json.loads(value)
                self.versions.append(told["version"])
                self.arrived.append(time.time())
                self.transitions += len(told["items"])
        writer.close()


def run(context: Context) -> list[Result]:
    """Commit versions at a steady rate while many follow; compare what each has seen with what was committed."""
    count = max(RATE, round(RATE * SECONDS * context.size))
    clients = [Client() for _ in range(CLIENTS)]
    with server(context) as postgres:
        url = postgres.create("sse")
        upgrade(url)
        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(ATTRIBUTES)
        connection.close()
        with serving(["serve"], environment(url), context.logs / "sse.log") as client:
            (process,) = (one for one in psutil.Process().children(True) if "serve" in one.cmdline())
            base = client.base_url
            following = threading.Thread(
                target=lambda: asyncio.run(_follow(clients, base.host, base.port or 80, count + 1)), name="clients"
            )
            following.start()
            committed, memory = _commit(url, count, process)
            following.join(PATIENCE)
            cpu = process.cpu_times()
        postgres.drop("sse")
    expected = array("q", range(2, count + 2))
    right = sum(one.versions == expected and one.transitions == count * TRANSITIONS for one in clients)
    delays = array(
        "d",
        (
            arrived - committed[version]
            for one in clients
            for version, arrived in zip(one.versions, one.arrived, strict=True)
        ),
    )
    third = len(memory) // 3
    return [
        Result("clients that saw every transition once and in order", right, "clients", goal=f"value >= {CLIENTS}"),
        Result(
            "memory that the service grew by, from the second third to the last",
            (mean(memory[-third:]) - mean(memory[third:-third])) / 1e6,
            "MB",
            goal="value <= 5",
        ),
        Result("memory of the service", max(memory) / 1e6, "MB"),
        Result("p99 from the commit to the client", quantiles(delays, n=100)[98], "s"),
        Result("sent", sum(one.transitions for one in clients) / (len(memory) / 4), "transitions/s"),
        Result("CPU of the service", cpu.user + cpu.system, "s"),
    ]


async def _follow(clients: Sequence[Client], host: str, port: int, until: int) -> None:
    await asyncio.gather(*(one.follow(host, port, until) for one in clients))


def _commit(url: str, count: int, process: psutil.Process) -> tuple[dict[int, float], list[int]]:
    """Commit versions at RATE; return when each was there, and the service's memory four times a second, in bytes."""
    committed, memory = {}, []
    connection = psycopg2.connect(url)
    connection.autocommit = True
    started = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(count):
            time.sleep(max(0.0, started + number / RATE - time.monotonic()))
            kind = "appeared" if number % 2 else "broke"
            committed[number + 2] = time.time()
            cursor.execute(COMMIT, {"version": number + 2, "kind": kind, "count": TRANSITIONS})
            if number % (RATE // 4) == 0:
                memory.append(process.memory_info().rss)
    connection.close()
    return committed, memory
