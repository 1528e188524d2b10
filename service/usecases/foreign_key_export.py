"""Own foreign keys written for other tools: SQL, tests of dbt, diagrams of Mermaid, GraphML, CSV, JSON.

Names may have any character, so each format's own quoting is used for all of them.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from io import StringIO
from itertools import groupby

from service.core.foreign_keys.sides import ForeignKey, Side
from service.usecases.foreign_key_decisions import Verdict
from service.usecases.graph_export import xml_text
from service.usecases.kept_candidates import Candidate


class KeyFormat(StrEnum):
    """Name the formats of exported foreign keys."""

    SQL = "sql"
    DBT = "dbt"
    MERMAID = "mermaid"
    GRAPHML = "graphml"
    CSV = "csv"
    JSON = "json"


def export_keys(
    keys: Iterable[ForeignKey], format_: KeyFormat, candidates: Mapping[ForeignKey, Candidate | None] | None = None
) -> str:
    """Write foreign keys, by the names of their sides; one that comes twice is written once.

    JSON has of those that are candidates what was found of them.
    """
    ordered = sorted(set(keys))
    return as_json(ordered, candidates or {}) if format_ is KeyFormat.JSON else _WRITERS[format_](ordered)


def as_sql(keys: Sequence[ForeignKey]) -> str:
    """Write statements for Postgres: rows that are there are looked at by VALIDATE CONSTRAINT alone."""
    return "".join(
        f"ALTER TABLE {_sql_table(one.dependent)} ADD FOREIGN KEY ({_sql_columns(one.dependent)}) "
        f"REFERENCES {_sql_table(one.referenced)} ({_sql_columns(one.referenced)}) NOT VALID;\n"
        for one in keys
    )


def as_dbt(keys: Sequence[ForeignKey]) -> str:
    """Write `relationships` tests of dbt's sources; those that it cannot make are named in comments.

    Both tables are declared: dbt disables a test of what is not. Columns are quoted: dbt writes them as it is told.
    """
    singles = [one for one in keys if _is_for_dbt(one)]
    tests = {table: list(of_table) for table, of_table in groupby(singles, lambda one: one.dependent[:2])}
    lines = ["version: 2", "sources:" if singles else "sources: []"]
    for schema, tables in groupby(_places(singles), lambda table: table[0]):
        lines += [f"  - name: {_plain(schema)}", *_called("    schema", schema), "    tables:"]
        for table in tables:
            lines += [f"      - name: {_plain(table[1])}", *_called("        identifier", table[1])]
            lines += ["        columns:"] if table in tests else []
            for column, of_column in groupby(tests.get(table, ()), lambda one: one.dependent.columns[0]):
                # dbt sets the quotes around it, and doubles none in it.
                lines += [f"          - name: {_plain(_doubled(column))}", "            quote: true"]
                lines += ["            data_tests:"]
                for one in of_column:
                    referenced = one.referenced
                    # A string of Jinja within one of YAML: both are quoted.
                    source = f"source({_quoted(referenced.schema)}, {_quoted(referenced.table)})"
                    lines += [
                        "              - relationships:",
                        *_named(one),
                        "                  arguments:",
                        f"                    to: {_quoted(source)}",
                        f"                    field: {_plain(_sql(referenced.columns[0]))}",
                    ]
    lines += [f"# no test of dbt: {_quoted(str(one))}" for one in keys if not _is_for_dbt(one)]
    return "\n".join(lines) + "\n"


def as_mermaid(keys: Sequence[ForeignKey]) -> str:
    """Write an erDiagram; a character that would end a name is written as Mermaid's code of it."""
    places = _places(keys)
    lines = ["erDiagram"]
    lines += [f'  t{place}["{_mermaid(f"{schema}.{table}")}"]' for (schema, table), place in places.items()]
    for one in keys:
        label = f"{', '.join(one.dependent.columns)} → {', '.join(one.referenced.columns)}"
        dependent, referenced = places[one.dependent[:2]], places[one.referenced[:2]]
        lines.append(f'  t{referenced} ||--o{{ t{dependent} : "{_mermaid(label)}"')
    return "\n".join(lines) + "\n"


def as_graphml(keys: Sequence[ForeignKey]) -> str:
    """Write tables as nodes and foreign keys as edges, from the dependent to the referenced table.

    In a name, a character that XML cannot hold becomes U+FFFD.
    """
    places = _places(keys)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '<key id="name" for="node" attr.name="name" attr.type="string"/>',
        '<key id="dependent" for="edge" attr.name="dependent" attr.type="string"/>',
        '<key id="referenced" for="edge" attr.name="referenced" attr.type="string"/>',
        '<graph edgedefault="directed">',
    ]
    lines += [
        f'<node id="t{place}"><data key="name">{xml_text(f"{schema}.{table}")}</data></node>'
        for (schema, table), place in places.items()
    ]
    lines += [
        f'<edge source="t{places[one.dependent[:2]]}" target="t{places[one.referenced[:2]]}">'
        f'<data key="dependent">{xml_text(", ".join(one.dependent.columns))}</data>'
        f'<data key="referenced">{xml_text(", ".join(one.referenced.columns))}</data></edge>'
        for one in keys
    ]
    return "\n".join([*lines, "</graph>", "</graphml>"]) + "\n"


def as_csv(keys: Sequence[ForeignKey]) -> str:
    """Write a line with a header's names for each pair of columns; those of one foreign key have one number, from 1."""
    written = StringIO(newline="")
    # All texts are quoted: Python's writer would leave a carriage return bare.
    lines = csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    sides = [f"{side}_{part}" for side in ("dependent", "referenced") for part in ("schema", "table", "column")]
    lines.writerow(["foreign_key", *sides])
    for number, one in enumerate(keys, 1):
        for columns in zip(one.dependent.columns, one.referenced.columns, strict=True):
            lines.writerow([number, *one.dependent[:2], columns[0], *one.referenced[:2], columns[1]])
    return written.getvalue()


def as_json(keys: Sequence[ForeignKey], candidates: Mapping[ForeignKey, Candidate | None]) -> str:
    """Write a list as `subsetd foreign-keys --format json` does, with what was decided; no candidate has no score."""
    documents = []
    for one in keys:
        sides = {side: [list(name) for name in columns.names] for side, columns in one._asdict().items()}
        found = candidates.get(one)
        documents.append(
            {
                **sides,
                "score": found and found.score,
                "suggested": found is not None and found.suggested,
                "implied": found is not None and found.implied,
                # Without having been found it is there because it was accepted.
                "verdict": Verdict.ACCEPT if found is None else found.verdict,
                "evidence": found and found.evidence,
            }
        )
    return json.dumps(documents, ensure_ascii=False, indent=1) + "\n"


_WRITERS: Mapping[KeyFormat, Callable[[Sequence[ForeignKey]], str]] = {
    KeyFormat.SQL: as_sql,
    KeyFormat.DBT: as_dbt,
    KeyFormat.MERMAID: as_mermaid,
    KeyFormat.GRAPHML: as_graphml,
    KeyFormat.CSV: as_csv,
}


def _is_for_dbt(one: ForeignKey) -> bool:
    """Tell whether dbt has a test for it: of one column, on a table whose names it can quote itself, as it does not."""
    return len(one.dependent.columns) == 1 and not set("".join(one.dependent[:2])) & set("'\\")


def _called(property_: str, name: str) -> list[str]:
    """Say what a schema or table is called in SQL where that is not its name: dbt doubles no quotes in it."""
    return [f"{property_}: {_plain(_doubled(name))}"] if '"' in name else []


def _named(one: ForeignKey) -> list[str]:
    """Name a test where dbt would make its name of a schema's or table's with a space, which it then refuses."""
    if re.fullmatch(r"\w+", one.dependent.schema + one.dependent.table):
        return []
    told = re.sub(r"\W+", "_", one.dependent.table)[:40]
    return [f"                  name: relationships_{told}_{sha256(repr(one).encode()).hexdigest()[:10]}"]


def _places(keys: Sequence[ForeignKey]) -> dict[tuple[str, str], int]:
    """Number the tables, in the order of their names."""
    return {table: place for place, table in enumerate(sorted({side[:2] for one in keys for side in one}))}


def _sql_table(side: Side) -> str:
    return f"{_sql(side.schema)}.{_sql(side.table)}"


def _sql_columns(side: Side) -> str:
    return ", ".join(map(_sql, side.columns))


def _sql(name: str) -> str:
    """Quote a name always: which words are reserved is another matter in each release."""
    return f'"{_doubled(name)}"'


def _doubled(name: str) -> str:
    return name.replace('"', '""')


def _plain(text: str) -> str:
    """Write a text for YAML that dbt renders with Jinja: as a string of Jinja's where it would read more in it."""
    return _quoted("{{ " + _quoted(text) + " }}" if _JINJAS_OWN.search(text) else text)


_JINJAS_OWN = re.compile("{[{%#]")


def _quoted(text: str) -> str:
    """Write a string for YAML and for Jinja, which read backslashes alike."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _mermaid(text: str) -> str:
    """Write a text that stands in quotes; what Mermaid would read otherwise as the number of its character."""
    return "".join(one if one not in _MERMAIDS_OWN and one.isprintable() else f"#{ord(one)};" for one in text)


_MERMAIDS_OWN = frozenset('"#;%\\<>{}`')
