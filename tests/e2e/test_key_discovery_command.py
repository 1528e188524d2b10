"""Keys that nobody declared, found and kept: `keys discover --track` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import states
from tests.commands import Commands

KINDS = "select table_name, column_name, kind from tracked_key join attribute using (attribute_id) order by 1, 2"


def test_what_is_discovered_is_tracked_on_request(subsetd: Commands, database_url: str, tmp_path: Path) -> None:
    """`lines` and `stock` have keys of two columns, `customers` one of a single column: that is kept anyway.

    What was found stands alone on standard output, for other programs.
    """
    shop = tmp_path / "shop"
    shop.mkdir()
    pairs = [(order, line) for order in range(1, 8) for line in range(1, 4)]
    lines = [f"{order},{line},{order % 2}" for order, line in pairs]
    (shop / "lines.csv").write_text("\n".join(["order_id,line_id,flag", *lines]))
    refunds = [f"{order},{line}" for order, line in [*pairs[:12], *pairs[:3]]]
    (shop / "refunds.csv").write_text("\n".join(["order_id,line_id", *refunds]))
    (shop / "customers.csv").write_text("id\n1\n2\n3\n")
    assert subsetd.run("bootstrap", str(shop), "--name", "shop", spark_master="local[1]")[0] == 0
    discover = [sys.executable, "-m", "service.cli", "keys", "discover", "shop", "--track", "--format", "json"]
    settings = {"SUBSETD_DATABASE_URL": database_url, "SUBSETD_SPARK_MASTER": "local[1]"}
    done = subprocess.run(discover, env=os.environ | settings, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr.count("is tracked as a key since version")) == (0, 2), done.stderr
    assert json.loads(done.stdout)["track"] == ["shop.lines(order_id, line_id)", "shop.refunds(order_id, line_id)"]
    assert states.query(database_url, KINDS) == [
        ("lines", "(order_id, line_id)", "discovered"),
        ("refunds", "(order_id, line_id)", "discovered"),
    ]
    _, said = subsetd.run("foreign-keys", "--suggested", "--format", "json")
    both = [one for one in json.loads(said) if len(one["dependent"]) == 2]
    assert [(one["dependent"][0][1], one["referenced"][0][1]) for one in both] == [("refunds", "lines")]
