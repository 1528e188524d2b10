"""Own what a person sees of a running bootstrap: stages, rows, elapsed time and expected end, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from pyspark import SparkContext
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from service.store.bootstrap_runs import told_bootstrap

POLL_SECONDS = 0.3
TOLD_SECONDS = 1.0
"""How often the state is told of a running bootstrap, at most."""
PLAIN_SECONDS = 10.0
"""How often a plain line is written when standard error is no terminal."""


class Display(Protocol):
    """Show stages: one after the other, each with a known number of tasks or none."""

    def begin(self, stage: str, total: int | None = None) -> None: ...

    def update(self, done: int, note: str = "") -> None: ...

    def close(self) -> None: ...


class Quiet:
    """Show nothing."""

    def begin(self, stage: str, total: int | None = None) -> None:
        pass

    def update(self, done: int, note: str = "") -> None:
        pass

    def close(self) -> None:
        pass


class Bars:
    """Show a bar for each stage, on a terminal."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self.progress.start()
        self.bar = self.progress.add_task("", visible=False, note="")

    def begin(self, stage: str, total: int | None = None) -> None:
        self._finish()
        self.bar = self.progress.add_task(stage, total=total, note="")

    def update(self, done: int, note: str = "") -> None:
        self.progress.update(self.bar, completed=done, note=note)

    def close(self) -> None:
        self._finish()
        self.progress.stop()

    def _finish(self) -> None:
        task = self.progress.tasks[-1]
        self.progress.update(self.bar, total=task.total or 1, completed=task.total or 1)


class Lines:
    """Write a line for each stage, and one now and then inside it, where no terminal is."""

    def __init__(self) -> None:
        self.start = self.stage_start = self.told = time.monotonic()
        self.stage = ""
        self.total: int | None = None

    def begin(self, stage: str, total: int | None = None) -> None:
        self.stage, self.total = stage, total
        self.stage_start = self.told = time.monotonic()
        self._write(f"{stage}: {total} tasks" if total else stage)

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self.told < PLAIN_SECONDS:
            return
        self.told = now
        left = ""
        if done and self.total:
            left = f", about {(now - self.stage_start) / done * (self.total - done):.0f} s left"
        self._write(f"{self.stage}: {done} of {self.total}{left}{f', {note}' if note else ''}")

    def close(self) -> None:
        pass

    def _write(self, text: str) -> None:
        print(f"[{time.monotonic() - self.start:6.1f} s] {text}", file=sys.stderr, flush=True)


class Telling:
    """Show what another display shows, and remember the last of it."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.last: tuple[str, int | None, int | None] | None = None

    def begin(self, stage: str, total: int | None = None) -> None:
        self.last = stage, None if total is None else 0, total
        self._display.begin(stage, total)

    def update(self, done: int, note: str = "") -> None:
        if self.last is not None:
            stage, _, total = self.last
            self.last = stage, done, total
        self._display.update(done, note)

    def close(self) -> None:
        self._display.close()


@contextmanager
def telling_the_state(url: str, source_name: str, display: Display, *, withholds: bool = False) -> Iterator[Display]:
    """Give a display that also tells the state, once a second at most, on a thread and a connection of its own.

    See `told_bootstrap` for `withholds`.
    """
    told = Telling(display)
    over = threading.Event()
    with told_bootstrap(url, source_name, withholds=withholds) as row:

        def tell() -> None:
            before = None
            is_over = False
            while not is_over:
                is_over = over.wait(TOLD_SECONDS)
                if told.last is not None and told.last != before:
                    before = told.last
                    row.tell(*before)

        thread = threading.Thread(target=tell, name="progress told", daemon=True)
        thread.start()
        try:
            yield told
        finally:
            over.set()
            thread.join()


def make_display() -> Display:
    """Choose bars on a terminal, lines elsewhere."""
    return Bars() if sys.stderr.isatty() else Lines()


@contextmanager
def watching(
    context: SparkContext, display: Display, stages: list[tuple[str, int]], note: Callable[[], str]
) -> Iterator[dict[str, float]]:
    """Show the tasks of the running job's stages, named in order, and give a dict that gets each one's seconds."""
    seconds: dict[str, float] = {}
    over = threading.Event()
    tracker = context.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    begun: list[tuple[str, float]] = []

    def look() -> None:
        for job in set(tracker.getJobIdsForGroup(None)) - before:
            info = tracker.getJobInfo(job)
            known = [tracker.getStageInfo(stage_id) for stage_id in sorted(info.stageIds if info else [])]
            # A stage whose shuffle an earlier job has written is skipped.
            running = [stage for stage in known if stage and (stage.numActiveTasks or stage.numCompletedTasks)]
            for place, stage in enumerate(running[: len(stages)]):
                if place == len(begun):
                    begun.append((stages[place][0], time.monotonic()))
                    display.begin(stages[place][0], stage.numTasks)
                if place == len(begun) - 1:
                    display.update(stage.numCompletedTasks, note())

    def watch() -> None:
        while not over.wait(POLL_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    start = time.monotonic()
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()
        starts = [start, *(moment for _, moment in begun[1:]), time.monotonic()]
        for (name, _), low, high in zip(begun, starts, starts[1:], strict=False):
            seconds[name] = high - low
