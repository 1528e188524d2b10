"""Own what the help says beside each command's own words: an example of each, and in which order they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer.main
from typer.core import TyperGroup

ENDING = (
    "Settings are environment variables, SUBSETD_DATABASE_URL, SUBSETD_PORT and others: docs/settings.md. "
    "The exit code is 0 when all went well, 1 after an error, 2 when the command or a setting is none."
)

EXAMPLES: Mapping[str, str] = {
    "demo": "subsetd demo --once",
    "bootstrap": "subsetd bootstrap /data/sales --name sales --null-token '\\N'",
    "follow": "subsetd follow postgresql://me@localhost:5432/shop --name shop",
    "follow-spark": "subsetd follow-spark --feed kafka://localhost:9092/shop.public.orders --master spark://master:7077",
    "unfollow": "subsetd unfollow shop",
    "consume": "subsetd consume --feed kafka://localhost:9092/shop.public.orders,shop.public.items --until-end",
    "pause": "subsetd pause",
    "resume": "subsetd resume",
    "run": "subsetd run --feed 'kafka://localhost:9092/?prefix=shop.public.'",
    "serve": "subsetd serve",
    "status": "subsetd status",
    "attributes": "subsetd attributes --table orders",
    "inds": "subsetd inds --referenced-table customers --format csv",
    "explain": "subsetd explain sales.orders.customer_id sales.customers.id --missing 20",
    "coefficients": "subsetd coefficients --dependent sales.orders.customer_id --top 10",
    "foreign-keys": "subsetd foreign-keys --suggested --format json",
    "foreign-keys explain": "subsetd foreign-keys explain sales.orders.customer_id sales.customers.id",
    "foreign-keys accept": "subsetd foreign-keys accept sales.orders.customer_id sales.customers.id --note why",
    "foreign-keys reject": "subsetd foreign-keys reject sales.orders.status sales.customers.id",
    "foreign-keys pin": "subsetd foreign-keys pin 'sales.items(order_id, line)' 'sales.lines(order_id, line)'",
    "foreign-keys decisions": "subsetd foreign-keys decisions --format json",
    "keys": "subsetd keys list --nearly 0.01",
    "keys list": "subsetd keys list --nearly 0.01 --format json",
    "keys track": "subsetd keys track 'sales.lines(order_id, number)'",
    "keys drop": "subsetd keys drop 'sales.lines(order_id, number)'",
    "keys discover": "subsetd keys discover shop --width 3 --source postgresql://me@localhost:5432/shop",
    "sketch": "subsetd sketch far.csv --out far.zip",
    "sketch file": "subsetd sketch far.csv --column id --out id.sketch",
    "sketch lake": "subsetd sketch lake /data/lake --name lake",
    "sketch upload": "subsetd sketch upload far.zip --prefix far.",
    "sketch download": "subsetd sketch download sales.orders.customer_id --out customer_id.sketch",
    "sketch list": "subsetd sketch list --format json",
    "sketch drop": "subsetd sketch drop sketch:far.id",
    "corpus": "subsetd corpus add lake /data/lake && subsetd corpus refresh lake --wait",
    "corpus add": "subsetd corpus add lake /data/lake --filters paper --null-token paper --schedule '30 2 * * *'",
    "corpus set": "subsetd corpus set lake --schedule '0 4 * * 0' --unset time-limit",
    "corpus list": "subsetd corpus list",
    "corpus refresh": "subsetd corpus refresh lake --wait",
    "corpus index": "subsetd corpus index lake --wait",
    "corpus history": "subsetd corpus history lake --limit 5",
    "corpus show": "subsetd corpus show lake",
    "corpus faults": "subsetd corpus faults lake",
    "corpus tables": "subsetd corpus tables lake 2019/orders.csv",
    "corpus inds": "subsetd corpus inds lake --dependent 2019/orders.csv:1",
    "corpus pair": "subsetd corpus pair lake 2019/orders.csv:1 customers.csv:0",
    "corpus changes": "subsetd corpus changes lake",
    "corpus export": "subsetd corpus export lake inds.parquet",
    "corpus cancel": "subsetd corpus cancel lake",
    "corpus remove": "subsetd corpus remove lake",
    "graph": "subsetd graph show --top 5",
    "graph show": "subsetd graph show --corpus lake",
    "graph tables": "subsetd graph tables --component 0",
    "graph paths": "subsetd graph paths sales.orders sales.regions",
    "graph export": "subsetd graph export inds.graphml",
    "contract": "subsetd contract check",
    "contract add": "subsetd contract add sales.orders.customer_id sales.customers.id --least 0.99",
    "contract list": "subsetd contract list --format csv",
    "contract check": "subsetd contract check --format json",
    "contract remove": "subsetd contract remove 3",
    "watch": "subsetd watch add orders ind --dependent sales.orders.customer_id --referenced sales.customers.id "
    "--webhook https://alerts.example/x",
    "watch add": "subsetd watch add contracts contract --email ada@example.org --debounce 5m",
    "watch list": "subsetd watch list",
    "watch remove": "subsetd watch remove 3",
    "watch test": "subsetd watch test 3",
    "watch history": "subsetd watch history --watch 3 --format json",
    "watch silence": "subsetd watch silence --for 2h --pattern 'sales.orders.*' --reason 'a known defect'",
    "watch unsilence": "subsetd watch unsilence 1",
    "watch silences": "subsetd watch silences",
    "watch quiet": "subsetd watch quiet sales.orders --until-loaded",
    "watch loaded": "subsetd watch loaded 1",
    "watch loads": "subsetd watch loads",
    "backup": "subsetd backup /backups/monday.subsetd",
    "restore": "subsetd restore /backups/monday.subsetd --replace",
    "verify": "subsetd verify --source sales=/data/sales",
    "audit": "subsetd audit",
    "joinable": "subsetd joinable mine.csv --key city,year --corpus lake -k 10 --format json",
    "join-index": "subsetd join-index track sales.orders sales.customers",
    "join-index track": "subsetd join-index track sales.orders sales.customers",
    "join-index untrack": "subsetd join-index untrack sales.orders",
    "join-index list": "subsetd join-index list --format json",
    "preflight": "subsetd preflight --source postgresql://me@localhost:5432/shop --connect http://localhost:8083",
    "api-key": "subsetd api-key create grafana --scope read --expires 90d",
    "api-key create": "subsetd api-key create grafana --scope read --expires 90d",
    "api-key list": "subsetd api-key list --format json",
    "api-key revoke": "subsetd api-key revoke grafana",
    "write-log": "subsetd write-log --limit 20",
    "doctor": "subsetd doctor --json",
    "dead-letters": "subsetd dead-letters",
    "dead-letters list": "subsetd dead-letters list --format json",
    "dead-letters show": "subsetd dead-letters show 17",
    "dead-letters retry": "subsetd dead-letters retry 17 18",
    "dead-letters drop": "subsetd dead-letters drop 17",
    "shards": "subsetd shards set 4",
    "shards list": "subsetd shards list --format json",
    "shards set": "subsetd shards set 4 --servers shards.toml",
    "attribute": "subsetd attribute rename public.orders.client public.orders.customer",
    "attribute drop": "subsetd attribute drop public.orders.note",
    "attribute rename": "subsetd attribute rename public.orders.client public.orders.customer",
    "attribute mask": "subsetd attribute mask public.orders.note --keep prefix:3",
}
"""An example of each command, by its words; the help lists commands in this order."""


def command_of(app: typer.Typer) -> TyperGroup:
    """Make the command of an app, its help with the examples and in their order."""
    command: TyperGroup = explained(typer.main.get_group(app), "")
    command.epilog = ENDING
    return command


def explained(command: Any, words: str) -> Any:
    """Give a command, called by these words, with the examples of it and of all below it, these in their order."""
    if words in EXAMPLES:
        command.epilog = f"Example: {EXAMPLES[words]}"
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            explained(inner, f"{words} {name}".strip())
        order = list(EXAMPLES)
        listed = sorted(command.commands, key=lambda name: order.index(f"{words} {name}".strip()))
        command.commands = {name: command.commands[name] for name in listed}
    return command
