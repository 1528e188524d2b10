"""How rows lie in blocks: those of wide tables in smaller ones, but for those that were written before there were."""

from __future__ import annotations

import numpy as np

from service.core.join_layout import BLOCK_CELLS, Layout

ROWS, WIDTHS, FUNCTIONS = np.array([2500, 600, 3, 0]), np.array([3, 1000, 1_000_000, 0]), np.array([16, 1, 1, 7])


def blocks(layout: Layout) -> list[int]:
    return np.unique(layout.blocks(np.arange(ROWS.sum()))).tolist()


def test_a_block_of_a_wide_table_has_fewer_rows() -> None:
    made = Layout.of(ROWS, WIDTHS, FUNCTIONS)
    assert made.block_rows.tolist() == [1000, 262, 1, 1000]
    assert blocks(made) == [0, 1000, 2000, 2500, 2762, 3024, 3100, 3101, 3102]
    assert (np.minimum(ROWS, made.block_rows) * WIDTHS)[:2].max() <= BLOCK_CELLS
    stored = Layout.from_bytes(made.to_bytes())
    assert blocks(stored) == blocks(made)
    assert [stored.rows.tolist(), stored.widths.tolist(), stored.functions.tolist()] == [
        ROWS.tolist(), WIDTHS.tolist(), FUNCTIONS.tolist()
    ]  # fmt: skip


def test_blocks_that_were_written_before_are_found_where_they_are() -> None:
    parts = zip((ROWS, WIDTHS, FUNCTIONS), ("<i8", "<i4", "u1"), strict=True)
    stored = Layout.from_bytes(b"".join(part.astype(kind).tobytes() for part, kind in parts))
    assert blocks(stored) == [0, 1000, 2000, 2500, 3100]
    assert blocks(Layout.from_bytes(stored.to_bytes())) == blocks(stored)
