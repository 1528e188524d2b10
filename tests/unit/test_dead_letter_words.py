"""What `subsetd dead-letters` says where nothing can be tried again."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from service.dead_letter_commands import app


def test_letters_of_which_the_place_alone_is_kept_are_not_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are set aside, and `retry --all` passes them over."""
    monkeypatch.setattr("service.wiring.state_database", lambda settings: nullcontext("state"))
    monkeypatch.setattr("service.feed_wiring.retry_dead_letters", lambda url, settings, ids, asking: [])
    said = CliRunner().invoke(app, ["retry", "--all"])
    assert said.exit_code == 0
    assert " ".join(said.stdout.split()) == "No record is set aside that can be tried again."
