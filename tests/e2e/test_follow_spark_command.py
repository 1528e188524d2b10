"""The command on the real broker: topics followed on Spark into shards of which one is in another database."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests import states
from tests.commands import Commands
from tests.following import random_changes
from tests.shop import Shop
from tests.waiting import BOUND_SECONDS


def test_topics_are_followed_on_spark_into_shards_that_are_elsewhere(
    shop: Shop, subsetd: Commands, west_url: str, tmp_path: Path
) -> None:
    servers, figures = tmp_path / "shards.toml", tmp_path / "figures.json"
    servers.write_text(f"[west]\naddress = '{west_url}'\nshards = [1]\n")
    code, said = subsetd.run("shards", "set", "2", "--servers", str(servers))
    assert code == 0, said
    random_changes(shop, random.Random(3), 300)  # type: ignore[arg-type]
    shop.flush()
    following = subsetd.start(
        "follow-spark", f"--feed={shop.feed}", "--master=local[2]", "--until-end", "--batch-records=120",
        "--driver-memory=512m", f"--stats-json={figures}",
    )  # fmt: skip
    assert following.wait(BOUND_SECONDS) == 0, subsetd.said(following)
    told = json.loads(figures.read_text())
    assert told["records"] == sum(shop.sent.values())
    assert told["batches"] > 1
    assert states.query(west_url, "select count(*) > 0 from gen_rec") == [(True,)]
    code, said = subsetd.run("verify", "--sql-only")
    assert code == 0, said
    code, said = subsetd.run("shards", "set", "1")
    assert code == 0, said
    shop.check()
