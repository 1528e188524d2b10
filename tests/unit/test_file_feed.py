"""Say how a file of JSON lines is followed: whole lines, byte positions, and a file that is not what it was."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FeedError
from service.core.model import RawRecord, StoredPosition
from service.stream import file_feed
from service.stream.file_feed import FileFeed

ONE, TWO, THREE = b'{"op":"c"}', b'{"op":"u","more":1}', b'{"op":"d"}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "changes.jsonl"


@pytest.fixture
def feeds() -> Iterator[list[FileFeed]]:
    opened: list[FileFeed] = []
    yield opened
    for feed in opened:
        feed.close()


def started(feeds: list[FileFeed], path: Path, position: int | None = None) -> FileFeed:
    feed = FileFeed(str(path))
    feeds.append(feed)
    feed.start({} if position is None else {(str(path), 0): StoredPosition(position)})
    return feed


def position(feed: FileFeed) -> int:
    return feed.positions()[feed.path, 0]


def values(records: object) -> list[bytes | None]:
    assert isinstance(records, list)
    return [record.value for record in records]


def poll(feed: FileFeed, timeout: float = 0.0) -> list[bytes | None]:
    return values(feed.poll(1000, 1_000_000, timeout))


def test_a_line_is_a_record_at_its_byte(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n" + TWO + b"\r\n" + THREE + b"\n")
    feed = started(feeds, path)
    topic = str(path)
    assert feed.name == f"file:{topic}"
    assert feed.poll(1000, 1_000_000, 0) == [
        RawRecord(topic, 0, 0, None, ONE, 0),
        RawRecord(topic, 0, len(ONE) + 1, None, TWO, 0),
        RawRecord(topic, 0, len(ONE) + len(TWO) + 3, None, THREE, 0),
    ]
    assert position(feed) == path.stat().st_size
    assert feed.at_end()
    assert feed.lag() == {(feed.path, 0): 0}


def test_a_stored_position_is_gone_on_from(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n" + TWO + b"\n")
    assert poll(started(feeds, path, len(ONE) + 1)) == [TWO]


def test_blank_lines_are_passed_over(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(b"\n  \r\n" + ONE + b"\n\n\t\n")
    feed = started(feeds, path)
    assert poll(feed) == [ONE]
    assert position(feed) == path.stat().st_size
    assert feed.at_end()


def test_a_poll_ends_at_its_bounds(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes((ONE + b"\n") * 5)
    feed = started(feeds, path)
    assert values(feed.poll(2, 1_000_000, 0)) == [ONE, ONE]
    assert not feed.at_end()
    assert feed.lag() == {(feed.path, 0): 3 * (len(ONE) + 1)}
    assert values(feed.poll(1000, 1, 0)) == [ONE]
    assert position(feed) == 3 * (len(ONE) + 1)


def test_an_empty_file_is_at_its_end(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(b"")
    feed = started(feeds, path)
    assert feed.at_end()
    assert poll(feed) == []


def test_what_is_appended_is_followed_but_not_needed_for_the_end(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n")
    feed = started(feeds, path)
    with path.open("ab") as file:
        file.write(TWO + b"\n")
    assert values(feed.poll(1, 1_000_000, 0)) == [ONE]
    assert feed.at_end()
    assert poll(feed) == [TWO]


def test_a_poll_waits_for_the_next_line(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(b"")
    feed = started(feeds, path)
    writer = threading.Timer(0.05, path.write_bytes, [ONE + b"\n"])
    writer.start()
    assert poll(feed, timeout=30) == [ONE]
    writer.join()


def test_an_unfinished_last_line_waits_in_front_of_itself(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n" + TWO[:9])
    feed = started(feeds, path)
    assert poll(feed) == [ONE]
    assert poll(feed) == []
    assert position(feed) == len(ONE) + 1
    assert feed.at_end(), "what is not whole is left for the next run"
    with path.open("ab") as file:
        file.write(TWO[9:] + b"\n")
    assert poll(feed) == [TWO]


def test_a_whole_object_needs_no_line_end(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n" + TWO)
    feed = started(feeds, path)
    assert poll(feed) == [ONE, TWO]
    assert position(feed) == path.stat().st_size
    again = started(feeds, path, position(feed))
    with path.open("ab") as file:
        file.write(b"\n" + THREE + b"\n")
    assert poll(feed) == poll(again) == [THREE]


@given(st.integers(0, len(TWO) - 1))
def test_no_beginning_of_an_object_passes_for_a_whole_one(cut: int) -> None:
    assert not file_feed._is_object(TWO[:cut])


@given(
    lines=st.lists(st.sampled_from([ONE, TWO, THREE, b"", b"not json", b'{"a":"' + b"x" * 5000 + b'"}']), max_size=12),
    cuts=st.lists(st.integers(0, 40_000), max_size=6),
    most=st.integers(1, 4),
)
def test_however_a_file_grows_every_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int], most: int
) -> None:
    path = tmp_path_factory.mktemp("grows") / "changes.jsonl"
    whole = b"".join(line + b"\n" for line in lines)
    path.write_bytes(b"")
    feed = FileFeed(str(path))
    feed.start({})
    got: list[bytes | None] = []
    for end in [*sorted(cuts), len(whole)]:
        path.write_bytes(whole[:end])
        while records := feed.poll(most, 4000, 0):
            for record in records:
                assert whole[record.offset :].startswith(record.value or b"?")
            got.extend(values(records))
            # A crash here loses nothing and repeats nothing.
            stored = feed.positions()
            feed.close()
            feed = FileFeed(str(path))
            feed.start({place: StoredPosition(offset) for place, offset in stored.items()})
    while feed.poll(most, 4000, 0) or feed.lag() != {(feed.path, 0): 0}:
        pass
    feed.close()
    assert got == [line for line in lines if line]


def test_a_line_of_ten_megabytes_is_one_record(path: Path, feeds: list[FileFeed]) -> None:
    long = b'{"cell":"' + b"x" * 10_000_000 + b'"}'
    path.write_bytes(ONE + b"\n" + long + b"\n" + TWO + b"\n")
    feed = started(feeds, path)
    assert values(feed.poll(1000, 1_000_000, 0)) == [ONE, long]
    assert poll(feed) == [TWO]


def test_a_file_without_line_ends_is_not_read_into_memory(
    path: Path, feeds: list[FileFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_feed, "LONGEST_LINE_BYTES", 1000)
    path.write_bytes(b"x" * 2000)
    with pytest.raises(FeedError, match="the line at byte 0 is longer than 1000 bytes"):
        poll(started(feeds, path))


# Files that are not what they were


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path, feeds: list[FileFeed]) -> None:
    with pytest.raises(FeedError, match=r"nope.jsonl cannot be opened: No such file"):
        started(feeds, tmp_path / "nope.jsonl")
    with pytest.raises(FeedError, match="is not a regular file"):
        started(feeds, tmp_path)


def test_a_file_shorter_than_its_position_is_refused_at_the_start(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n")
    with pytest.raises(
        FeedError,
        match=rf"ends at byte {len(ONE) + 1}, before byte 500 .* --gone`, and bootstrap each",
    ):
        started(feeds, path, 500)


def test_a_position_inside_a_line_is_refused_at_the_start(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n" + TWO + b"\n")
    with pytest.raises(FeedError, match="byte 4, where the state stands, is inside a line"):
        started(feeds, path, 4)


def test_a_file_truncated_while_it_is_followed_is_refused(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n" + TWO + b"\n")
    feed = started(feeds, path)
    poll(feed)
    os.truncate(path, 3)
    with pytest.raises(FeedError, match="ends at byte 3, before byte"):
        poll(feed)


def test_a_file_replaced_or_removed_while_it_is_followed_is_refused(path: Path, feeds: list[FileFeed]) -> None:
    path.write_bytes(ONE + b"\n")
    feed = started(feeds, path)
    other = path.with_name("other")
    other.write_bytes(ONE + b"\n" + TWO + b"\n")
    os.replace(other, path)
    assert poll(feed) == [ONE], "what the old file held is read first"
    with pytest.raises(FeedError, match="was replaced by another file"):
        poll(feed)
    path.unlink()
    with pytest.raises(FeedError, match=r"was removed; all up to byte \d+ was read"):
        poll(feed)


def test_a_feed_that_is_not_started_says_so(path: Path) -> None:
    feed = FileFeed(str(path))
    assert feed.lag() is None
    with pytest.raises(FeedError, match="is not started"):
        poll(feed)
    feed.close()
