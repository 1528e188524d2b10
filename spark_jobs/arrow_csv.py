"""Own how Arrow parses CSV into texts: in blocks, whose edges change nothing of what a cell holds."""

from __future__ import annotations

from codecs import BOM_UTF8

import pyarrow as pa
import pyarrow.csv as pacsv

BLOCK_BYTES = 4 << 20
"""What Arrow parses at a time; it grows for a record that is longer."""
MOST_BLOCK_BYTES = 1 << 30
"""What a block may have: Arrow counts its bytes in 32 bits."""


def parse_texts(text: bytes | pa.Buffer, columns: int, options: pacsv.ParseOptions) -> pa.Table:
    """Parse UTF-8 records of so many cells, without a header, into columns of texts; an unquoted empty cell is NULL.

    Raises what Arrow raises.
    """
    if bytes(memoryview(text)[: len(BOM_UTF8)]) == BOM_UTF8:  # a cell's: Arrow takes it for the text's, and drops it
        text = BOM_UTF8 + bytes(text)
    block = BLOCK_BYTES
    while True:
        try:
            return _parse_blocks(text, block, columns, options)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error) or block >= len(text):
                raise
            block *= 8


def _parse_blocks(text: bytes | pa.Buffer, block: int, columns: int, options: pacsv.ParseOptions) -> pa.Table:
    names = [str(i) for i in range(columns)]
    return pacsv.read_csv(
        pa.PythonFile(_Blocks(text), "r"),
        read_options=pacsv.ReadOptions(use_threads=False, block_size=min(block, MOST_BLOCK_BYTES), column_names=names),
        parse_options=options,
        convert_options=pacsv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


class _Blocks:
    r"""Be a file of text for Arrow's reader, which reads it by blocks: none ends between a \r and the \n behind it.

    Behind a block that ends in \r the reader drops a \n as the rest of a line's end, also where both are in quotes.
    A last line without an end gets one: there the reader takes an empty cell for quoted where the one before it is.
    """

    closed = False

    def __init__(self, text: bytes | pa.Buffer) -> None:
        self._rest = memoryview(text)
        self._end = b"" if bytes(self._rest[-1:]) in (b"\r", b"\n") else b"\n"

    def read(self, most: int) -> memoryview | bytes:
        if not self._rest:
            end, self._end = self._end, b""
            return end
        size = most - 1 if bytes(self._rest[most - 1 : most + 1]) == b"\r\n" else most
        block, self._rest = self._rest[:size], self._rest[size:]
        return block

    def close(self) -> None:
        """Hold nothing open."""
