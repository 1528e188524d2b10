"""Own the options of all commands that apply a feed's records, and the settings that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from service.usecases.batches import ErrorPolicy

OnErrorOption = Annotated[
    ErrorPolicy | None,
    typer.Option(
        "--on-error", help="none: stop at a bad record; all: set it aside; default SUBSETD_ON_ERROR, or none."
    ),
]
SourcesOption = Annotated[
    list[str] | None,
    typer.Option("--source", help="Source that the feed is of, where several could be; repeatable."),
]


def feed_settings(on_error: ErrorPolicy | None, sources: Sequence[str] | None) -> dict[str, str]:
    """Give the settings that are changed by what was given."""
    given = {} if on_error is None else {"on_error": on_error.value}
    return {**given, **({"feed_sources": ",".join(sources)} if sources else {})}
