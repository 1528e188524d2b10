"""What tables on a terminal look like."""

from __future__ import annotations

import pytest

from service.terminal import print_table, told_share


def test_what_a_number_names_is_shown_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", "feed", "offset", "since version", "rows"], [[1000, "f", 2_000_000, 3000, 4000]])
    assert capsys.readouterr().out.splitlines()[1].split() == ["1000", "f", "2000000", "3000", "4,000"]


@pytest.mark.parametrize(
    ("value", "form", "told"),
    [
        (1.0, ".4f", "1.0000"),
        (24_999 / 25_000, ".4f", "0.9999"),
        (24_999 / 25_000, ".4g", "0.9999"),
        (1.0, ".4g", "1"),
        (1 - 1e-9, ".6g", "0.999999"),
        (0.99994, ".4f", "0.9999"),
        (0.5, ".4g", "0.5"),
        (0.0, ".4f", "0.0000"),
    ],
)
def test_a_share_below_one_is_not_told_as_one(value: float, form: str, told: str) -> None:
    assert told_share(value, form) == told
