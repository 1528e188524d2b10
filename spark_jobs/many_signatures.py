"""Own what a search by MANY takes for the signatures of columns: those that are kept, and others made anew and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.core.corpus_choices import Parameters
from service.core.errors import DamagedIndexError
from service.core.records import Int32s, Int64s, UInt64s
from spark_jobs.corpus_index import CorpusIndex, Part, PartColumns
from spark_jobs.corpus_signatures import no_signatures


@dataclass(frozen=True, slots=True)
class KeptSignatures:
    """Give the signatures of columns by their ids, each id once; `described` has the parts by their names.

    A part whose signatures are not there, of other parameters, or damaged, is signed from its value keys: it is in
    `made` then, with the file that was written.
    """

    index: CorpusIndex
    parts: Sequence[PartColumns]
    described: Mapping[str, Part]
    parameters: Parameters
    made: dict[str, Part] = field(default_factory=dict)

    def __call__(self, column_ids: Int32s) -> UInt64s:
        """Give them in the order of the ids, uint64[n, words]. Raises DamagedIndexError where a part is damaged."""
        signatures = no_signatures(len(column_ids), self.parameters)
        order = np.argsort(column_ids)
        wanted = column_ids[order]
        for part in self.parts:
            place = np.searchsorted(wanted, part.column_ids)
            rows = np.flatnonzero(np.append(wanted, np.int32(-2))[place] == part.column_ids)
            if len(rows):
                self._take(part.part, rows, signatures, order[place[rows]])
        return signatures

    def _take(self, name: str, rows: Int64s, signatures: UInt64s, places: Int64s) -> None:
        part = self.made.get(name, self.described[name])
        if part.is_signed(self.parameters):
            try:
                return self._read(part, rows, signatures, places)
            except DamagedIndexError:
                pass  # the value keys have all that is needed
        self.made[name] = self.index.sign(part, self.parameters)
        return self._read(self.made[name], rows, signatures, places)

    def _read(self, part: Part, rows: Int64s, signatures: UInt64s, places: Int64s) -> None:
        for first, block in self.index.signatures(part, self.parameters):
            low, high = np.searchsorted(rows, [first, first + len(block)])
            signatures[places[low:high]] = block[rows[low:high] - first]
