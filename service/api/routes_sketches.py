"""Own the routes about sketches: what they are, their bytes, and those that are uploaded."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service.api import coefficient_schemas as shapes
from service.api import cursors, examples, schemas
from service.api.asking import Asked, column_from_path
from service.api.problems import documented
from service.usecases import sketched_columns
from service.usecases.answers import UploadedSketch
from service.usecases.ports import Uploads

router = APIRouter(prefix="/api/v1/sketches", tags=["sketches"])

SKETCHES = cursors.Cursors("sketches", "issiis")

BYTES = "application/octet-stream"
MAX_BYTES = 8 << 20
"""The largest sketch that is taken: one of 2^18 buckets and 10^9 values has less than half of it."""

ColumnPath = Annotated[
    str,
    Path(
        description="full name `schema.table.column`, percent-encoded (`/` as `%2F`), `id:17`, or `sketch:NAME`",
        openapi_examples={"a column": {"value": "demo.orders.customer_id"}},
    ),
]
UploadPath = Annotated[
    str,
    Path(
        description="`sketch:` and a name of 1 to 256 characters, percent-encoded",
        openapi_examples={"a name": {"value": "sketch:customers-elsewhere"}},
    ),
]


@router.get("", responses=examples.answered("A page of sketches") | documented(422, 500, 503))
def list_sketches(asked: Asked, question: Annotated[schemas.PageQuestion, Query()]) -> shapes.SketchesPage:
    """List the sketches of attributes, in their order, then the uploaded ones by name, each with what it tells."""
    after = SKETCHES.decode(question.cursor)
    with asked.snapshot() as snapshot:
        asked.depends_on_sketches(snapshot)
        asked.depends_on_uploads(snapshot)
        asked.stop_if_known()
        page = sketched_columns.sketches(snapshot, after, question.limit)
    return shapes.SketchesPage.page(snapshot.head, SKETCHES, page, shapes.Sketch.of)


@router.get("/bucket_bits", responses=documented(422, 500))
def needed_bucket_bits(question: Annotated[shapes.BucketBitsQuestion, Query()]) -> shapes.BucketBits:
    """Say how many buckets sketches need, 2^m, so that a coefficient is within an error, whatever it is.

    With R times as many values in the referenced column the error is about sqrt(R) times as large.
    """
    counts = question.dependent_count, question.referenced_count
    found = sketched_columns.bucket_bits_for(question.error, question.level, *counts)
    return shapes.BucketBits(error=question.error, level=question.level, bucket_bits=found)


@router.get(
    "/{column}",
    response_class=Response,
    responses=examples.answered("The bytes of a sketch", BYTES) | documented(404, 409, 422, 500, 503),
)
def download_sketch(asked: Asked, column: ColumnPath, _: Annotated[schemas.Question, Query()]) -> Response:
    """Give the bytes of a column's sketch, as it is in this version."""
    with asked.snapshot() as snapshot:
        found = column_from_path(snapshot, column)
        if isinstance(found, UploadedSketch):
            asked.depends_on_uploads(snapshot)
        else:
            asked.depends_on_sketches(snapshot)
        sketch = sketched_columns.read_sketch(snapshot, found)
        asked.stop_if_known()
    return Response(sketch.to_bytes(), media_type=BYTES, headers=asked.headers)


REPLACED: dict[int | str, dict[str, Any]] = {
    200: {"description": "It is in the place of the one before"},
    201: {"model": shapes.Sketch, "description": "It is there"},
}


async def _body(request: Request) -> bytes:
    # No page of a browser sends this type to another host without asking that host first.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != BYTES:
        raise HTTPException(415, f"A sketch is sent as Content-Type: {BYTES}.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"A sketch of more than {MAX_BYTES:,} bytes is not taken.")
    return bytes(body)


@router.put(
    "/{column}",
    responses=REPLACED | documented(413, 415, 422, 500, 503),
    openapi_extra={
        "requestBody": {"required": True, "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
def upload_sketch(
    request: Request, response: Response, column: UploadPath, body: Annotated[bytes, Depends(_body)]
) -> shapes.Sketch:
    """Keep a sketch of a column that lives elsewhere; `sketch:NAME` then stands where a column is named.

    Refused is what could not be compared: another hash function, seed, format or kind, damaged bytes, too few buckets.
    """
    uploads: Uploads = request.app.state.uploads
    info, is_new = sketched_columns.upload(uploads, unquote(column), body)
    response.status_code = 201 if is_new else 200
    return shapes.Sketch.of(info)


@router.delete("/{column}", status_code=204, responses=documented(404, 422, 500, 503))
def delete_sketch(request: Request, column: UploadPath) -> None:
    """Forget an uploaded sketch."""
    uploads: Uploads = request.app.state.uploads
    uploads.delete(sketched_columns.upload_name(unquote(column)))
