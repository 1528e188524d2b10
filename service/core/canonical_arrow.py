"""Own canonical texts and keys of whole Arrow arrays: no Python code runs for a single scalar.

The kernels behind it are in `canonical_kernels`. Values of nested types (struct, list, map) are the one
exception: their leaves are made as arrays, and Python joins them, one distinct value at a time. Callers
pass distinct values. Python also reads documents of JSON, each distinct one once.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from service.core import canonical_kernels as kernels
from service.core.canonical_forms import RawJson, document_text
from service.core.cell_decoding import canonical_json
from service.core.errors import SourceError

VALUE_BYTES = 256
"""So many bytes of a value are kept in its generator record; the key covers all of it."""

_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_POWERS = {"s": "", "ms": "e-3", "us": "e-6", "ns": "e-9"}


def canonical_array(array: pa.Array) -> pa.Array:
    """Give the canonical texts of an array of any type that Parquet can hold, as string or large_string; nulls stay.

    Equal to `canonical_text` and to Postgres' expressions, value by value. Raises SourceError for a type without
    a canonical text, RecordError for a document that is no JSON.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _EXTENSIONS.get(str(kind), canonical_array)(array.storage)
    if pa.types.is_dictionary(kind):
        return canonical_array(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return canonical_array(pc.run_end_decode(array))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return array.cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return plain_decimal_array(array.cast(pa.string()))
    if pa.types.is_float16(kind):
        texts = pa.array(array.fill_null(0).to_numpy(zero_copy_only=False).astype("U"))
        return plain_decimal_array(_with_nulls_of(texts, array))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _hexadecimal(array)
    if str(kind) == "binary_view":
        return _hexadecimal(array.cast(pa.large_binary()))
    if pa.types.is_temporal(kind):
        return _moments(array)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return pa.array([None if text is None else str(text) for text in _documents(array)], pa.large_string())
    raise SourceError(f"Values of the type {kind} have no canonical text. Cast the column to string in the source.")


def plain_decimal_array(texts: pa.Array) -> pa.Array:
    """Rewrite decimal numbers without exponent, trailing zeros and sign of zero; `nan`, `inf` by their canonical names.

    Takes what Arrow's and numpy's casts of numbers give, with exponents of up to a few thousand; nulls stay.
    """
    offsets, data = text_buffers(texts)
    return _texts(*kernels.plain_decimals(offsets, data), texts)


def key_array(texts: pa.Array, *, of_tuples: bool = False) -> npt.NDArray[np.uint64]:
    """Give the value keys of a string or large_string array without nulls as uint64[n, 2]: high and low half.

    Sorting by (high, low) sorts by the key's bytes, as Postgres sorts uuid. Equal to `canonical.value_key`;
    `of_tuples` to `core.tuples.tuple_keys`: a NUL is hashed before each text. Raises SourceError for a value with a NUL
    character, which Postgres cannot store.
    """
    if texts.null_count:
        raise ValueError("NULL has no key: drop the nulls first")
    if of_tuples:
        mark, nothing = (pa.scalar(text, pa.large_string()) for text in ("\0", ""))
        texts = pc.binary_join_element_wise(mark, texts.cast(pa.large_string()), nothing)
    offsets, data = text_buffers(texts)
    keys, with_nul = kernels.keys(offsets, data, int(of_tuples))
    if with_nul >= 0:
        text = texts[int(with_nul)].as_py()
        raise SourceError(
            f"The value that begins {text[:40]!r} has a NUL character, which Postgres cannot store. "
            f"Remove it in the source, or leave the column out."
        )
    return keys


def stored_array(texts: pa.Array, limit: int = VALUE_BYTES) -> pa.Array:
    """Cut texts to what gen_rec keeps of them: at most `limit` bytes of UTF-8, no half characters; nulls stay."""
    lengths = pc.binary_length(texts)
    if len(texts) == 0 or (pc.max(lengths).as_py() or 0) <= limit:
        return texts
    offsets, data = text_buffers(texts)
    return _texts(*kernels.cut(offsets, data, limit), texts)


def text_buffers(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Give an array's texts as bytes and int64[n + 1] offsets into them, the array's own slice respected.

    A null's extent is whatever the array holds for it; the arrays must not be written to.
    """
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets, data = np.zeros(1, np.int64), np.empty(0, np.uint8)
    if len(texts):
        held = np.frombuffer(offset_buffer, np.int64 if wide else np.int32, count=texts.offset + len(texts) + 1)
        offsets = held[texts.offset :].astype(np.int64)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)
    data.flags.writeable = False  # whatever the buffer says of itself: numba compiles once for each kind
    return offsets, data


def _texts(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], nulls_of: pa.Array) -> pa.Array:
    """Make a string array, large where its bytes are more than 32 bits count, with the nulls of another array."""
    if offsets[-1] < 2**31:
        kind, offset_buffer = pa.string(), pa.py_buffer(offsets.astype(np.int32))
    else:
        kind, offset_buffer = pa.large_string(), pa.py_buffer(offsets)
    made = pa.Array.from_buffers(kind, len(offsets) - 1, [None, offset_buffer, pa.py_buffer(data)])
    return _with_nulls_of(made, nulls_of)


def _with_nulls_of(texts: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, texts.type)) if array.null_count else texts


def _hexadecimal(array: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary() if len(array) * array.type.byte_width >= 2**31 else pa.binary())
    offsets, data = text_buffers(array)
    return _texts((offsets - offsets[0]) * 2, kernels.hexadecimal(data[offsets[0] : offsets[-1]]), array)


def _uuid_array(storage: pa.Array) -> pa.Array:
    digits = _hexadecimal(storage)
    cuts = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    return pc.binary_join_element_wise(*(pc.utf8_slice_codeunits(digits, *cut) for cut in cuts), "-")


def _json_array(storage: pa.Array) -> pa.Array:
    encoded = storage.cast(pa.large_string()).dictionary_encode()
    texts = [canonical_json(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.large_string()).take(encoded.indices)


def _flag_array(storage: pa.Array) -> pa.Array:
    return canonical_array(storage.cast(pa.bool_()))


_EXTENSIONS = {
    "extension<arrow.uuid>": _uuid_array,
    "extension<arrow.json>": _json_array,
    "extension<arrow.bool8>": _flag_array,
}
"""How types are read that mean more than what they are stored as; all others are what they are stored as."""


def _moments(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_duration(kind):
        numbers = array.cast(pa.int64()).cast(pa.string())
        seconds = plain_decimal_array(pc.binary_join_element_wise(numbers, _POWERS[kind.unit], ""))
        return pc.binary_join_element_wise("PT", seconds, "S", "")
    zoned = False
    if pa.types.is_date(kind):
        unit = kernels.DAY if pa.types.is_date32(kind) else _NANOSECONDS["ms"]
        shape = kernels.DATE
    elif pa.types.is_time(kind):
        unit, shape = _NANOSECONDS[kind.unit], kernels.TIME
    elif pa.types.is_timestamp(kind):
        unit, shape, zoned = _NANOSECONDS[kind.unit], kernels.TIMESTAMP, kind.tz is not None
    else:
        raise SourceError(f"Values of the type {kind} have no canonical text. Cast the column to string in the source.")
    integers = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    counts = integers.fill_null(0).to_numpy(zero_copy_only=False)
    return _texts(*kernels.moments(counts, kernels.DAY // unit, unit, shape, zoned), array)


# Documents: leaves as arrays, joined by Python


def _documents(array: pa.Array) -> list[Any]:
    """Give each value as what `document_text` takes: JSON text, a string, or None."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_run_end_encoded(kind):
        array, kind = pc.run_end_decode(array), kind.value_type
    if pa.types.is_struct(kind):
        fields = [_documents(inner) for inner in array.flatten()]
        names = [field.name for field in kind]
        rows: Any = (
            (dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)) if names else ({} for _ in array)
        )
        return _joined(rows, array)
    if pa.types.is_map(kind):
        keys, items = _map_keys(array.keys), _documents(array.items)
        extents = pairwise(array.offsets.to_pylist())
        return _joined((dict(zip(keys[i:j], items[i:j], strict=True)) for i, j in extents), array)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        leaves, lengths = iter(_documents(array.flatten())), pc.list_value_length(array).to_pylist()
        return _joined((list(islice(leaves, length or 0)) for length in lengths), array)
    texts = canonical_array(array).to_pylist()
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or str(kind) in ("extension<arrow.json>", "extension<arrow.bool8>")
    ):
        return [text if text in (None, "NaN", "Infinity", "-Infinity") else RawJson(text) for text in texts]
    return list(texts)


def _map_keys(keys: pa.Array) -> list[str]:
    return [str(key) for key in _documents(keys)]


def _joined(values: Any, array: pa.Array) -> list[Any]:
    valid = array.is_valid().to_pylist()
    return [RawJson(document_text(value)) if held else None for value, held in zip(values, valid, strict=True)]
