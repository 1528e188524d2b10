"""Own the fuzzing of the decoder that looks for new ways through its code; needs `pip install atheris`.

`python -m tests.endurance.guided_fuzz FOLDER -max_total_time=600` begins with the samples of `fuzz` and keeps in the
folder what went a new way; it ends with the record that breaks the decoder, or when the time is up.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["service", "fastavro"]):
    from tests.endurance.fuzz import decode_one, make_decoder, mutated_document, samples

WHOLE = {record.topic: record for record in samples()}
TOPICS = sorted(WHOLE)


def inputs() -> Iterator[bytes]:
    """Give the samples as inputs: the topic's number, the key's length, key and value."""
    for record in samples():
        key = (record.key or b"")[:255]
        yield bytes([TOPICS.index(record.topic), len(key)]) + key + (record.value or b"")


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change the JSON document of an input, or its bytes."""
    random, start = Random(seed), 2 + (data[1] if len(data) > 1 else 0)
    if data[start : start + 1] == b"{" and random.random() < 0.6:
        try:
            changed = data[:start] + mutated_document(random, data[start:])
        except ValueError:  # it is no document any more
            changed = data
        if len(changed) <= most:
            return changed
    return bytes(atheris.Mutate(data, most))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs()):
        (folder / f"sample{number}").write_bytes(data)
    decoder = make_decoder()

    def decode(data: bytes) -> None:
        if len(data) > 1:
            start = 2 + data[1]
            record = WHOLE[TOPICS[data[0] % len(TOPICS)]]
            decode_one(decoder, record._replace(key=data[2:start] or None, value=data[start:] or None))

    atheris.Setup(sys.argv, decode, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
