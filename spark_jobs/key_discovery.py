"""Own the search for keys of several columns, and for the foreign keys that refer to them: one Spark job.

    python -m spark_jobs.key_discovery ADDRESS --name NAME --database-url URL [--master local[*]] [--width 3]

Tables are read from a source that the state knows, in the way in which it was read there; one task searches one table.
The candidates for composite foreign keys come from the state's coefficients of columns (Algorithm B.1, phase 2), and
are confirmed over the tuples, split by split, and ranked. Values never leave the task that reads them, only hashes of
tuples do.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from service.core.errors import SourceError
from service.core.foreign_keys.candidates import THETA, Columns, Inclusions, composite_candidates
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.ranking import Ranked, rank
from service.core.foreign_keys.sides import Side
from service.core.key_search import MEMORY, MOST_COMBINATIONS, WIDTH, Counted, FoundKeys, Share, confirm
from service.core.model import AttributeName
from service.core.records import UInt64s, distinct_of
from service.store.database import connect, make_engine
from service.store.generation import DRIVER_NAME, read_source
from service.store.migrate import require_current
from service.store.reader import PostgresStateReader
from service.usecases.answers import EVERY_ATTRIBUTE, AttributeInfo
from service.usecases.coefficient_table import Coefficients, Question
from service.usecases.foreign_keys import column_profile
from service.usecases.sketched_columns import ALL
from spark_jobs.bootstrap import TASK_BYTES
from spark_jobs.command_line import add_job_options, parse_job
from spark_jobs.job import run_job
from spark_jobs.key_tasks import KeyTask, TableReading, TupleTask
from spark_jobs.parallel import run_parallel, telling
from spark_jobs.progress import Display, Quiet, make_display, watching
from spark_jobs.sources import FoldedSource, Options, Source, SourceTable, open_source
from spark_jobs.telling import Telling

MOST_CANDIDATES = 1_000_000
"""Composite candidates that are confirmed at most; a search that has more says so."""

MOST_OF_A_TABLE = 10_000
"""Candidates for one key out of one table that are confirmed at most."""


@dataclass(frozen=True, slots=True)
class Search:
    """Say how far to search: columns of a key, combinations of a table, bytes of hashes, and least coefficients.

    `column_theta` is that of a composite's columns: below exact inclusion they can be less contained than their tuples
    are.
    """

    width: int = WIDTH
    most: int = MOST_COMBINATIONS
    memory: int = MEMORY
    theta: float = THETA
    column_theta: float = THETA


@dataclass(frozen=True, slots=True)
class DiscoveredKey:
    """Name a minimal key, of one column or more, or one that its source declares."""

    table: tuple[str, str]
    columns: tuple[str, ...]
    declared: bool


@dataclass(frozen=True, slots=True)
class CompositeForeignKey:
    """Name columns whose tuples a key has, side by side, as schema, table and column; `missing` tuples it has not.

    `score` and `suggested` are those of its rank among the others.
    """

    dependent: tuple[tuple[str, str, str], ...]
    referenced: tuple[tuple[str, str, str], ...]
    coefficient: float
    missing: int
    score: float
    suggested: bool


@dataclass(slots=True)
class Discovered:
    """Hold what was found, foreign keys best first; `incomplete` says in words where the search has stopped early.

    `track` has what is to be tracked for it to be kept current, and is not: of tables without a shorter or declared key
    their smallest one, and the sides of suggested foreign keys.
    """

    keys: list[DiscoveredKey] = field(default_factory=list)
    foreign_keys: list[CompositeForeignKey] = field(default_factory=list)
    candidates: int = 0
    track: list[Side] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Known:
    """Hold what the state knows of a source's columns, by attribute id: `places` are (table, column) in the source.

    `tracked` tells of followed tuples, by their parts, whether they are a tracked key.
    """

    places: Mapping[int, tuple[int, int]]
    inclusions: Inclusions
    profiles: Mapping[int, ColumnProfile]
    tracked: Mapping[Columns, bool]


def discover_keys(
    spark: SparkSession | Callable[[], SparkSession], options: Options, search: Search, display: Display | None = None
) -> Discovered:
    """Find keys and composite foreign keys of a source that the state knows.

    `spark` may be a function that starts the session. Raises StateError for a source that the state has not, and
    SourceError for data that cannot be read.
    """
    start = time.monotonic()
    url = options.database_url
    assert url is not None
    require_current(url)
    with connect(url, DRIVER_NAME) as connection:
        options = options.remembered(*read_source(connection, options.name))
    display = display or Quiet()
    display.begin("planning")
    with closing(open_source(options)) as source:
        if isinstance(source, FoldedSource):
            raise SourceError(f"{source.location}: keys are searched in files or a database, which can be read again.")
        running = spark if isinstance(spark, SparkSession) else spark()
        found = _Discovery(running, source, options, search, display).run()
        source.confirm()
    found.seconds = time.monotonic() - start
    return found


class _Discovery:
    def __init__(self, spark: SparkSession, source: Source, options: Options, search: Search, display: Display) -> None:
        self.spark, self.source, self.options, self.search, self.display = spark, source, options, search, display
        self.tables = source.tables()
        self.splits = source.splits(options.task_bytes or TASK_BYTES, run_parallel(spark))
        self.readings = [
            TableReading(
                source.reader(), table, [split for split in self.splits if split.table == place],
                source.kind == "postgres", options.null_tokens,
            )
            for place, table in enumerate(self.tables)
        ]  # fmt: skip
        self.found = Discovered()

    def run(self) -> Discovered:
        search = self.search
        by_table: list[FoundKeys] = self._map(
            "searching keys", KeyTask(search.width, search.most, search.memory), self.readings
        )
        composites: list[tuple[int, Columns]] = []
        for place, (table, found) in enumerate(zip(self.tables, by_table, strict=True)):
            declared = {frozenset(key): key for key in _declared(table)}
            # What is declared has an order of its own, and need not be minimal.
            keys = {frozenset(key): key for key in found.keys} | declared
            composites += [(place, key) for key in keys.values() if len(key) > 1]
            self.found.keys += [
                DiscoveredKey((self._schema(table), table.name), _names(table, key), columns in declared)
                for columns, key in keys.items()
            ]
            if not found.is_complete:
                self.found.incomplete.append(f"{table}: {found.tried:,} combinations were tried, and there are more")
        if composites:
            self._foreign_keys(composites, [found.rows for found in by_table])
        return self.found

    def _foreign_keys(self, composites: Sequence[tuple[int, Columns]], rows: Sequence[int]) -> None:
        state = self._known(composites)
        known = state.places
        ids = {place: i for i, place in known.items()}
        keys = [
            tuple(ids[place, column] for column in key)
            for place, key in composites
            if all((place, column) in ids for column in key)
        ]
        cut: list[tuple[int, Columns]] = []
        wanted = composite_candidates(state.inclusions, keys, self.search.column_theta, MOST_OF_A_TABLE, cut)
        candidates = list(islice(wanted, MOST_CANDIDATES))
        if next(wanted, None) is not None:
            self.found.incomplete.append(f"{MOST_CANDIDATES:,} candidates for foreign keys were tried, there are more")
        tried = f"{MOST_OF_A_TABLE:,} candidates for {{}} were tried, there are more"
        self.found.incomplete += [f"{self.tables[place]}: {tried.format(self._side(key, known))}" for place, key in cut]
        self.found.candidates = len(candidates)

        def tuples(sides: Collection[Columns], share: Share) -> Mapping[Columns, UInt64s]:
            return self._tuples(sides, share, known)

        confirmed = confirm(
            tuples, candidates, lambda side: rows[known[side[0]][0]], self.search.theta, self.search.memory
        )
        measured = {
            candidate: Measured(of.coefficient, min(of.shared / max(rows[known[candidate.referenced[0]][0]], 1), 1.0))
            for candidate, of in confirmed.items()
        }
        ranked = rank(measured, state.profiles, keys)
        self.found.foreign_keys = [self._described(one, confirmed[one.candidate], known) for one in ranked]
        chosen = [one.candidate for one in ranked if one.suggested]
        wanted_sides = [candidate.referenced for candidate in chosen if not state.tracked.get(candidate.referenced)]
        wanted_sides += [candidate.dependent for candidate in chosen if candidate.dependent not in state.tracked]
        sides = (self._side(side, known) for side in dict.fromkeys((*self._smallest(composites, state), *wanted_sides)))
        self.found.track = list(sides)

    def _smallest(self, composites: Sequence[tuple[int, Columns]], state: _Known) -> Iterator[Columns]:
        """Give the smallest key of each table without a shorter or declared one, of which none is tracked yet.

        Keys of other sources are tracked, too, and some whose columns are not kept current any longer.
        """
        ids = {place: i for i, place in state.places.items()}
        has_one = {key.table for key in self.found.keys if key.declared or len(key.columns) == 1}
        of_source = [parts for parts, tracked in state.tracked.items() if tracked and state.places.keys() >= set(parts)]
        is_tracked = {state.places[parts[0]][0] for parts in of_source}
        for place, of_table in groupby(composites, itemgetter(0)):
            table = self.tables[place]
            if place not in is_tracked and (self._schema(table), table.name) not in has_one:
                keys = [key for _, key in of_table if all((place, column) in ids for column in key)]
                if keys:
                    yield tuple(ids[place, column] for column in min(keys, key=len))

    def _known(self, composites: Sequence[tuple[int, Columns]]) -> _Known:
        """Read the coefficients of columns with the keys' from the state, and what else it knows of the columns."""
        places = {(self._schema(table), table.name): place for place, table in enumerate(self.tables)}
        engine = make_engine(str(self.options.database_url), DRIVER_NAME)
        try:
            with PostgresStateReader(engine).snapshot() as snapshot:
                known: dict[int, tuple[int, int]] = {}
                attributes: list[AttributeInfo] = []
                for one in snapshot.attributes(EVERY_ATTRIBUTE, None, ALL):
                    place = places.get(one.name[:2])
                    columns = [] if place is None else [name for name, _ in self.tables[place].columns]
                    # A stale column's coefficients are old ones, and no key of it can be tracked.
                    if place is not None and one.name.column in columns and one.stale_since is None:
                        known[one.attribute_id] = place, columns.index(one.name.column)
                        attributes.append(one)
                parts = {(place, column) for place, key in composites for column in key}
                referenced = [one for one in attributes if known[one.attribute_id] in parts]
                table = Coefficients(snapshot, attributes, referenced, Question(threshold=self.search.column_theta))
                coefficients = {
                    (found.dependent.attribute_id, found.referenced.attribute_id): found.estimate.phi or 0.0  # type: ignore[union-attr]
                    for found in table.all()
                }
                primary = {
                    (place, column)
                    for place, of in enumerate(self.tables)
                    for key in of.constraints.keys
                    for column in key.columns
                    if key.is_primary
                }
                profiles = {
                    one.attribute_id: column_profile(
                        one,
                        round(table.distinct_count(one) or 0),
                        None,
                        (known[one.attribute_id][0], one.name.column) in primary,
                    )
                    for one in attributes
                }
                tracked = {one.parts: one.are_tracked for one in snapshot.tuples()}
        finally:
            engine.dispose()
        inclusions = Inclusions({i: place for i, (place, _) in known.items()}, coefficients)
        return _Known(known, inclusions, profiles, tracked)

    def _tuples(
        self, sides: Collection[Columns], share: Share, known: Mapping[int, tuple[int, int]]
    ) -> Mapping[Columns, UInt64s]:
        by_table: dict[int, dict[Columns, Columns]] = defaultdict(dict)
        for side in sides:
            by_table[known[side[0]][0]][side] = tuple(known[column][1] for column in side)
        asked = [
            (replace(self.readings[split.table], splits=[split]), list(dict.fromkeys(by_table[split.table].values())))
            for split in self.splits
            if split.table in by_table
        ]
        stage = f"confirming, {100 * share.part // share.parts} % are read"
        found: dict[tuple[int, Columns], list[UInt64s]] = defaultdict(list)
        results: list[Mapping[Columns, UInt64s]] = self._map(stage, TupleTask(share), asked)
        for (reading, _), result in zip(asked, results, strict=True):
            for columns, hashes in result.items():
                found[reading.splits[0].table, columns].append(hashes)
        return {
            side: distinct_of(np.concatenate([np.zeros(0, np.uint64), *found[place, columns]]))
            for place, local in by_table.items()
            for side, columns in local.items()
        }

    def _map(self, stage: str, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run a task for each table, or each split of some, and show how many are done."""
        context = self.spark.sparkContext
        with (
            telling(self.spark, self.source, self.splits),
            watching(context, self.display, [(stage, len(items))], str),
        ):
            return list(context.parallelize(items, max(len(items), 1)).map(Telling(task)).collect())

    def _schema(self, table: SourceTable) -> str:
        return f"{self.options.name}.{table.schema}" if self.options.qualify else table.schema

    def _side(self, columns: Columns, known: Mapping[int, tuple[int, int]]) -> Side:
        table = self.tables[known[columns[0]][0]]
        names = _names(table, [known[column][1] for column in columns])
        return Side.of([AttributeName(self._schema(table), table.name, name) for name in names])

    def _described(self, one: Ranked, of: Counted, known: Mapping[int, tuple[int, int]]) -> CompositeForeignKey:
        dependent, referenced = (tuple(self._side(side, known).names) for side in one.candidate)
        return CompositeForeignKey(
            dependent, referenced, of.coefficient, of.distinct - of.shared, one.score, one.suggested
        )


def _declared(table: SourceTable) -> list[Columns]:
    """Give the keys that a source declares of a table, by the places of their columns."""
    places = {name: place for place, (name, _) in enumerate(table.columns)}
    return [
        tuple(places[column] for column in key.columns)
        for key in table.constraints.keys
        if all(column in places for column in key.columns)
    ]


def _names(table: SourceTable, columns: Sequence[int]) -> tuple[str, ...]:
    return tuple(table.columns[column][0] for column in columns)


def describe(found: Discovered) -> str:
    """Tell what was found in a few lines."""
    lines = [f"{len(found.keys):,} keys in {found.seconds:.1f} s:"]
    lines += [
        f"  {'.'.join(key.table)} ({', '.join(key.columns)}){', declared' if key.declared else ''}"
        for key in found.keys
    ]
    lines.append(f"{len(found.foreign_keys):,} of {found.candidates:,} candidates for composite foreign keys hold:")
    for one in found.foreign_keys:
        own, key = (
            f"{'.'.join(side[0][:2])} ({', '.join(name[2] for name in side)})"
            for side in (one.dependent, one.referenced)
        )
        lines.append(
            f"  {own} -> {key}: {one.coefficient:.4f}, {one.missing:,} tuples are missing; scores {one.score:.3f}"
            f"{', suggested' if one.suggested else ''}"
        )
    if found.track:
        lines.append("to keep keys and what is suggested current, run it with --track, or:")
        lines += [f"  subsetd keys track {shlex.quote(str(side))}" for side in found.track]
    return "\n".join([*lines, *(f"not complete: {reason}" for reason in found.incomplete)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; exit code 1 for an error, whose message is on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.key_discovery",
        description="Find keys of several columns, and the foreign keys that refer to them, by one Spark job.",
    )
    add_job_options(parser)
    add = parser.add_argument
    add("--width", type=int, default=WIDTH, help="most columns of a key (default: %(default)s)")
    add("--most", type=int, default=MOST_COMBINATIONS, help="combinations of a table to try (default: %(default)s)")
    add("--memory", type=int, default=MEMORY >> 20, help="MB of hashes held at once by a task (default: %(default)s)")
    add("--min-coefficient", type=float, default=THETA, help="of a composite foreign key (default: %(default)s)")
    add("--min-column-coefficient", type=float, help="of its columns (default: as --min-coefficient)")
    add("--format", choices=["text", "json"], default="text", help="how to print what was found")
    add("--track-file", type=Path, help="a file to write what is to be tracked to, each as --key of the backfill")
    given = parse_job(parser, arguments, "source")
    theta = given.min_coefficient
    of_columns = theta if given.min_column_coefficient is None else given.min_column_coefficient
    search = Search(given.width, given.most, given.memory << 20, theta, of_columns)
    options = Options(given.source, given.name, given.database_url, task_bytes=given.task_bytes)
    display = make_display()

    def run(start: Callable[[], SparkSession]) -> Discovered:
        return discover_keys(start, options, search, display)

    def tell(found: Discovered) -> int:
        document = asdict(found) | {"track": [str(side) for side in found.track]}
        print(describe(found) if given.format == "text" else json.dumps(document, ensure_ascii=False))
        if given.track_file:
            keys = [json.dumps([side.schema, side.table, *side.columns]) for side in found.track]
            given.track_file.write_text(json.dumps(keys))
        return 0

    return run_job(given, "key discovery", run, tell, display)


if __name__ == "__main__":
    sys.exit(main())
