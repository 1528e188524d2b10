"""How rows lie in blocks: those of wide tables in smaller ones, but for those that were written before there were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(0, 3).map(lambda exponent: 40**exponent),
)
def test_cells_and_rows_are_found_in_their_tables(shapes, longest) -> None:
    """Held against counting; one table is far longer than others, so that guides are far apart."""
    shapes = [(longest, 1), *shapes]
    rows, widths = (np.array(part) for part in zip(*shapes, strict=True))
    layout = Layout.of(rows, widths, np.ones(len(shapes), np.int64))
    cells = [
        (table, row) for table, (length, width) in enumerate(shapes) for row in range(length) for _ in range(width)
    ]
    chosen = np.unique(np.linspace(0, len(cells) - 1, 200).astype(np.int64))[::-1]
    tables = layout.tables(chosen)
    assert tables.tolist() == [cells[place][0] for place in chosen]
    assert layout.rows_of(chosen, tables).tolist() == [layout.first_rows[cells[p][0]] + cells[p][1] for p in chosen]
    assert layout.widths_of(layout.rows_of(chosen, tables)).tolist() == [widths[cells[place][0]] for place in chosen]
    assert len(layout.guide) <= 8 * len(shapes) + 2
