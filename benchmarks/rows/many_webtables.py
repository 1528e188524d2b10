"""Own the row `many-webtables`: INDs of 2,000 web tables and of their copies, beside the reference in plain Python."""

from __future__ import annotations

from pathlib import Path

from benchmarks import many_process
from benchmarks.context import Context
from benchmarks.corpora import copies, read_corpus
from benchmarks.corpus_refreshes import MASTER, BenchmarkedCorpus, options_for, refresh_compiled, write_copies
from benchmarks.data_sets import unpack
from benchmarks.results_file import Result
from benchmarks.state import server

SEED = 0
"""Nothing is drawn."""

ARCHIVE = Path(__file__).parents[2] / "tests" / "data" / "webtables_2k" / "webtables_2k.tar.zst"
INDS = {1: 375_520, 2: 789_040, 4: 1_730_080, 8: 4_068_160}
"""Published INDs by number of copies, without filters."""
LARGEST = max(INDS)
BASELINE = "reference in plain Python"


def run(context: Context) -> list[Result]:
    """Measure both algorithms and the reference, each in a process of its own, and whole refreshes of the largest."""
    corpus = read_corpus(unpacked(context.work) / "tables")
    results = []
    for count, published in INDS.items():
        file = many_process.write(copies(corpus, count) if count > 1 else corpus, context.work / f"many-{count}.arrow")
        for filters in many_process.FILTERS if count == LARGEST else ("none",):
            runs = {
                what: many_process.measure(file, what, filters, context.logs / f"many-{what}-{count}-{filters}.log")
                for what in ("reference", "rarest-first", "signatures")
            }
            context.say(f"x{count}, filters {filters}: {runs}")
            reference = runs.pop("reference")
            name = f"x{count}" + (", the paper's filters" if filters != "none" else "")
            results.append(Result(f"{name}: columns", len(corpus.names) * count, ""))
            if filters == "none":
                goal = f"value = {published}"
                results.append(Result(f"{name}: INDs, {BASELINE}", reference["inds"], "", goal=goal))
            for what, one in runs.items():
                goal = "ratio <= 0.3" if what == "rarest-first" else "ratio <= 1.5"
                results += [
                    Result(f"{name}: INDs, {what}", one["inds"], "", BASELINE, reference["inds"], "ratio = 1"),
                    Result(f"{name}: CPU, {what}", one["cpu"], "s", BASELINE, reference["cpu"], goal),
                    Result(f"{name}: memory, {what}", one["peak"], "GB", BASELINE, reference["peak"], "value <= 1"),
                ]
            if count == LARGEST:
                results += _refresh(context, filters, name, reference)
    return results


def _refresh(context: Context, filters: str, name: str, reference: dict[str, float]) -> list[Result]:
    """Measure the command that users type, from CSV to served INDs."""
    folder = write_copies(unpacked(context.work) / "tables", LARGEST, context.work / f"webtables-x{LARGEST}")
    with server(context) as postgres:
        corpus = BenchmarkedCorpus(context, postgres, f"many_webtables_{filters}")
        one = refresh_compiled(corpus, folder, *options_for(filters))
        postgres.drop(corpus.name)
    results = [
        Result(f"{name}: INDs, a refresh", one.report["inds"], "", BASELINE, reference["inds"], "ratio = 1"),
        Result(
            f"{name}: a refresh on {MASTER}, indexing and landing apart", one.seconds - one.indexing - one.landing, "s",
            BASELINE, reference["seconds"], "ratio <= 2",
        ),
        Result(f"{name}: the same, all included", one.seconds, "s", BASELINE, reference["seconds"]),
        Result(f"{name}: memory, a refresh", one.peak_bytes / 1e9, "GB"),
        Result(f"{name}: memory, Postgres", one.postgres_peak_bytes / 1e9, "GB"),
    ]  # fmt: skip
    if filters == "none":
        goal = "value >= 300000"
        results.append(Result(f"{name}: found, stored, indexed, landed", one.stored_per_second, "INDs/s", goal=goal))
    return results


def unpacked(work: Path) -> Path:
    """Unpack the web tables, once, and give their folder."""
    folder = work / "webtables_2k"
    if not folder.exists():
        unpack(ARCHIVE, work)
    return folder
