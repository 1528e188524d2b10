"""Keys that nobody declared, found and kept: `keys discover --track` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests import states
from tests.commands import Commands

KINDS = "select table_name, column_name, kind from tracked_key join attribute using (attribute_id) order by 1, 2"


def test_what_is_discovered_is_tracked_on_request(subsetd: Commands, database_url: str, tmp_path: Path) -> None:
    """`lines` and `stock` have keys of two columns, `customers` one of a single column: that is kept anyway."""
    shop = tmp_path / "shop"
    shop.mkdir()
    pairs = [(order, line) for order in range(1, 8) for line in range(1, 4)]
    lines = [f"{order},{line},{order % 2}" for order, line in pairs]
    (shop / "lines.csv").write_text("\n".join(["order_id,line_id,flag", *lines]))
    refunds = [f"{order},{line}" for order, line in [*pairs[:12], *pairs[:3]]]
    (shop / "refunds.csv").write_text("\n".join(["order_id,line_id", *refunds]))
    (shop / "customers.csv").write_text("id\n1\n2\n3\n")
    assert subsetd.run("bootstrap", str(shop), "--name", "shop", spark_master="local[1]")[0] == 0
    code, said = subsetd.run("keys", "discover", "shop", "--track", spark_master="local[1]")
    assert (code, said.count("is tracked as a key since version")) == (0, 2), said
    assert states.query(database_url, KINDS) == [
        ("lines", "(order_id, line_id)", "discovered"),
        ("refunds", "(order_id, line_id)", "discovered"),
    ]
    code, said = subsetd.run("foreign-keys", "--suggested", "--format", "json")
    both = [one for one in json.loads(said) if len(one["dependent"]) == 2]
    assert [(one["dependent"][0][1], one["referenced"][0][1]) for one in both] == [("refunds", "lines")]
