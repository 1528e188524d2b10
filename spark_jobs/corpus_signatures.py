"""Own MANY's signatures beside the parts of an index: a Parquet file for each part, with a row for each of its columns.

A wrong bit would lose INDs, so that nothing is taken from a file that is not as it was written: its parameters and part
stand in it, and the manifest has a checksum of its rows (those of Parquet's pages leave out the pages' headers). What
cannot be taken is made anew from the value keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from service.core.corpus_choices import Parameters
from service.core.records import Int32s, Keys, UInt64s
from service.core.signatures import sign

BLOCK_BYTES = 16 << 20
"""What is held of signatures at a time, and written as a row group."""


@dataclass(frozen=True, slots=True)
class Signing:
    """Say which bits of a signature a value sets; the strategy does not count."""

    bits: int
    hashes: int
    passes: int

    @staticmethod
    def by(parameters: Parameters) -> Signing:
        """Take what decides the bits."""
        return Signing(parameters.bits, parameters.hashes, parameters.passes)


@dataclass(frozen=True, slots=True)
class SignatureFile:
    """Describe the signatures of a part: the name and bytes of their file, CRC-32 of its rows, how they were made."""

    name: str
    size: int
    checksum: int
    signing: Signing

    def to_json(self) -> list[object]:
        """Give it for a manifest."""
        return [self.name, self.size, self.checksum, *astuple(self.signing)]

    @staticmethod
    def from_json(told: list[Any] | None) -> SignatureFile | None:
        """Take it from a manifest. Raises ValueError or TypeError for what `to_json` does not give."""
        if told is None:
            return None
        name, size, checksum, *signing = told
        return SignatureFile(name, size, checksum, Signing(*signing))


class SignatureWriter:
    """Write the signatures of a part's columns in their order."""

    def __init__(self, filesystem: pafs.FileSystem, path: str, name: str, part: str, parameters: Parameters) -> None:
        self._parameters = parameters
        self._filesystem, self._path, self._name = filesystem, path, name
        self._schema = _schema(part, parameters)
        self._checksum = 0
        self._writer = pq.ParquetWriter(
            path, self._schema, filesystem=filesystem, compression="none", use_dictionary=False,
            write_statistics=False,
        )  # fmt: skip

    def signing(self, columns: int, blocks: Iterable[tuple[Int32s, Keys]]) -> Iterator[tuple[Int32s, Keys]]:
        """Pass on blocks of some columns (their numbers from 0, ascending, and keys), and write their signatures."""
        first, signatures = 0, self._next(columns)
        for numbers, keys in blocks:
            start = 0
            while start < len(numbers):
                end = int(np.searchsorted(numbers, first + len(signatures)))
                sign(signatures, numbers[start:end] - np.int32(first), keys.take(slice(start, end)), self._parameters)
                start = end
                if end < len(numbers):  # of a column behind these
                    first, signatures = self._write(first, columns, signatures)
            yield numbers, keys
        while first < columns:
            first, signatures = self._write(first, columns, signatures)

    def _next(self, columns: int) -> UInt64s:
        return no_signatures(min(columns, max(1, BLOCK_BYTES // (8 * self._parameters.words))), self._parameters)

    def _write(self, first: int, columns: int, signatures: UInt64s) -> tuple[int, UInt64s]:
        """Write signatures from a column on; give the first column behind them, and those of the next ones."""
        data = pa.py_buffer(signatures.astype("<u8", copy=False))
        self._checksum = zlib.crc32(data, self._checksum)
        rows = pa.FixedSizeBinaryArray.from_buffers(self._schema.field(0).type, len(signatures), [None, data])
        self._writer.write_table(pa.table([rows], schema=self._schema))
        first += len(signatures)
        return first, self._next(columns - first)

    def close(self) -> SignatureFile:
        """End the file and describe it."""
        self._writer.close()
        size = self._filesystem.get_file_info(self._path).size
        return SignatureFile(self._name, size, self._checksum, Signing.by(self._parameters))


def read_signatures(
    filesystem: pafs.FileSystem, path: str, part: str, columns: int, parameters: Parameters, checksum: int
) -> Iterator[tuple[int, UInt64s]]:
    """Yield the signatures of a part of so many columns in blocks, each with the number of its first column.

    Raises OSError, ValueError, TypeError or pa.ArrowException when they are not as they were written, maybe at the end.
    """
    schema = _schema(part, parameters)
    with pq.ParquetFile(filesystem.open_input_file(path)) as file:
        if not file.schema_arrow.equals(schema, check_metadata=True) or file.metadata.num_rows != columns:
            raise OSError(f"{path}: these are not the signatures of {part}")
        first = found = 0
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, use_threads=False)["signature"].combine_chunks()
            whole = np.frombuffer(rows.buffers()[1], "<u8").reshape(-1, parameters.words)
            data = whole[rows.offset : rows.offset + len(rows)]
            found = zlib.crc32(data.data, found)
            yield first, data.astype(np.uint64, copy=False)
            first += len(rows)
    if (first, found) != (columns, checksum):
        raise OSError(f"{path}: these are not the bytes that were written")


def no_signatures(columns: int, parameters: Parameters) -> UInt64s:
    """Give signatures without a bit, uint64[columns, words]."""
    return np.zeros((columns, parameters.words), np.uint64)


def _schema(part: str, parameters: Parameters) -> pa.Schema:
    made = {"part": part} | {name: str(getattr(parameters, name)) for name in ("bits", "hashes", "passes")}
    return pa.schema([pa.field("signature", pa.binary(8 * parameters.words), nullable=False)], metadata=made)
