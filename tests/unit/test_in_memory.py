"""Servers of tests keep their files in memory only where there is room for them."""

from __future__ import annotations

from pathlib import Path

from tests.in_memory import roomy


def test_a_folder_is_taken_where_it_has_room(tmp_path: Path) -> None:
    assert roomy(tmp_path, 1) == str(tmp_path)
    assert roomy(tmp_path, 1 << 62) is None
    assert roomy(tmp_path / "none", 1) is None
