"""Own the running of mutants: the tests are collected once, and each mutant is tried in a fork of that process."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import FunctionType
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.operators import Mutant, functions_in, mutants_of
from tests.mutants.report import EXPLAINED

TEST_SECONDS = 5  # of CPU, with its lines watched: a longer test tries no mutants
_MEMORY = 8 << 30


@dataclass
class MutantRun:
    """What is to be tried, and what came of it."""

    modules: Sequence[str]
    sample: int
    seed: int
    kept: Path
    only_lines: set[int] = field(default_factory=set)
    verbose: bool = False
    again: bool = False
    examples: int = 100

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Make Hypothesis draw the same examples in every fork, at most as many as asked, and not shrink them."""
        from hypothesis import HealthCheck, Phase, settings  # pytest rewrites it, so it must come first

        for item in items:
            test = getattr(item, "obj", None)
            if hasattr(test, "is_hypothesis_test"):
                own = test._hypothesis_internal_use_settings or settings.default
                test._hypothesis_internal_use_settings = settings(
                    own,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=[Phase.explicit, Phase.generate],
                    suppress_health_check=list(HealthCheck),  # they go by the clock, and others use the machine
                    max_examples=min(own.max_examples, self.examples),
                )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants in place of the tests."""
        traces = self._trace(session.items)
        for path in self.modules:
            self._try_module(path, session.items, traces)
        return True

    def _trace(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Learn by one run of each test how long it takes and which lines it reaches; keep it for the next time."""
        kept = self.kept / "traces.json"
        traces: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
        try:
            for item in items:
                known = traces.get(item.nodeid)
                if known is None or not known["passed"] or known["digest"] != _digest(item, known["lines"]):
                    found = _traced(item)
                    traces[item.nodeid] = {"digest": _digest(item, found["lines"]), **found}
        finally:  # all of them take an hour: what was learnt stays when that is interrupted
            kept.write_text(json.dumps(traces))
        names = [item.nodeid for item in items]
        unfit = [name for name in names if not traces[name]["passed"] or traces[name]["seconds"] > TEST_SECONDS]
        print(f"\n{len(items)} tests, {len(unfit)} fail without the compiler or take more than {TEST_SECONDS} s:")
        print("\n".join(f"  {name}" for name in unfit))
        return traces

    def _try_module(self, path: str, items: Sequence[pytest.Item], traces: dict[str, Any]) -> None:
        mutants = mutants_of(Path(path))
        kept = self.kept / (path.replace("/", ".") + ".json")
        before: dict[str, Any] = json.loads(kept.read_text()) if self.again else {"survivors": []}
        lived = {survivor["change"]: survivor for survivor in before["survivors"]}
        explained = json.loads(EXPLAINED.read_text("utf-8")).get(path, {})
        chosen = [mutant for mutant in mutants if not self.only_lines or mutant.line in self.only_lines]
        if not self.again and 0 < self.sample < len(chosen):
            places = random.Random(f"{self.seed} {path}").sample(range(len(chosen)), self.sample)
            chosen = [chosen[place] for place in sorted(places)]
        by_name = {item.nodeid: item for item in items}
        reached = [(name, trace) for name, trace in traces.items() if name in by_name and path in trace["lines"]]
        reached = [(name, trace) for name, trace in reached if trace["passed"] and trace["seconds"] <= TEST_SECONDS]
        reached.sort(key=lambda entry: entry[1]["seconds"])
        survivors = []
        ends = dict.fromkeys(("killed", "timeout", "crashed", "survived", "untested", "no mutant"), 0)
        for mutant in chosen:
            source = mutant.source
            change = mutant.change(source)
            if self.again and change not in lived:
                continue
            if self.again and change in explained:
                survivors.append(lived[change])
                continue
            lines = set(range(mutant.first_line, mutant.last_line + 1))
            tests = [(by_name[name], trace) for name, trace in reached if lines & set(trace["lines"][path])]
            end = _try_mutant(mutant, source, tests)
            ends[end] += 1
            if end in {"survived", "untested"}:
                survivors.append({"line": mutant.line, "change": change, "end": end, "tests": len(tests)})
            if self.verbose:
                print(f"{path}:{mutant.line} {end}\n{change}", flush=True)
        tried = sum(ends.values()) - ends["no mutant"]
        if self.again:
            record = before | {"survivors": survivors}
        else:
            record = {"path": path, "mutants": len(mutants), "tried": tried, "lived_first": len(survivors), **ends}
            record |= {"seed": self.seed, "survivors": survivors}
        kept.write_text(json.dumps(record, indent=1))
        share = 1 - len(survivors) / max(record["tried"], 1)
        print(f"{path}: {len(mutants)} mutants, {record['tried']} tried, {share:.1%} killed", flush=True)


def _digest(item: pytest.Item, reached: Iterable[str]) -> str:
    """Sum up a test's file and the modules that it reaches: with the same ones, it does the same."""
    paths = [item.path, *(Path(path) for path in sorted(reached) if Path(path).exists())]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _traced(item: pytest.Item) -> dict[str, Any]:
    """Run one test in a fork with its lines watched: whether it passed, CPU seconds, and lines by module."""
    read, write = os.pipe()

    def watch() -> bool:
        watcher = coverage.Coverage(data_file=None, source_dirs=[os.path.abspath("service")], config_file=False)
        watcher.set_option("run:disable_warnings", ["no-data-collected"])  # of a test of the tests' own tools
        watcher.start()
        before = time.process_time()
        passed = _run_tests([item])
        seconds = time.process_time() - before
        watcher.stop()
        data = watcher.get_data()
        here = os.getcwd() + "/"
        lines = {
            name.removeprefix(here): sorted(data.lines(name) or [])
            for name in data.measured_files()
            if name.startswith(here)
        }
        with os.fdopen(write, "w") as pipe:
            json.dump({"passed": passed, "seconds": seconds, "lines": lines}, pipe)
        return passed

    child = _fork(watch, 2 * TEST_SECONDS)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"passed": False, "seconds": float(TEST_SECONDS), "lines": {}}


def _try_mutant(mutant: Mutant, source: str, tests: Sequence[tuple[pytest.Item, Any]]) -> str:
    try:
        code = dict(functions_in(compile(source, os.path.abspath(mutant.path), "exec")))[mutant.function]
    except SyntaxError:
        return "no mutant"  # nor a program
    if not tests:
        return "untested"

    def try_it() -> bool:
        _live_function(mutant).__code__ = code
        return _run_tests([item for item, _ in tests], [2 + 4 * trace["seconds"] for _, trace in tests])

    seconds = 5 + 4 * sum(trace["seconds"] for _, trace in tests)
    _, status = os.waitpid(_fork(try_it, seconds), 0)
    if os.WIFSIGNALED(status):
        slow = os.WTERMSIG(status) in {signal.SIGPROF, signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL}
        return "timeout" if slow else "crashed"
    return "survived" if os.WEXITSTATUS(status) == 0 else "killed"


def _live_function(mutant: Mutant) -> FunctionType:
    """The function that the program calls: forks change its code, so that all who imported it get the mutant."""
    module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    found: Any = module
    for name in mutant.function.split("."):
        found = vars(found)[name]
    while not isinstance(found, FunctionType):
        found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found.__wrapped__
    return found


def _fork(work: Callable[[], bool], seconds: float) -> int:
    """Run work in a fork that ends after these seconds of CPU, or far more by the clock: it may sleep for ever."""
    child = os.fork()
    if child:
        return child
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(60 * seconds) + 600)
        passed = work()
    except BaseException:
        os._exit(1)
    os._exit(0 if passed else 1)


def _run_tests(items: Sequence[pytest.Item], seconds: Sequence[float] = ()) -> bool:
    """Run tests until one fails, or one takes more seconds of CPU than it may: a signal ends the process then."""
    for item, after, most in zip_longest(items, items[1:], seconds, fillvalue=None):
        signal.setitimer(signal.ITIMER_PROF, most or 0)
        for report in runtestprotocol(item, log=False, nextitem=after):
            if report.failed:
                return False
    return True


sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))
