"""Own the reading of a corpus' rows by a process of its own: what reads files is no part of the service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from service.core.errors import NotFoundError
from service.usecases.corpora_ports import Corpora
from service.usecases.joinable_details import TableRows, TooLongError

LONGEST_SECONDS = 120.0
"""How long rows may take to be read; an answer is given without them then."""


class CorpusRowReader:
    """Implement usecases.joinable_details.RowReader."""

    def __init__(self, corpora: Corpora, seconds: float = LONGEST_SECONDS) -> None:
        self._corpora = corpora
        self._seconds = seconds

    def __call__(
        self, corpus: str, wanted: Mapping[str, Sequence[int]], seconds: float | None = None
    ) -> Mapping[str, TableRows]:
        try:
            known = self._corpora.named(corpus)
        except NotFoundError:
            return _all(wanted, "The corpus was removed meanwhile.")
        asked = {
            "location": known.location,
            "kind": known.kind,
            "settings": known.settings.to_json(),
            "wanted": wanted,
        }
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "spark_jobs.corpus_rows"],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                timeout=self._seconds if seconds is None else min(seconds, self._seconds),
                check=False,
            )
        except subprocess.TimeoutExpired:
            if seconds is not None:
                raise TooLongError from None
            return _all(wanted, f"Its rows were not read within {self._seconds:g} s.")
        if ended.returncode:
            return _all(wanted, f"Its rows could not be read: {ended.stderr.strip().rpartition(chr(10))[2]}")
        return {path: _table(told) for path, told in json.loads(ended.stdout).items()}


def _all(wanted: Mapping[str, Sequence[int]], fault: str) -> dict[str, TableRows]:
    return {path: TableRows({}, fault) for path in wanted}


def _table(told: Mapping[str, object]) -> TableRows:
    rows, fault = told.get("rows"), told.get("fault")
    assert rows is None or isinstance(rows, dict)
    cells = {int(row): of_row for row, of_row in (rows or {}).items()}
    return TableRows(cells, None if fault is None else f"It cannot be read: {fault}.")
