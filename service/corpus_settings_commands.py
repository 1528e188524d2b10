"""Own `subsetd corpus add` and `set`: what a corpus is, and what of that can be changed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

from service import corpus_wiring
from service.core.corpus import FILTERS, PACKINGS, CorpusKind, CorpusSettings, parse_filters, preset_null_tokens
from service.core.corpus_choices import Algorithm, Strategy
from service.core.errors import SourceError
from service.core.near_matches import Near
from service.terminal import out
from service.usecases.corpora import NewCorpus

ENDINGS = {
    ".csv": CorpusKind.CSV,
    ".tsv": CorpusKind.CSV,
    ".txt": CorpusKind.CSV,
    ".parquet": CorpusKind.PARQUET,
    ".pq": CorpusKind.PARQUET,
    ".jsonl": CorpusKind.JSONL,
    ".ndjson": CorpusKind.JSONL,
    ".json": CorpusKind.JSONL,
}
"""Of files, before the ending of a packed one, and the kind of a corpus of them."""

RUNNING = ("schedule", "time_limit_seconds", "retries")
"""What says when a corpus is refreshed; all else are settings."""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the corpus.")]
OPTIONS: dict[str, Any] = {
    "null_tokens": Annotated[
        list[str] | None,
        typer.Option("--null-token", help="Text that means NULL; `paper` for MANY's list of 14; repeatable."),
    ],
    "delimiter": Annotated[
        str | None, typer.Option("--delimiter", help="Between cells; default: a tab in .tsv, else a comma.")
    ],
    "quote": Annotated[str | None, typer.Option("--quote", help="Quoting character of CSV files.")],
    "header": Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether CSV files begin with a header; default: yes.")
    ],
    "encoding": Annotated[str | None, typer.Option("--encoding", help="Encoding of CSV files; default utf-8.")],
    "db_schema": Annotated[str | None, typer.Option("--db-schema", help="Schema of a Postgres; default public.")],
    "filters": Annotated[
        str | None,
        typer.Option(
            "--filters",
            help="What is left out: none, paper, or some of null-columns, integer-columns, non-unique-referenced, "
            "coverage=0.2, min-values=3, with commas between them; default: none.",
        ),
    ],
    "threshold": Annotated[
        str | None, typer.Option("--threshold", help="Share of the dependent's values to be in the other; default 1.")
    ],
    "algorithm": Annotated[
        Algorithm | None, typer.Option("--algorithm", help="Default: what costs less, decided at each refresh.")
    ],
    "bits": Annotated[int | None, typer.Option("--bits", help="m: bits of a signature; default 650.")],
    "hashes": Annotated[int | None, typer.Option("--hashes", help="k: hash functions; default 6.")],
    "passes": Annotated[int | None, typer.Option("--passes", help="p: signatures of a column; default 2.")],
    "strategy": Annotated[Strategy | None, typer.Option("--strategy", help="Which side is given; dep2refs.")],
    "top": Annotated[
        int | None,
        typer.Option("--top", help="Keep only so many referenced columns of each dependent, the best covered."),
    ],
    "partitions": Annotated[int | None, typer.Option("--partitions", help="Of Spark; default: by size.")],
    "max_failed": Annotated[
        str | None, typer.Option("--max-failed", help="Share of tables that may be unreadable; default 0.1.")
    ],
    "max_table_bytes": Annotated[
        int | None,
        typer.Option(
            "--max-table-bytes", help="A table of more bytes is not read, and is a fault; default 1073741824."
        ),
    ],
    "joinable": Annotated[
        bool | None,
        typer.Option(
            "--joinable/--no-joinable", help="Whether each refresh indexes all cells for `joinable`; default: no."
        ),
    ],
    "near": Annotated[
        list[Near] | None,
        typer.Option("--near", help="What `joinable` does not look at in cells, once they are indexed so; repeatable."),
    ],
    "schedule": Annotated[
        str | None, typer.Option("--schedule", help="When it is refreshed: cron's five fields, in UTC: '30 2 * * *'.")
    ],
    "time_limit_seconds": Annotated[
        int | None,
        typer.Option(
            "--time-limit", min=1, max=(1 << 31) - 1, help="Seconds that a refresh may take; default: no limit."
        ),
    ],
    "retries": Annotated[
        int | None, typer.Option("--retries", min=0, max=100, help="Attempts behind one that failed; default 0.")
    ],
}
"""What both commands take, by the names of fields; none has a default here, so that what is given is seen."""

Command = TypeVar("Command", bound=Callable[..., None])


def _with_options(command: Command) -> Command:
    """Show OPTIONS to typer in the place of a command's `**options`, and before what it takes by keyword alone."""
    *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    first = [parameter for parameter in own if parameter.kind is not Parameter.KEYWORD_ONLY]
    shared = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=OPTIONS[name]) for name in OPTIONS]
    shown: Any = command
    shown.__signature__ = Signature([*first, *shared, *own[len(first) :]])
    return command


@_with_options
def add(
    name: NameArgument,
    location: Annotated[
        str,
        typer.Argument(help="A folder or bucket of CSV, Parquet, or JSON lines (a table a line), or postgresql://..."),
    ],
    kind: Annotated[CorpusKind | None, typer.Option("--kind", help="Default: by the files' endings.")] = None,
    *,
    index: Annotated[
        str | None, typer.Option("--index", help="Folder of the index; default below SUBSETD_DATA_DIR.")
    ] = None,
    **options: Any,
) -> None:
    """Register a corpus; `subsetd corpus refresh NAME --wait` then reads it."""
    place = location if "://" in location else os.path.abspath(location)
    if index is not None and "://" not in index:
        index = os.path.abspath(index)
    given = _given({**options, "index": index})
    new = NewCorpus(
        name, place, kind or _kind_of(place), **given | {"settings": CorpusSettings.from_json(given["settings"])}
    )
    with corpus_wiring.corpus_register(migrate=True) as register:
        corpus = register.add(new)
    out.print(
        Text(f"{corpus.name}: {corpus.kind} in {corpus.location}. Refresh it: subsetd corpus refresh {name} --wait")
    )


@_with_options
def set_(
    name: NameArgument,
    *,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="OPTION", help="Give an option its default again, as in --unset schedule."),
    ] = None,
    **options: Any,
) -> None:
    """Change how a corpus is read, what is looked for, or when; the next refresh goes by it, and reads all anew."""
    changes = _given(options)
    for option in dict.fromkeys(unset or ()):
        _unset(changes, option)
    if changes == {"settings": {}}:
        raise SourceError(f"Nothing is to be changed of {name}: give an option, as `subsetd corpus set --help` says.")
    with corpus_wiring.corpus_register() as register:
        corpus = register.change(name, changes)
    out.print(Text(f"{corpus.name} is changed: subsetd corpus show {name}"))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give the options that are there as the fields of a corpus, with settings as an object of their own."""
    own = {name: options[name] for name in RUNNING if options[name] is not None}
    known = {name: options.get(name) for name in CorpusSettings().to_json()}
    settings = {name: value for name, value in known.items() if value not in (None, [], ())}
    if "null_tokens" in settings:
        settings["null_tokens"] = preset_null_tokens(tuple(settings["null_tokens"]))
    if options["filters"] is not None:
        settings |= {**_defaults(FILTERS), **parse_filters(options["filters"])}
    return own | {"settings": settings}


def _defaults(names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in CorpusSettings().to_json().items() if name in names}


def _unset(changes: dict[str, Any], option: str) -> None:
    """Add to changes that an option has its default again; raise SourceError when there is none of this name."""
    words = {"null_token": "null_tokens", "time_limit": "time_limit_seconds"}
    name = option.removeprefix("--").replace("-", "_")
    name = words.get(name, name)
    settings = CorpusSettings().to_json()
    if name in changes or name in changes["settings"]:
        raise SourceError(f"--unset {option}: the option is given as well; leave one of the two out.")
    if name in RUNNING:
        changes[name] = NewCorpus.__dataclass_fields__[name].default
    elif name == "filters":
        changes["settings"] |= _defaults(FILTERS)
    elif name in settings:
        changes["settings"][name] = settings[name]
    else:
        raise SourceError(f"--unset {option}: `subsetd corpus set` has no such option; it has those of its --help.")


def _kind_of(location: str) -> CorpusKind:
    """Tell what a folder is made of by the first file whose ending says it."""
    if location.startswith(("postgresql://", "postgres://")):
        return CorpusKind.POSTGRES
    files = [location] if "://" in location or os.path.isfile(location) else _files_below(location)
    for path in files:
        suffixes = Path(path.lower()).suffixes
        kind = ENDINGS.get(next((suffix for suffix in reversed(suffixes) if suffix not in PACKINGS), ""))
        if kind is not None:
            return kind
    raise SourceError("What the location is made of is not seen from its files' endings: say it with --kind.")


def _files_below(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, file) for file in sorted(files))
