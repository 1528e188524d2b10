"""Own the columns that coefficients are asked of, attributes and uploaded sketches, and what is asked of sketches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from service.core.errors import SketchError, SubsetdError
from service.core.estimators import Column, needed_bucket_bits
from service.core.estimators.lookup import LEAST_BUCKET_BITS, MANY
from service.core.estimators.model import Prefixes
from service.core.sketch_upkeep import FixedForm
from service.core.sketches.column import ColumnSketch
from service.core.sketches.comparable import Comparable, read_comparable
from service.core.sketches.prefixes import HashPrefixes
from service.usecases import queries
from service.usecases.answers import (
    EVERY_ATTRIBUTE,
    AttributeFilter,
    AttributeInfo,
    AttributeRef,
    Key,
    Page,
    SketchInfo,
    UploadedSketch,
)
from service.usecases.ports import StateSnapshot, Uploads

UPLOADED = "sketch:"
"""Stands in front of an uploaded sketch's name where a column is named."""

MAX_NAME = 256
"""Characters of an uploaded sketch's name."""

MOST_VALUES = 1 << 62
"""No column has so many; whole numbers up to twice as many are counted with."""

ALL = 2**31 - 1

ColumnInfo = AttributeInfo | UploadedSketch
ColumnKey = int | str
"""An attribute's id, or an uploaded sketch's name."""


class NoSketchError(SubsetdError):
    """A column has no sketch that could be used."""


class SketchNameError(SketchError):
    """A sketch cannot be uploaded under this name."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Choose columns: attributes (None: no attribute), and uploaded sketches of these names (None: all of them)."""

    attributes: AttributeFilter | None = EVERY_ATTRIBUTE
    uploads: Sequence[str] | None = ()

    @property
    def has_uploads(self) -> bool:
        """Tell whether uploaded sketches are among them."""
        return self.uploads is None or len(self.uploads) > 0


def has_values(column: ColumnInfo) -> bool:
    """Tell whether a column's values are stored, so that its coefficients are known exactly."""
    return isinstance(column, AttributeInfo) and not column.sketch_only


def key_of(column: AttributeRef | UploadedSketch) -> ColumnKey:
    """Tell columns apart."""
    return column.attribute_id if isinstance(column, AttributeRef) else column.name


def name_of(column: AttributeRef | UploadedSketch) -> str:
    """Give the name by which a column is asked for."""
    return str(column.name) if isinstance(column, AttributeRef) else UPLOADED + column.name


def order_of(column: ColumnInfo) -> Key:
    """Give a column's place among all: attributes as they are listed, then uploaded sketches by name."""
    if isinstance(column, UploadedSketch):
        return 1, "", "", 0, 0, column.name
    return 0, column.name.schema, column.name.table, column.ordinal, column.attribute_id, ""


def resolve(snapshot: StateSnapshot, name: str) -> ColumnInfo:
    """Find the column that `schema.table.column`, `id:17` or `sketch:NAME` names; errors as of `queries.resolve`."""
    if not name.startswith(UPLOADED):
        return queries.resolve(snapshot, name)
    wanted = name.removeprefix(UPLOADED)
    for one in snapshot.uploaded():
        if one.name == wanted:
            return one
    raise queries.unknown_sketch(wanted)


def choices_of(
    snapshot: StateSnapshot,
    dependent: tuple[str | None, AttributeFilter],
    referenced: tuple[str | None, AttributeFilter],
    with_uploaded: bool,
) -> tuple[Choice, Choice]:
    """Choose both sides of pairs: the column of a name, if it is one of these or uploaded; without a name all of these.

    Beside a tuple of columns that is named these are tuples of as many. A side that nothing else chooses has,
    `with_uploaded`, all uploaded sketches as well.
    """
    named = [None if name is None else resolve(snapshot, name) for name, _ in (dependent, referenced)]
    arity = queries.arity_of_pairs(one for one in named if isinstance(one, AttributeInfo))
    return _choice(named[0], dependent[1], arity, with_uploaded), _choice(named[1], referenced[1], arity, with_uploaded)


def _choice(named: ColumnInfo | None, chosen: AttributeFilter, arity: int, with_uploaded: bool) -> Choice:
    if isinstance(named, UploadedSketch):
        return Choice(None, (named.name,))
    if named is not None:
        return Choice(replace(chosen, attribute_id=named.attribute_id))
    return Choice(replace(chosen, arity=arity), None if with_uploaded and chosen == EVERY_ATTRIBUTE else ())


def choose(snapshot: StateSnapshot, choice: Choice) -> list[ColumnInfo]:
    """List chosen columns by `order_of`."""
    found: list[ColumnInfo] = []
    if choice.attributes is not None:
        found += snapshot.attributes(choice.attributes, None, ALL)
    if choice.has_uploads:
        found += [one for one in snapshot.uploaded() if choice.uploads is None or one.name in choice.uploads]
    return found


def read_sketches(
    snapshot: StateSnapshot, columns: Iterable[ColumnInfo]
) -> Iterator[tuple[ColumnInfo, Comparable | str]]:
    """Give each column's sketch, or why it has none that could be used, in no order."""
    attributes = {one.attribute_id: one for one in columns if isinstance(one, AttributeInfo)}
    uploads = {one.name: one for one in columns if isinstance(one, UploadedSketch)}
    for attribute_id, sketch in snapshot.sketches(sorted(attributes)) if attributes else ():
        yield attributes.pop(attribute_id), sketch
    for one in attributes.values():
        yield (
            one,
            (
                f"{one.name} has no sketch, as the state was made with SUBSETD_SKETCHES=off; set it on, and bootstrap "
                "its sources again with --replace"
            ),
        )
    for name, data in snapshot.uploads(sorted(uploads)) if uploads else ():
        try:
            yield uploads[name], read_comparable(data)
        except SketchError as error:
            yield uploads[name], f"{UPLOADED}{name}: {error}; upload it again"


def read_sketch(snapshot: StateSnapshot, column: ColumnInfo) -> Comparable:
    """Give one column's sketch; raise NoSketchError when it has none that could be used."""
    ((_, sketch),) = read_sketches(snapshot, [column])
    if isinstance(sketch, str):
        raise NoSketchError(f"{sketch}.")
    return sketch


def fixed_size(snapshot: StateSnapshot, column: ColumnInfo, most_bytes: int) -> HashPrefixes:
    """Sketch a column in so many bytes: its values where they are stored, else what its sketch tells of them.

    Needs a snapshot that was opened `with_values`. Raises NoSketchError as `read_sketch` does, and SketchError for a
    size that cannot be, or a column of which there is but a sketch of a fixed size.
    """
    sketch = FixedForm(most_bytes).empty()
    if isinstance(column, AttributeInfo) and column.distinct_count is not None:
        for hashes in snapshot.hashes(column.attribute_id, column.distinct_count):
            sketch.update(hashes)
        return sketch
    held = read_sketch(snapshot, column)
    if isinstance(held, HashPrefixes):
        raise SketchError(f"the sketch of {name_of(column)} has a fixed size already, of {held.budget:,} bytes")
    return HashPrefixes.of_column(held, most_bytes)


def known_column(sketch: Comparable) -> Column:
    """Give what a sketch tells estimators of its column; prefixes of all bits are the hashes of all values."""
    if isinstance(sketch, HashPrefixes):
        told = Column(sketch.registers(), sketch.estimate(), sketch.is_size_exact)
        if sketch.is_complete:
            return told._replace(hashes=sketch.entries)
        return told._replace(prefixes=Prefixes(sketch.entries, sketch.bits))
    is_exact = sketch.counts_values or sketch.hashes is not None
    return Column(sketch.registers(), sketch.estimate(), is_exact, sketch.hashes, sketch.bottom.hashes)


def describe(column: ColumnInfo, sketch: Comparable | str) -> SketchInfo:
    """Describe a column's sketch, or say why there is none."""
    if isinstance(sketch, str):
        return SketchInfo(column, fault=sketch)
    low, high = sketch.bounds()
    told = SketchInfo(column, bucket_bits=sketch.m, distinct_count=sketch.estimate(), low=low, high=high)
    if isinstance(sketch, HashPrefixes):
        return replace(told, is_complete=sketch.is_complete, prefix_bits=sketch.bits, most_bytes=sketch.budget)
    return replace(
        told,
        k=sketch.bottom.k,
        spares_left=sketch.bottom.spares_left,
        needs_rescan=sketch.needs_rescan,
        is_complete=sketch.bottom.is_complete,
        counts_values=sketch.counts_values,
    )


def sketches(snapshot: StateSnapshot, after: Key | None = None, limit: int = queries.MAX_LIMIT) -> Page[SketchInfo]:
    """List the sketches of all attributes and the uploaded ones, by `order_of`."""
    remaining = [one for one in choose(snapshot, Choice(uploads=None)) if after is None or order_of(one) > after]
    kept = remaining[:limit]
    found = {key_of(one): describe(one, sketch) for one, sketch in read_sketches(snapshot, kept)}
    return Page([found[key_of(one)] for one in kept], order_of(kept[-1]) if len(remaining) > limit else None)


def bucket_bits_for(
    error: float, level: float = 0.95, dependent_count: float | None = None, referenced_count: float | None = None
) -> int | None:
    """Give the least m that keeps a coefficient within `error`, whatever it is, with the chance `level`.

    The numbers of values need not be known to the sketches. Not given, the dependent has as many as matter, and the
    referenced column as many as the dependent. None when no sketch is large enough.
    """
    dependent_count = dependent_count or referenced_count or MANY
    m = needed_bucket_bits(dependent_count, referenced_count or dependent_count, error, level, are_sizes_known=False)
    return None if m is None else max(m, LEAST_BUCKET_BITS)


def upload_name(column: str) -> str:
    """Give NAME of `sketch:NAME`; raise SketchNameError when no sketch can be uploaded as this column."""
    name = column.removeprefix(UPLOADED)
    if name == column:
        raise SketchNameError(
            f"{column!r} is not {UPLOADED}NAME; no other sketch is uploaded and deleted, those of attributes are kept"
        )
    if not (1 <= len(name) <= MAX_NAME and name.isprintable()):
        told = repr(name) if len(name) <= MAX_NAME else f"{name[:40]!r}..., of {len(name):,} characters,"
        raise SketchNameError(
            f"{told} is no name of a sketch: the name of a sketch has 1 to {MAX_NAME} characters, which can be printed"
        )
    return name


def upload(uploads: Uploads, column: str, data: bytes) -> tuple[SketchInfo, bool]:
    """Keep a sketch that was made elsewhere as the column `sketch:NAME`; describe it, and tell whether it is new.

    Raises SketchNameError for a name that cannot be one, and SketchError that says what is wrong with the bytes:
    another hash function, seed, format or kind, damage, too few buckets, full registers, values counted repeatedly.
    """
    name = upload_name(column)
    sketch = read_comparable(data)
    m = known_column(sketch).bucket_bits
    if m < LEAST_BUCKET_BITS:
        raise SketchError(
            f"the sketch has m = {m}: 2^{m} buckets are too few to compare it; make it with m from "
            f"{LEAST_BUCKET_BITS} on"
        )
    if not math.isfinite(sketch.estimate()):
        raise SketchError("all registers of the sketch are full: it does not tell how many values it has seen")
    if (
        isinstance(sketch, ColumnSketch)
        and sketch.counts_values
        and (sketch.size > MOST_VALUES or any(sketch.bottom.counts > 1))
    ):
        raise SketchError(
            "the sketch says that it counts values, and it was fed with occurrences: some hashes came repeatedly; make "
            "it without repeated values, or as one of occurrences"
        )
    uploaded_at, is_new = uploads.put(name, sketch)
    return describe(UploadedSketch(name, uploaded_at), sketch), is_new
