"""Own the process of one search for joinable tables: its question is in a folder, and so is its answer in the end.

    python -m service.joinable_job FOLDER      (the state's address on standard input)

Prints how far it is. Exit code 0: answered. 1: an error, told on standard error.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from service import corpus_wiring, wiring
from service.core.errors import NotFoundError, SubsetdError
from service.core.joinability import Progress
from service.job_process import JobProcess
from service.usecases.joinable import JoinQuery, JoinQuestion
from service.usecases.joinable_searches import require_bounded, written_progress

QUERY, QUESTION, ANSWER = "query.arrow", "question.json", "answer.json"

TOLD_SECONDS = 0.5
"""How often it is told how far the search is."""


class SearchFolder:
    """Implement usecases.joinable_searches.KeptSearch by files, in a folder below one that nobody else reads."""

    def __init__(self, parent: Path, url: str, query: JoinQuery, question: JoinQuestion) -> None:
        self._url = url
        self._path = Path(tempfile.mkdtemp(dir=parent))
        table = pa.table(query.texts(), names=[str(number) for number in range(len(query.columns))])
        with pa.OSFile(str(self._path / QUERY), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        (self._path / QUESTION).write_text(json.dumps(question._asdict(), default=str))

    def start(self) -> JobProcess:
        """Begin the job."""
        return JobProcess([sys.executable, "-m", "service.joinable_job", str(self._path)], [self._url])

    def answer(self) -> Mapping[str, Any]:
        """Read the answer; raise NotFoundError where it was forgotten in this moment."""
        try:
            found: dict[str, Any] = json.loads((self._path / ANSWER).read_text())
        except FileNotFoundError:
            raise NotFoundError("This search was asked too long ago: ask again.") from None
        return found

    def forget(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._path, ignore_errors=True)


def run(folder: Path, url: str, tell: Callable[[Progress], None]) -> None:
    """Search, and write the answer."""
    asked = json.loads((folder / QUESTION).read_text())
    share = asked.pop("min_share")
    question = JoinQuestion(**asked, min_share=None if share is None else Fraction(share))
    with pa.memory_map(str(folder / QUERY)) as source:
        query = JoinQuery(pa.ipc.open_file(source).read_all().columns)
        with wiring.reading_engine(url) as engine:
            answer = corpus_wiring.make_join_search(engine).answer(query, question, tell=tell)
    written = folder / f"{ANSWER}.part"
    written.write_text(json.dumps(asdict(answer), default=str))
    written.rename(folder / ANSWER)
    (folder / QUERY).unlink()


def main() -> int:
    """Run the job from the command line."""
    told = -TOLD_SECONDS

    def tell(progress: Progress) -> None:
        nonlocal told
        require_bounded(progress)
        if time.monotonic() - told >= TOLD_SECONDS:
            told = time.monotonic()
            print(written_progress(progress), flush=True)

    try:
        run(Path(sys.argv[1]), sys.stdin.readline().rstrip("\n"), tell)
    except SubsetdError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
