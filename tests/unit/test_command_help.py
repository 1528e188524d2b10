"""The help of each command has an example that the command takes, so that no example outlives its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import pytest
from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from service.cli import COMMANDS, LoadedWhenCalled, app
from service.command_help import EXAMPLES, command_of


def loaded(command: TyperCommand | TyperGroup) -> TyperCommand | TyperGroup:
    """Give a command itself, which is not there before it is called."""
    return command.load() if isinstance(command, LoadedWhenCalled) else command


def commands_below(
    command: TyperCommand | TyperGroup, words: str = ""
) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """Give each command with the words that call it, groups too."""
    for name, inner in getattr(loaded(command), "commands", {}).items():
        yield f"{words} {name}".strip(), loaded(inner)
        yield from commands_below(inner, f"{words} {name}".strip())


def parse(command: TyperCommand | TyperGroup, words: list[str], name: str = "subsetd") -> list[str]:
    """Parse a command line as the command does, without running it; give the names of the commands on the way."""
    command = loaded(command)
    context = command.make_context(name, words)
    if not isinstance(command, TyperGroup) or not (rest := [*context._protected_args, *context.args]):
        return [name]
    inner, found, left = command.resolve_command(context, rest)
    assert found is not None
    return [name, *parse(found, left, inner or "")]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Give what the help of a command prints on a wide terminal, by the command's words."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")

    def show(words: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            command_of(app)([*words.split(), "--help"])
        return capsys.readouterr().out

    return show


def test_every_command_has_an_example_and_no_example_is_of_none() -> None:
    assert {words for words, _ in commands_below(command_of(app))} == EXAMPLES.keys()


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_is_taken_and_shown(words: str, shown: Callable[[str], str]) -> None:
    command = command_of(app)
    for line in EXAMPLES[words].split(" && "):
        program, *arguments = shlex.split(line)
        assert program == "subsetd"
        called = parse(command, arguments)
        assert called[1 : 1 + len(words.split())] == words.split()
    assert EXAMPLES[words] in shown(words)


def test_commands_are_listed_in_the_order_in_which_one_meets_them(shown: Callable[[str], str]) -> None:
    text = shown("")
    listed = [words for words in EXAMPLES if " " not in words]
    assert re.findall(rf"^\W*({'|'.join(listed)}) ", text, re.MULTILINE) == listed
    assert "docs/settings.md" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_that_is_not_loaded_is_what_the_command_says(name: str) -> None:
    waiting = command_of(app).commands[name]
    assert waiting.help == (loaded(waiting).help or "").partition("\n")[0]


@pytest.mark.parametrize("words", ["status", "preflight"])
def test_what_is_no_list_offers_no_csv(words: str, shown: Callable[[str], str]) -> None:
    assert "<table|json>" in shown(words)
    with pytest.raises(BadParameter, match="'csv' is not one of 'table', 'json'"):
        parse(command_of(app), [words, "--format", "csv"])


def test_every_option_and_argument_says_what_it_is() -> None:
    silent = [
        f"{words} {parameter.name}"
        for words, command in commands_below(command_of(app))
        for parameter in command.params
        if parameter.name != "help" and not getattr(parameter, "help", None)
    ]
    assert silent == []
