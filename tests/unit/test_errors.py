"""What errors carry, and how what others say is cut to be stored and quoted."""

from __future__ import annotations

import pytest

from service.core.errors import LONGEST_MESSAGE, NoStateError, RecordError, cut_message, first_line


def test_an_error_of_a_record_says_what_may_be_said_of_it() -> None:
    told = RecordError("the value 7 is no date")
    assert [str(told), told.without_values, told.change] == ["the value 7 is no date", None, None]
    assert RecordError("the value 7 is no date", "a value is no date").without_values == "a value is no date"
    plain = RecordError.plain("there is no such table")
    assert [str(plain), plain.without_values, plain.change] == ["there is no such table"] * 2 + [None]


def test_where_there_is_no_state_the_way_to_one_is_named() -> None:
    assert "subsetd bootstrap" in str(NoStateError())
    assert str(NoStateError("None yet.")) == "None yet."


@pytest.mark.parametrize("length", [0, LONGEST_MESSAGE - 1, LONGEST_MESSAGE])
def test_a_message_that_is_not_too_long_is_stored_whole(length: int) -> None:
    assert cut_message("x" * length) == "x" * length


def test_a_message_is_stored_without_nul_and_cut() -> None:
    assert cut_message("a\0b\0") == "a\\0b\\0"
    assert cut_message("y" * (LONGEST_MESSAGE + 1)) == "y" * LONGEST_MESSAGE + "..."


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        (ValueError(" It is not there.\n\nDETAIL: x."), "It is not there"),
        (ValueError("\n\n  Xs first. \nsecond"), "Xs first"),
        (ValueError("...and more...X"), "...and more...X"),
        (ValueError(""), "no reason was given"),
        (ValueError(" \n"), "no reason was given"),
        (None, "no reason was given"),
    ],
)
def test_of_what_a_library_says_the_first_line_is_quoted(said: BaseException | None, quoted: str) -> None:
    assert first_line(said) == quoted
