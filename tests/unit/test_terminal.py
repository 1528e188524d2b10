"""What tables on a terminal look like."""

from __future__ import annotations

import pytest

from service.terminal import print_table


def test_what_a_number_names_is_shown_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", "feed", "offset", "since version", "rows"], [[1000, "f", 2_000_000, 3000, 4000]])
    assert capsys.readouterr().out.splitlines()[1].split() == ["1000", "f", "2000000", "3000", "4,000"]
