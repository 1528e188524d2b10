"""The demonstration's rounds: interrupted anywhere, a round is ended by the next run, so that none is half undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from service import demo


def append(feed: Path, lines: list[str]) -> list[str]:
    with feed.open("a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    return lines


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_round_that_was_interrupted_is_ended_by_the_next_run(tmp_path: Path, share: float) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.touch()
    broken.touch()
    for _ in range(3):
        round_ = append(whole, demo.rest_of_round(whole))
        append(broken, demo.rest_of_round(broken)[: int(len(round_) * share)])
        append(broken, demo.rest_of_round(broken))
        assert broken.read_bytes() == whole.read_bytes()


def test_the_second_round_takes_the_first_one_back(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.touch()
    there = append(feed, demo.rest_of_round(feed))
    back = append(feed, demo.rest_of_round(feed))
    assert there != back
    assert demo.rest_of_round(feed) == there
