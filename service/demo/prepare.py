"""Make the demo's tables and changes out of the Chinook sample database: `python -m service.demo.prepare FOLDER`.

FOLDER holds Chinook's tables as CSV. The year 2025, a customer and an album are taken out of the tables; the changes
bring them back as an unguarded feed does: lines before their invoice, an invoice before its customer, a deletion
that is not cascaded. Every row is Chinook's own, but for one album that is renamed and named back.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
Row = dict[str, str | None]


def prepare(chinook: Path) -> None:
    tables = {path.stem: _read(path) for path in sorted(chinook.glob("*.csv"))}
    late = [row for row in tables["Invoice"] if (row["InvoiceDate"] or "") >= "2025-11"]
    late_ids = {row["InvoiceId"] for row in late}
    lines = [row for row in tables["InvoiceLine"] if row["InvoiceId"] in late_ids]
    customer_id = late[0]["CustomerId"]
    newcomer = next(row for row in tables["Customer"] if row["CustomerId"] == customer_id)
    sold = {row["TrackId"] for row in lines}
    album_id = next(row["AlbumId"] for row in tables["Track"] if row["TrackId"] in sold)
    album = next(row for row in tables["Album"] if row["AlbumId"] == album_id)

    changes: list[tuple[str, Row | None, Row | None]] = []
    for invoice in late:
        own = [row for row in lines if row["InvoiceId"] == invoice["InvoiceId"]]
        changes += [("InvoiceLine", None, row) for row in own]
        changes.append(("Invoice", None, invoice))
        if invoice is late[0]:
            changes.append(("Customer", None, newcomer))
        if invoice is late[len(late) // 2]:
            changes.append(("Album", album, None))
            renamed = {**album, "Title": f"{album['Title']} (Remastered)"}
            changes.append(("Album", None, renamed))
            changes.append(("Album", renamed, album))
    tables["Invoice"] = [row for row in tables["Invoice"] if row not in late]
    tables["InvoiceLine"] = [row for row in tables["InvoiceLine"] if row["InvoiceId"] not in late_ids]
    # A customer who has bought before stays: only one whose invoices are all late can come as a newcomer.
    buyers = {row["CustomerId"] for row in tables["Invoice"]}
    if customer_id in buyers:
        tables["Invoice"] = [row for row in tables["Invoice"] if row["CustomerId"] != customer_id]
        kept = {row["InvoiceId"] for row in tables["Invoice"]}
        tables["InvoiceLine"] = [row for row in tables["InvoiceLine"] if row["InvoiceId"] in kept]
    tables["Customer"] = [row for row in tables["Customer"] if row is not newcomer]

    for name, rows in tables.items():
        with (HERE / "chinook" / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(rows[0])
            writer.writerows(row.values() for row in rows)
    with (HERE / "changes.jsonl").open("w", encoding="utf-8") as file:
        for table, before, after in changes:
            op = "u" if before and after else "c" if after else "d"
            source = {"schema": "chinook", "table": table}
            record = {"before": before, "after": after, "op": op, "source": source}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(file)]


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
