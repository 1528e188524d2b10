"""Own what is said of tables that nobody has seen: those of a file of JSON lines that could not be read to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow.compute as pc

from spark_jobs.corpus_sources import ReadingPlan, ReadResult
from spark_jobs.corpus_state import CorpusState
from spark_jobs.corpus_tables import packing_of


def unseen_tables(plan: ReadingPlan, results: Sequence[ReadResult], state: CorpusState) -> int:
    """Estimate how many tables there are beyond the faults in files of JSON lines that break off, or cannot be opened.

    As many as their bytes are worth in the files that were read whole, of the same packing where there are such: one
    such file may be most of a corpus, and must not count as one table. What was read of them, and what was served and
    is a fault each by now, is taken off. Files that nobody could list have no size, and count as their faults.
    """
    broken = {fault.path for result in results for fault in result.faults if fault.line is None}
    if not broken:
        return 0
    tables, listing = state.manifest.tables, plan.listing
    counted = pc.value_counts(tables["file"].filter(tables["line"].is_valid()))
    held = Counter({each["values"]: each["counts"] for each in counted.to_pylist()})
    sizes = {path: int(size) for path, size in zip(listing.paths, listing.sizes, strict=True)}
    read_bytes: Counter[str | None] = Counter()
    read_tables: Counter[str | None] = Counter()
    for path, count in held.items():
        if path not in broken:
            read_bytes[packing_of(path)] += sizes[path]
            read_tables[packing_of(path)] += count
    if not read_tables:
        return 0
    told = Counter(fault.path.partition("#")[0] for fault in state.faults)
    unseen = 0
    for path in broken & sizes.keys():
        packing = packing_of(path)
        counts = (read_tables[packing], read_bytes[packing]) if read_tables[packing] else (
            read_tables.total(), read_bytes.total(),
        )  # fmt: skip
        unseen += max(0, round(sizes[path] * counts[0] / counts[1]) - held[path] - told[path])
    return unseen
