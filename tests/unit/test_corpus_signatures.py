"""Signatures beside the parts of an index: those that the value keys give, and never others, whatever the file has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.corpus_choices import Parameters
from spark_jobs import corpus_signatures, corpus_sources
from spark_jobs.corpus_index import CorpusIndex
from spark_jobs.corpus_signatures import no_signatures
from spark_jobs.many_signatures import KeptSignatures
from tests.corpus_reading import Reading, put

PARAMETERS = Parameters(bits=50, hashes=3, passes=2)
SIGNED = CorpusSettings.from_json({"algorithm": "signatures", "bits": 50, "hashes": 3, "passes": 2})


def bit(key: bytes, number: int) -> int:
    """Compute in whole numbers which of 50 bits a hash function sets, and in which of two passes of three functions."""
    high, low = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big") | 1
    mixed = (high + number * low) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return number // 3 * 50 + (((mixed ^ mixed >> 31) >> 32) * 50 >> 32)


def read_signed(folder: Path) -> Reading:
    return Reading(folder / "lake", CorpusKind.CSV, CorpusIndex(str(folder / "index")), SIGNED)


def kept(reading: Reading) -> KeptSignatures:
    assert reading.state is not None
    manifest = reading.index.load(reading.generation, reading.state.manifest.reading)
    parts = {part.name: part for part in manifest.parts}
    return KeptSignatures(reading.index, manifest.part_columns(), parts, PARAMETERS)


def expected(reading: Reading) -> dict[int, set[int]]:
    """Give the bits of each column that has any."""
    assert reading.state is not None
    ids, starts, keys = reading.index.columns(reading.state.manifest.part_columns())
    texts = [h.to_bytes(8, "big") + w.to_bytes(8, "big") for h, w in zip(*(k.tolist() for k in keys), strict=True)]
    return {
        column: {bit(text, number) for text in texts[first:end] for number in range(6)}
        for column, first, end in zip(ids.tolist(), starts, starts[1:], strict=False)
    }


def bits_of(reading: Reading, signatures: KeptSignatures) -> dict[int, set[int]]:
    assert reading.state is not None
    ids = reading.state.column_ids[::-1].copy()
    rows = np.unpackbits(signatures(ids).astype("<u8").view(np.uint8), axis=1, bitorder="little")
    return {column: set(np.flatnonzero(row).tolist()) for column, row in zip(ids.tolist(), rows, strict=True)}


def test_columns_that_are_read_kept_or_copied_have_the_signatures_of_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_sources, "PARTS_KEPT", 4)
    asked = []
    monkeypatch.setattr(corpus_signatures, "BLOCK_BYTES", 3 * 8 * PARAMETERS.words)
    monkeypatch.setattr(
        corpus_signatures, "no_signatures", lambda count, by: asked.append(count) or no_signatures(count, by)
    )
    reading = read_signed(tmp_path)
    for name in range(8):
        put(tmp_path / "lake" / f"{name}.csv", f"a,b,none\n{name},x,\n{name + 1},x,\n".encode())
    reading.refresh()
    before = kept(reading)
    for step in range(1, 8):
        put(tmp_path / "lake" / f"{step}.csv", f"a,b\n{step}{step},y\n".encode(), change=step)
        reading.refresh()
        signatures = kept(reading)
        found = bits_of(reading, signatures)
        assert {column: bits for column, bits in found.items() if bits} == expected(reading)
        assert not signatures.made, "all are kept"
    assert max(asked) == 3, "so many are held at a time"
    assert not signatures.described.keys() & before.described.keys(), (
        "the first part was copied when half of it was dead"
    )


def test_a_damaged_byte_never_gives_another_signature(tmp_path: Path) -> None:
    reading = read_signed(tmp_path)
    put(tmp_path / "lake" / "a.csv", b"a,b\n1,2\n3,4\n")
    reading.refresh()
    right = bits_of(reading, kept(reading))
    (part,) = kept(reading).described.values()
    assert part.signatures is not None
    path = tmp_path / "index" / "parts" / f"{part.signatures.name}.parquet"
    whole = path.read_bytes()
    made = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        signatures = kept(reading)
        assert bits_of(reading, signatures) == right, f"byte {place}"
        made += len(signatures.made)
    assert made > len(no_signatures(2, PARAMETERS).tobytes()), "at least all that lie in the signatures were noticed"


@pytest.mark.parametrize("others", [Parameters(50, 3, 1), Parameters(50, 2, 2), Parameters(49, 3, 2)])
def test_a_file_that_is_described_wrongly_is_not_taken(tmp_path: Path, others: Parameters) -> None:
    """The file says itself what it was made by."""
    reading = read_signed(tmp_path)
    put(tmp_path / "lake" / "a.csv", b"a,b\n1,2\n3,4\n")
    reading.refresh()
    right = bits_of(reading, kept(reading))
    (part,) = kept(reading).described.values()
    wrong = reading.index.sign(part, others)
    assert wrong.signatures is not None
    assert part.signatures is not None
    folder = tmp_path / "index" / "parts"
    (folder / f"{wrong.signatures.name}.parquet").rename(folder / f"{part.signatures.name}.parquet")
    described = KeptSignatures(reading.index, kept_columns(reading), {part.name: part}, PARAMETERS)
    assert bits_of(reading, described) == right
    assert described.made


def kept_columns(reading: Reading) -> list:
    assert reading.state is not None
    return reading.state.manifest.part_columns()
