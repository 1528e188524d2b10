"""The demonstration's rounds: interrupted anywhere, a round is ended by the next run, so that none is half undone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from service import demo


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_round_that_was_interrupted_is_ended_by_the_next_run(share: float) -> None:
    whole: list[demo.Change] = []
    broken: list[demo.Change] = []
    for _ in range(3):
        round_ = demo.rest_of_round(len(whole))
        whole += round_
        broken += demo.rest_of_round(len(broken))[: int(len(round_) * share)]
        broken += demo.rest_of_round(len(broken))
        assert broken == whole


def test_the_second_round_takes_the_first_one_back() -> None:
    there = demo.rest_of_round(0)
    back = demo.rest_of_round(len(there))
    assert back == [(table, after, before) for table, before, after in reversed(there)]
    assert demo.rest_of_round(2 * len(there)) == there


@pytest.mark.parametrize(("path", "command"), [("", ".venv/bin/subsetd"), (None, "subsetd")])
def test_what_to_try_next_can_be_typed_as_it_is_shown(
    path: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subsetd").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if path is None else path)
    monkeypatch.setattr("sys.argv", [".venv/bin/subsetd", "demo"])
    shown = io.StringIO()
    demo.show_next("127.0.0.1", 8321, Console(file=shown, width=200))
    assert f"   {command} bootstrap FOLDER-OF-YOUR-CSV-FILES --name mine, then {command} inds" in shown.getvalue()


def test_an_address_of_ipv6_can_be_opened_as_it_is_shown() -> None:
    shown = io.StringIO()
    demo.show_next("::1", 8321, Console(file=shown, width=200))
    assert " http://[::1]:8321/docs" in shown.getvalue()
