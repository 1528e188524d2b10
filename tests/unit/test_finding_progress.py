"""How far a finding of foreign keys is: on a terminal, and to whoever ends it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from service import foreign_key_commands
from service.core.errors import ConflictError
from service.usecases.finding_progress import Stage, told


@pytest.mark.parametrize(
    ("is_terminal", "kind", "shows"), [(True, "xterm", True), (True, "dumb", False), (False, "xterm", False)]
)
def test_a_terminal_shows_stage_and_share_and_a_file_nothing(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, kind: str, shows: bool
) -> None:
    """A dumb terminal cannot go back to the line's beginning, and is spared a line for each step."""
    monkeypatch.setenv("TERM", kind)
    written = io.StringIO()
    monkeypatch.setattr(foreign_key_commands, "err", Console(file=written, force_terminal=is_terminal, width=80))
    with foreign_key_commands._shown() as telling:
        telling(Stage.RANDOMNESS, 1200, 4000)
    assert ("randomness 1,200 of 4,000" in written.getvalue()) is shows
    assert is_terminal or not written.getvalue()


def test_each_is_told_before_it_is_done_until_somebody_ends_it() -> None:
    heard = []

    def end_at_two(stage: Stage, done: int, total: int | None) -> None:
        heard.append((stage, done, total))
        if done == 2:
            raise ConflictError("enough")

    done: list[str] = []
    with pytest.raises(ConflictError):
        done.extend(told(end_at_two, Stage.EVIDENCE, "abcd", 4))
    assert done == ["a", "b"]
    assert heard == [(Stage.EVIDENCE, number, 4) for number in range(3)]
