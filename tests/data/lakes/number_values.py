"""Pack a lake without its contents: every value becomes a number, so that all INDs stay and no text does.

    python tests/data/lakes/number_values.py FOLDER/lake_owid.tar.zst tests/data/lakes/lake_owid_numbered.tar.zst

Equal values stay equal, different ones different, integers integers, and other texts other texts; null tokens and NULLs
stay what they are. So every IND, every filter and the published hash of the list of INDs are those of the lake itself.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import zstandard

NULL_TOKENS = {"", "—", "-", "–", "N/A", "?", "Unknown", "- -", "n/a", "•", "- - -", ".", "??", "(n/a)"}


class Numbers:
    """Number values in the order in which they come; integers apart."""

    def __init__(self) -> None:
        self.integers: dict[str, int] = {}
        self.texts: dict[str, int] = {}

    def of(self, value: str) -> str:
        if value in NULL_TOKENS:
            return value
        if re.fullmatch("[+-]?[0-9]+", value):
            return str(self.integers.setdefault(value, len(self.integers)))
        return f"v{self.texts.setdefault(value, len(self.texts)):x}"


def tables(archive: Path) -> Iterator[tuple[str, str]]:
    """Yield the CSV tables of an archive: path and text."""
    with (
        archive.open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        for member in members:
            if member.isfile() and member.name.endswith(".csv"):
                content = members.extractfile(member)
                assert content
                yield member.name, content.read().decode()


def numbered(text: str, numbers: Numbers) -> str:
    """Give a table with numbers for its values and its columns' names; a row that is one NULL is written as `""`."""
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    lines = [[f"c{place}" for place in range(len(header))]]
    lines += [[numbers.of(value) for value in row] for row in rows]
    return "".join((",".join(line) or '""') + "\r\n" for line in lines)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    numbers, packed = Numbers(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, text in sorted(tables(source)):
            content = numbered(text, numbers).encode()
            member = tarfile.TarInfo(PurePosixPath(path).as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(zstandard.ZstdCompressor(level=22).compress(packed.getvalue()))


if __name__ == "__main__":
    main()
