"""Own what both clients share and no network is needed for: addresses, refusals, and what is sent and answered."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx
import pyarrow as pa
from pyarrow import csv as arrow_csv

from subsetd._tables import taken_over

LARGEST_PAGE = 1000
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0
"""Seconds between two looks at a job: twice as long each time."""

LONGEST_SILENCE = 45.0
"""Seconds without a word of a stream, which has one every 15, after which its connection is lost."""

Sent: TypeAlias = bytes | str | PathLike[str] | Iterable[Mapping[str, Any]] | Any
"""Rows: the bytes of a CSV, a path of one, mappings of names to values, an Arrow table, a frame of pandas or polars."""


class Problem(Exception):
    """The service refused, or failed: what it says of it (RFC 9457).

    `kind` is the type's name as /docs explains it; `errors`, `candidates` and `checks` are there where the service
    names parameters, attributes of one name, or conditions of readiness.
    """

    def __init__(self, status: int, told: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {told.get('detail') or told.get('title') or 'no reason was given'}")
        self.status = status
        self.kind = str(told.get("type", "about:blank")).rpartition("#")[2]
        self.title: str = told.get("title", "")
        self.detail: str = told.get("detail", "")
        self.instance: str | None = told.get("instance")
        self.errors: list[dict[str, Any]] = told.get("errors", [])
        self.candidates: list[dict[str, Any]] = told.get("candidates", [])
        self.checks: list[dict[str, Any]] = told.get("checks", [])

    @classmethod
    def of(cls, response: httpx.Response) -> Problem:
        """Read a refusal; one that is no problem+json came from a proxy, and is told as it is."""
        try:
            told = response.json()
        except ValueError:
            told = {"detail": response.text[:200]}
        return cls(response.status_code, told if isinstance(told, dict) else {"detail": str(told)})


class JobFailed(Exception):
    """What the service was asked to do has failed, or was cancelled; the message says why."""


def address(*parts: str | int) -> str:
    """Make the path of a route; names stay what they are, whatever is in them."""
    return "/api/v1/" + "/".join(quote(str(one), safe=":") for one in parts)


def asked_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not asked."""
    return {name: value for name, value in asked.items() if value is not None}


def seconds_to_wait(method: str, response: httpx.Response) -> float | None:
    """Tell how long to wait before the same is asked again; None: it is not.

    Too many requests (429) were not looked at. After 503 only what changes nothing is asked again.
    """
    if response.status_code == 429 or (response.status_code == 503 and method == "GET"):
        after = response.headers.get("Retry-After", "")
        return max(float(after) if after.isdecimal() else 0.0, FIRST_WAIT)  # patience ends after 0, too
    return None


def csv_of(sent: Sent) -> bytes:
    """Write rows as the CSV that the service reads: UTF-8, with a header, nothing for NULL.

    Raises ValueError for a column of lists or other values of several parts.
    """
    if isinstance(sent, bytes):
        return sent
    if isinstance(sent, str | PathLike):
        return Path(sent).read_bytes()
    written = io.BytesIO()
    if isinstance(sent, pa.Table) or hasattr(sent, "__arrow_c_stream__"):
        table = taken_over(sent)
        table = pa.table([_without_views(one) for one in table.columns], names=table.column_names)
        for field in table.schema:
            if pa.types.is_nested(field.type):
                raise ValueError(
                    f"The column {field.name!r} has values of the type {field.type}, for which CSV has no text: leave "
                    f"it out, or make it text."
                )
        if table.num_columns == 1 and table.column(0).null_count:
            # Nothing at all would be an empty line, which is no row; a NULL is an empty text where it is a key's cell.
            texts = table.column(0).cast(pa.large_string()).fill_null("")
            table = pa.table([texts], names=table.column_names)
        arrow_csv.write_csv(table, written)
        return written.getvalue()
    rows = list(sent)
    with io.TextIOWrapper(written, "utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
        lines.flush()
        return written.getvalue()


def _without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give texts as Arrow writes them to a file: polars gives them, also those of categories, as views."""
    kind, texts = column.type, pa.large_string()
    if pa.types.is_string_view(kind):
        return column.cast(texts)
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        chunks = [pa.DictionaryArray.from_arrays(one.indices, one.dictionary.cast(texts)) for one in column.chunks]
        return pa.chunked_array(chunks, pa.dictionary(kind.index_type, texts))
    return column


def read_matrix(stream: bytes) -> pa.Table:
    """Read the Arrow stream of a matrix."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
