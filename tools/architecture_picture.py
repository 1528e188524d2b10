"""Draw which room imports which, from the code, into docs/architecture.md: `python -m tools.architecture_picture`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- picture: make picture -->\n", "<!-- end of the picture -->\n"

FOLDERS = tuple(f"service/{one}" for one in ("core", "usecases", "store", "stream", "channels", "api", "demo"))
"""Rooms of the service that are folders; of what lies beside them, wiring and settings have rooms of their own."""

BESIDE = (
    "corpus_row_reader",
    "feed_options",
    "job_process",
    "library_settings",
    "log",
    "observe",
    "process_memory",
    "reading_options",
    "scheduler",
    "server",
    "signals",
    "terminal",
)
"""Files of the service that composition and commands use alike."""

TITLES = {
    "spark_jobs": "spark_jobs<br/>processes of their own",
    "commands": "service/*.py<br/>commands, and threads beside the consumer",
    "wiring": "service/*wiring.py<br/>what several put together alike",
    "beside": "service/log.py, observe.py, scheduler.py, ...<br/>what commands and wiring use alike",
    "config": "service/config.py<br/>the environment",
    "migrations": "migrations<br/>the schema",
    "subsetd": "subsetd<br/>the client",
}
OUTSIDE = {
    "psycopg2": "postgres",
    "sqlalchemy": "postgres",
    "alembic": "postgres",
    "kafka": "kafka",
    "fastapi": "http",
    "starlette": "http",
    "uvicorn": "http",
    "httpx": "http",
    "pyspark": "spark",
}
SHAPES = {"postgres": "[(Postgres)]", "kafka": "[/Kafka/]", "http": "([HTTP])", "spark": "{{Spark}}"}


def room_of(module: str) -> str | None:
    """Name the room of a module; None where it is none of ours."""
    path = module.replace(".", "/")
    for folder in FOLDERS:
        if path == folder or path.startswith(f"{folder}/"):
            return folder.removeprefix("service/")
    first, _, rest = path.partition("/")
    if first in ("spark_jobs", "migrations", "subsetd"):
        return first
    if first != "service":
        return OUTSIDE.get(first)
    if rest == "config":
        return "config"
    if rest in BESIDE:
        return "beside"
    return ("wiring" if rest.endswith("wiring") else "commands") if rest else None


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Give the modules that a file imports when it runs; what only types need is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            # `from service import wiring` names a module, `from service.config import Settings` none.
            yield from (f"{module}.{alias.name}" if _is_module(module, alias.name) else module for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from imports_of(node)


def edges() -> set[tuple[str, str]]:
    """Find which room imports from which, all files of the project taken together."""
    found = set()
    for package in ("service", "spark_jobs", "migrations", "subsetd"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
            here = room_of(module)
            for imported in imports_of(ast.parse(path.read_text())):
                there = room_of(imported)
                if here and there and here != there:
                    found.add((here, there))
    return found


def without_shortcuts(found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out each edge whose end is reached by others as well (the transitive reduction, of what has no cycle)."""

    def reached(room: str) -> set[str]:
        nearby = {there for here, there in found if here == room}
        return nearby.union(*(reached(there) for there in nearby))

    beyond = {here: set().union(*(reached(t) for h, t in found if h == here)) for here, _ in found}
    return {(here, there) for here, there in found if there not in beyond[here]}


def picture() -> str:
    """Write the rooms and their imports as a flowchart of Mermaid."""
    found = sorted(without_shortcuts(edges()))
    lines = ["```mermaid", "flowchart TD"]
    for room in sorted({room for edge in found for room in edge}):
        lines.append(
            f"    {room}{SHAPES[room]}" if room in SHAPES else f'    {room}["{TITLES.get(room, f"service/{room}")}"]'
        )
    lines += [f"    {here} --> {there}" for here, there in found]
    return "\n".join([*lines, "```\n"])


def drawn(page: str) -> str:
    """Give the page with the picture of today."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + picture() + END + rest.split(END)[1]


def _is_module(package: str, name: str) -> bool:
    folder = ROOT / package.replace(".", "/")
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
