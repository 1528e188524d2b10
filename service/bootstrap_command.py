"""Own `subsetd bootstrap`, and the starting of the Spark job for all commands that need it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from service import wiring
from service.config import ConfigError, Settings
from service.core.errors import FeedError, SourceError
from service.core.model import is_place
from service.job_process import run_attached, spark_command
from service.reading_options import (
    DelimiterOption,
    EncodingOption,
    ExcludeOption,
    HeaderOption,
    MasterOption,
    NullTokenOption,
    QuoteOption,
    csv_told,
    job_told,
)

QualifyOption = Annotated[
    bool, typer.Option("--qualify", help="Put the source's name before its schemas', which another source has too.")
]
RowImagesOption = Annotated[
    str | None,
    typer.Option(
        "--row-images", help="auto, always or never: keep rows, for changes without whole before-images; default auto."
    ),
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", help="TABLE=COLUMN,... that tell a table's rows apart, which are kept; repeatable."),
]
ForgetOption = Annotated[
    bool,
    typer.Option(
        "--forget-options",
        help="With --replace: what was said of the source before (--exclude, --sketch-only, ...) counts no more.",
    ),
]
TrackKeyOption = Annotated[
    list[str] | None,
    typer.Option("--track-key", help="TABLE=COLUMN,... whose tuples are followed as those of a key; repeatable."),
]
StoreValuesOption = Annotated[
    str | None,
    typer.Option("--store-values", help="What to keep of values: full, prefix, prefix:N or none; default full."),
]
MaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mask", help="SCHEMA.TABLE.COLUMN, or with =prefix, =prefix:N, =full: what to keep of its values; repeatable."
    ),
]


def bootstrap(
    source: Annotated[
        str, typer.Argument(help="A folder of CSV or Parquet files, postgresql://..., or kafka://host:port/topic,...")
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the source; of files also the schema.")],
    master: MasterOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Read a source anew that was read before.")] = False,
    forget_options: ForgetOption = False,
    insert_only: Annotated[
        bool, typer.Option("--insert-only", help="Keep no frequencies; deletes are refused.")
    ] = False,
    sketch_only: Annotated[
        bool, typer.Option("--sketch-only", help="Keep no values, only sketches and counters; answers are estimates.")
    ] = False,
    null_token: NullTokenOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuoteOption = None,
    header: HeaderOption = True,
    encoding: EncodingOption = None,
    exclude: ExcludeOption = None,
    only_table: Annotated[
        list[str] | None,
        typer.Option("--only-table", help="schema.table of a Postgres to read, and no other; repeatable."),
    ] = None,
    qualify: QualifyOption = False,
    feed_position: Annotated[
        list[str] | None,
        typer.Option("--feed-position", help="FEED,TOPIC,PARTITION,OFFSET at which the data was read; repeatable."),
    ] = None,
    row_images: RowImagesOption = None,
    key: KeyOption = None,
    track_key: TrackKeyOption = None,
    store_values: StoreValuesOption = None,
    mask: MaskOption = None,
    declared_keys: Annotated[
        bool, typer.Option(help="Of Postgres: track the keys that it declares, with the tuples of composite ones.")
    ] = True,
) -> None:
    """Read a source once with a Spark job: clusters, generator records, counters, and the INDs."""
    settings = wiring.configured_settings()
    arguments = ["--name", name]
    arguments += [
        flag
        for flag, given in (
            ("--replace", replace),
            ("--forget-options", forget_options),
            ("--insert-only", insert_only),
            ("--sketch-only", sketch_only),
            ("--qualify", qualify),
            ("--no-declared-keys", not declared_keys),
        )
        if given
    ]
    arguments += [*job_told(master, exclude), *csv_told(null_token, delimiter, quoting, header, encoding)]
    if only_table and not source.startswith("postgres"):
        raise SourceError(f"--only-table {only_table[0]}: the source is no Postgres; name the files or topics to read.")
    of_files = csv_told(None, delimiter, quoting, header, encoding)
    if of_files and re.match("(postgres|kafka)", source):
        raise SourceError(f"{of_files[0]}: {source.partition(':')[0]} is no CSV; leave the option out.")
    arguments += [f"--only-table={table}" for table in only_table or ()]
    arguments += [*images_told(row_images, key), *values_told(store_values, mask)]
    arguments += [f"--track-key={columns}" for columns in track_key or ()]
    for position in feed_position or ():
        arguments += ["--feed-position", *_position_parts(position)]
    with wiring.state_database(settings, migrate=True) as url:
        run_bootstrap(url, settings, source, arguments)


def run_bootstrap(url: str, settings: Settings, source: str, arguments: Sequence[str]) -> None:
    code = spark_bootstrap(url, settings, source, arguments)
    if code:
        raise typer.Exit(code)


def spark_bootstrap(url: str, settings: Settings, source: str, arguments: Sequence[str]) -> int:
    """Run the bootstrap; addresses may have passwords: the state's, the source's, that of the schema registry."""
    told = [] if settings.schema_registry is None else ["--schema-registry=-"]
    told += ["--no-sketches"] if settings.sketches == "off" else []
    secrets = [secret for secret in (url, source, settings.schema_registry) if secret is not None]
    return spark_job("spark_jobs.bootstrap", settings, ["-", *told, *arguments], secrets)


def spark_job(module: str, settings: Settings, arguments: Sequence[str], secrets: Sequence[str]) -> int:
    """Run a Spark job that makes sketches, as `run_spark` does."""
    return run_spark(module, settings, [*sketch_sizes(settings), *arguments], secrets)


def run_spark(module: str, settings: Settings, arguments: Sequence[str], secrets: Sequence[str]) -> int:
    """Run a Spark job as a process of its own: it stands above the service, which does not know it.

    Addresses with passwords, the state's first, go to its standard input.
    """
    return run_attached(spark_command(module, settings.spark_master, arguments), secrets)


def sketch_sizes(settings: Settings) -> list[str]:
    """Say to a job how large sketches are; raise ConfigError where two settings say it, SketchError where none can."""
    bucket_bits = settings.sketch_bucket_bits
    if settings.sketch_error is not None:
        if "sketch_bucket_bits" in settings.model_fields_set:
            raise ConfigError(
                "SUBSETD_SKETCH_ERROR and SUBSETD_SKETCH_BUCKET_BITS both say how many buckets a sketch has; unset one."
            )
        from service.core.estimators import bucket_bits_for

        bucket_bits = bucket_bits_for(settings.sketch_error)
    return [f"--sketch-bucket-bits={bucket_bits}", f"--sketch-k={settings.sketch_k}"]


def images_told(row_images: str | None, keys: Sequence[str] | None) -> list[str]:
    told = [] if row_images is None else [f"--row-images={row_images}"]
    return told + [f"--key={key}" for key in keys or ()]


def values_told(store_values: str | None, masks: Sequence[str] | None) -> list[str]:
    told = [] if store_values is None else [f"--store-values={store_values}"]
    return told + [f"--mask={mask}" for mask in masks or ()]


def _position_parts(text: str) -> list[str]:
    parts = text.rsplit(",", 3)
    if parts[0].startswith("kafka://"):
        from service import feed_wiring

        parts[0] = feed_wiring.feed_name(parts[0], wiring.configured_settings())
    if len(parts) != 4 or not is_place(*parts[2:]):
        raise FeedError(
            f"--feed-position {text!r} is not FEED,TOPIC,PARTITION,OFFSET (as `subsetd status` shows them)."
        )
    return parts
