"""Own the command lines of the jobs: what all say of files and sketches, and the bootstrap's."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.core.errors import SourceError
from service.core.estimators import bucket_bits_for
from service.core.model import is_place
from service.core.shown_values import parse_mask
from service.core.sketch_upkeep import DEFAULT_FORM, FixedForm, SketchForm
from service.core.typed_names import read_list
from service.store.feed_start import FeedStart
from spark_jobs.row_images import MODES
from spark_jobs.session import submitted_master
from spark_jobs.sources import Options


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; options of a run are fields of `Options`, the others are `master` and `spark_log`."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.bootstrap",
        description="Read a source once, by one Spark job, and make its inclusion dependencies the served state.",
    )
    add = parser.add_argument
    add_job_options(parser)
    add_reading_options(parser)
    add("--replace", action="store_true", help="read a source anew that was bootstrapped before")
    add(
        "--forget-options",
        action="store_true",
        help="with --replace: what was said of the source before counts no more",
    )
    add("--qualify", action="store_true", help="put the source's name before its schemas' names")
    add("--insert-only", action="store_true", help="keep no frequencies; deletes will be refused")
    add("--sketch-only", action="store_true", help="keep no values: sketches and counters alone, answers are estimates")
    add("--store-values", metavar="WHAT", help="what to keep of values: full, prefix[:N] or none (default: full)")
    add(
        "--mask", action="append", default=[], metavar="SCHEMA.TABLE.COLUMN[=WHAT]",
        help="what to keep of a column's values: none (without =), prefix[:N] or full; repeatable",
    )  # fmt: skip
    add("--no-sketches", action="store_true", help="keep no sketches of the state's columns")
    add("--partitions", type=int, help="key ranges, rounded to a power of 2 (default: by size)")
    add(
        "--feed-position", nargs=4, action="append", default=[], metavar=("FEED", "TOPIC", "PARTITION", "OFFSET"),
        help="where a feed goes on after this bootstrap; repeatable",
    )  # fmt: skip
    add("--row-images", default="auto", choices=MODES, help="whether to keep rows, for changes without them (auto)")
    add(
        "--key", action="append", default=[], metavar="TABLE=COLUMN,...",
        help="columns that tell a table's rows apart, which are then kept; repeatable",
    )  # fmt: skip
    add(
        "--track-key", action="append", default=[], metavar="TABLE=COLUMN,...",
        help="columns whose tuples are followed as those of a key; repeatable",
    )  # fmt: skip
    add("--no-declared-keys", action="store_true", help="of Postgres: do not track the keys that the source declares")
    add("--only-table", action="append", default=[], metavar="TABLE", help="of Postgres: read this table; repeatable")
    add("--published", action="store_true", help="of Postgres: leave out generated columns that no change tells")
    add("--snapshot", help="of Postgres: read in this exported snapshot")
    add("--feed-start", type=FeedStart.parse, help="the feed that was made for this bootstrap, as JSON")
    add("--clusters-only", action="store_true", help="count clusters and INDs, store nothing")
    add("--check", action="store_true", help="hold the source against the served state, change nothing")
    add("--schema-registry", help="http://host:port of the schemas of Avro topics; - reads it from standard input")
    add("--fail-at", choices=["planning", "map", "reduce", "commit"], help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    read_secrets(parsed, "database_url", "source", "schema_registry")
    if parsed.sketch_only and (parsed.clusters_only or parsed.no_sketches):
        parser.error("--sketch-only needs sketches, and a state to keep them in")
    if not parsed.clusters_only and not parsed.database_url:
        parser.error("--database-url is needed, unless --clusters-only is given")
    for *_, partition, offset in parsed.feed_position:
        if not is_place(partition, offset):
            parser.error(f"--feed-position: {partition}, {offset} are no numbers of a partition and an offset")
    places = Counter(tuple(given[:3]) for given in parsed.feed_position)
    for place, times in places.items():
        if times > 1:
            parser.error(f"--feed-position: {','.join(place)} is given {times} times")
    return parsed


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add what every Spark job that reads a source is told."""
    add = parser.add_argument
    add(
        "source",
        help="folder or file of CSV or Parquet (a path or URI that all executors reach), or postgresql://...; "
        "- reads it from standard input, @FILE from a file",
    )
    add("--name", required=True, help="name of the source; of files, the schema's name as well")
    add("--task-bytes", type=int, help="source bytes of one task (default: 96 MB)")
    add_engine_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add what every Spark job is told."""
    add = parser.add_argument
    add(
        "--database-url",
        help="the state's database; - reads it from standard input, @FILE from a file: no process list shows it there",
    )
    add(
        "--master", default=submitted_master() or "local[*]", help="Spark master (default: spark-submit's, or local[*])"
    )
    add("--driver-memory", default="2g", help="heap of the driver (default: 2g)")
    add("--spark-log", default="off", choices=["off", "error", "warn", "info"], help="level of Spark's own log")


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add what is told of files, and of the sketches that are made of them."""
    add = parser.add_argument
    add("--format", choices=["csv", "parquet"], help="what to read of a folder that holds both")
    add("--null-token", action="append", default=[], help="a text that is NULL, compared after unquoting; repeatable")
    add("--delimiter", help="of CSV (default: comma; tab when all files end in .tsv)")
    add("--quote", default='"', help='of CSV (default: "; an empty text: nothing quotes)')
    add("--encoding", default="utf-8", help="of CSV (default: utf-8)")
    add("--no-header", action="store_true", help="CSV files have no header; columns become column_1, column_2, ...")
    add("--exclude", action="append", default=[], metavar="TABLE", help="leave a table out; repeatable")
    add(
        "--sketch-bucket-bits",
        type=int,
        default=DEFAULT_FORM.bucket_bits,
        help=f"a sketch has 2^m buckets (default: {DEFAULT_FORM.bucket_bits})",
    )
    add("--sketch-k", type=int, default=DEFAULT_FORM.k, help=f"smallest hashes of a sketch (default: {DEFAULT_FORM.k})")


def add_form_options(parser: argparse.ArgumentParser) -> None:
    """Add what is told of sketches that are compared, and not kept current."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--bytes", type=int, help="a fixed size: as much of each hash as fits into so many bytes")
    either.add_argument("--error", type=float, help="as many buckets as keep coefficients within it, at 95 %%")


def form_of(given: argparse.Namespace) -> SketchForm | FixedForm | None:
    """Give the form that is asked for by `add_form_options`; raise SketchError for one that cannot be."""
    if given.bytes is not None:
        form = FixedForm(given.bytes)
        form.empty()
        return form
    return None if given.error is None else SketchForm.of(bucket_bits_for(given.error), given.sketch_k)


def reading_options(given: argparse.Namespace) -> dict[str, Any]:
    """Give the fields of `Options` that say how files are read and sketched."""
    return {
        "format": given.format,
        "null_tokens": tuple(given.null_token),
        "delimiter": given.delimiter,
        "header": not given.no_header,
        "quote": given.quote,
        "encoding": given.encoding,
        "exclude": tuple(given.exclude),
        "sketches": SketchForm.of(given.sketch_bucket_bits, given.sketch_k),
    }


def read_secrets(parsed: argparse.Namespace, *names: str) -> None:
    """Read arguments that are `-` from standard input, in this order, and those that are `@FILE` from files.

    Others see a command line, but not a pipe. A driver that a cluster starts has no standard input of ours, but files.
    Raises SourceError for a file that cannot be read.
    """
    for name in names:
        given = getattr(parsed, name)
        if given == "-":
            setattr(parsed, name, sys.stdin.readline().rstrip("\n"))
        elif given is not None and given.startswith("@"):
            try:
                setattr(parsed, name, Path(given[1:]).read_text().strip())
            except (OSError, ValueError) as error:
                raise SourceError(f"{given[1:]}: the address that is to be in it cannot be read: {error}.") from error


def parse_job(parser: argparse.ArgumentParser, arguments: Sequence[str] | None, *secrets: str) -> argparse.Namespace:
    """Read the command line of a job that needs the state's database, and its secrets: the database's address first."""
    parsed = parser.parse_args(arguments)
    read_secrets(parsed, "database_url", *secrets)
    if not parsed.database_url:
        parser.error("--database-url is needed")
    return parsed


def _key(text: str) -> tuple[str, tuple[str, ...]]:
    table, _, columns = text.partition("=")
    return table, read_list(columns) or ("",)


def options_of(given: argparse.Namespace) -> Options:
    """Give the options of a run."""
    reading = reading_options(given)
    if given.no_sketches:
        reading["sketches"] = None
    return Options(
        source=given.source,
        name=given.name,
        database_url=given.database_url,
        replace=given.replace,
        as_before=given.replace and not given.forget_options,
        insert_only=given.insert_only,
        sketch_only=given.sketch_only,
        qualify=given.qualify,
        partitions=given.partitions,
        task_bytes=given.task_bytes,
        clusters_only=given.clusters_only,
        check=given.check,
        schema_registry=given.schema_registry,
        feed_positions=tuple((f, t, int(p), int(o)) for f, t, p, o in given.feed_position),
        row_images=given.row_images,
        keys=tuple(map(_key, given.key)),
        tracked_keys=tuple(map(_key, given.track_key)),
        declared_keys=not given.no_declared_keys,
        only_tables=tuple(given.only_table),
        published=given.published,
        snapshot=given.snapshot,
        feed_start=given.feed_start,
        fail_at=given.fail_at,
        store_values=given.store_values,
        masks=tuple(map(parse_mask, given.mask)),
        **reading,
    )
