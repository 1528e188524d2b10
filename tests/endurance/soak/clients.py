"""Own the clients of a soak: who follows the stream of transitions, and who polls and so measures freshness."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import orjson

from tests.endurance.soak.gate import Gate
from tests.endurance.soak.judge import Point

POLL_SECONDS = 0.2

Transition = tuple[int, int, int, str]
"""(version, dependent, referenced, what happened)"""


class StreamClient:
    """Follow `/api/v1/stream` as a browser does: cut off, it comes back and says what it had last."""

    def __init__(self, address: str, since: int, ends: threading.Event) -> None:
        self.seen: list[Transition] = []
        self.version = since
        self.connections = 0
        self.refused: Counter[int] = Counter()
        self._address, self._since, self._ends = address, since, ends
        self._last_id: str | None = None
        self._thread = threading.Thread(target=self._follow, name=f"stream {address}", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not self._ends.is_set():
                headers = {} if self._last_id is None else {"Last-Event-ID": self._last_id}
                try:
                    with client.stream("GET", f"/api/v1/stream?since={self._since}", headers=headers) as answer:
                        if answer.status_code == 200:
                            self.connections += 1
                            self._read(answer)
                        else:
                            self.refused[answer.status_code] += 1
                except httpx.HTTPError:
                    pass  # killed: it comes back
                self._ends.wait(0.5)

    def _read(self, answer: httpx.Response) -> None:
        """Take whole events: one that was cut off is none."""
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            if "data" in event:
                self._take(orjson.loads(event["data"]))
                self._last_id = event["id"]
                if "." not in event["id"]:  # it has all of this version
                    self.version = int(event["id"])
            event = {}
            if self._ends.is_set():
                return

    def _take(self, told: dict[str, Any]) -> None:
        for one in told.get("items", ()):
            pair = (one["dependent"]["attribute_id"], one["referenced"]["attribute_id"])
            self.seen.append((one["version"], *pair, one["kind"]))


def unlike(seen: list[Transition], logged: list[Transition]) -> list[str]:
    """Say how what a client saw differs from what was logged: lost, repeated, never logged, out of order."""
    counted, wanted = Counter(seen), Counter(logged)
    found = []
    if lost := wanted - counted:
        found.append(f"{lost.total()} transitions were lost, such as {min(lost)}")
    if repeated := Counter({one: n for one, n in (counted - wanted).items() if one in wanted}):
        found.append(f"{repeated.total()} transitions came again, such as {min(repeated)}")
    if strange := set(counted) - set(wanted):
        found.append(f"{len(strange)} transitions were never logged, such as {min(strange)}")
    versions = [one[0] for one in seen]
    if versions != sorted(versions):
        found.append("transitions came out of order")
    return found


class Poller:
    """Ask for the attribute of `probe` again and again: its rows say which beats of the writer are visible.

    `points` are (when a beat was committed, seconds until it was seen); `faults` are answers that went back, or are
    neither good ones nor those of a service whose state is away.
    """

    GOOD = (200, 304, 503)

    def __init__(self, address: str, beats: Callable[[], list[float]], gate: Gate) -> None:
        self.points: list[Point] = []
        self.faults: list[str] = []
        self.answers: Counter[int] = Counter()
        self._address, self._beats, self._gate = address, beats, gate
        self._seen = len(beats())
        self._version = 0
        self._thread = threading.Thread(target=self._watch, name=f"poller {address}", daemon=True)
        self._thread.start()

    def unseen(self, until: float) -> list[Point]:
        """Give the beats that no answer had until then, with their age."""
        return [(at, until - at) for at in self._beats()[self._seen :] if at < until]

    def _watch(self) -> None:
        try:
            self._poll()
        except Exception as error:
            self.faults.append(f"an answer could not be read: {error!r}")
            self._gate.stop()

    def _poll(self) -> None:
        tag = None
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not self._gate.stopped.wait(POLL_SECONDS):
                headers = {} if tag is None else {"If-None-Match": tag}
                try:
                    answer = client.get("/api/v1/attributes?table=probe", headers=headers)
                except httpx.HTTPError:
                    self.answers[0] += 1
                    continue
                self.answers[answer.status_code] += 1
                if answer.status_code not in self.GOOD:
                    self.faults.append(f"the answer was {answer.status_code}: {answer.text[:300]}")
                if answer.status_code == 200:
                    tag = answer.headers["ETag"]
                    self._look(orjson.loads(answer.content))

    def _look(self, told: dict[str, Any]) -> None:
        now = self._gate.seconds
        if told["version"] < self._version:
            self.faults.append(f"an answer of version {told['version']} came behind one of {self._version}")
        self._version = told["version"]
        (rows,) = [one["row_count"] for one in told["items"]]
        beats = self._beats()
        for at in beats[self._seen : rows]:
            self.points.append((at, now - at))
        self._seen = max(self._seen, min(rows, len(beats)))
