"""Make what of `subsetd.client` follows from other text: shapes and questions of the API, and the client that waits.

`python tools/make_client.py` writes the three files anew, `make client` calls it.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "subsetd"
MADE = "Made by `make client`: change what it is made of."

SCALARS = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}

WAITING = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(Client|Rows|Iterator)\b", r"\1"),
    (r"\bhttpx\.Async", "httpx."),
    (r"\b__a(enter|exit|iter)__", r"__\1__"),
    (r"\ba(close|read|iter_bytes)\b", r"\1"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bimport asyncio\b", "import time"),
    (r"the client that does not block", "the client that waits for each answer"),
)
"""What makes the client that waits of the one that does not: text, and what stands in its place."""


def document() -> dict[str, Any]:
    """Give the OpenAPI document of the service, of which nothing runs."""
    from prometheus_client import CollectorRegistry

    from service.api.app import create_app

    parameters = inspect.signature(create_app).parameters.values()
    parts = [Mock() for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    return create_app(*parts, registry=CollectorRegistry(), service_version="0").openapi()


def shapes(openapi: Mapping[str, Any]) -> str:
    """Write the shapes of answers that the client names as TypedDicts, with what they are made of."""
    known = openapi["components"]["schemas"]
    wanted: set[str] = set()
    waiting = _used("shapes")
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += _referenced(known[name])
    # Enumerations are plain texts in JSON, and told apart by the checker alone.
    enums = [name for name in sorted(wanted) if "enum" in known[name]]
    parts = [f"{name}: TypeAlias = Literal[{', '.join(map(repr, known[name]['enum']))}]\n" for name in enums]
    for name in sorted(wanted - set(enums)):
        fields = known[name]["properties"]
        parts.append(_typed_dict(name, {field: _type(schema, known) for field, schema in fields.items()}))
    return _module("Own the shapes of the service's answers.", parts)


def questions(openapi: Mapping[str, Any]) -> str:
    """Write the parameters of each question as TypedDicts, but for the cursor, which the client keeps to itself."""
    known = openapi["components"]["schemas"]
    used = _used("questions")
    parts = []
    for operation in (one for of_path in openapi["paths"].values() for one in of_path.values()):
        name = "".join(part.capitalize() for part in operation["operationId"].split("_"))
        if name in used:
            asked = {one["name"]: one for one in operation["parameters"] if one["in"] == "query"}
            if asked.pop("cursor", None) is not None:
                del asked["limit"]  # of a page: the client asks for large ones
            fields = {one: _type(_plain(told["schema"], known), known) for one, told in asked.items()}
            fields |= {one: f"Required[{fields[one]}]" for one, told in asked.items() if told.get("required")}
            parts.append(_typed_dict(name, fields, "TypedDict, total=False"))
    return _module("Own what may be asked of each route, beside what its path names.", parts)


def waiting_client() -> str:
    """Make the client that waits of the one that does not block."""
    text = (FOLDER / "_async_client.py").read_text("utf-8")
    for pattern, instead in WAITING:
        text = re.sub(pattern, instead, text)
    head, _, rest = text.partition("\n")
    return f"{head}\n# {MADE}\n{rest}"


def _used(module: str) -> list[str]:
    """Name what the client uses of a module that is made."""
    return sorted(set(re.findall(rf"\b{module}\.(\w+)", (FOLDER / "_async_client.py").read_text("utf-8"))))


def _referenced(schema: object) -> list[str]:
    """Name the schemas that a schema refers to."""
    if isinstance(schema, Mapping):
        own = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
        return own + [name for key, part in schema.items() if key != "example" for name in _referenced(part)]
    return [name for part in schema for name in _referenced(part)] if isinstance(schema, list) else []


def _plain(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave null out of what is asked: what is not asked is left out."""
    options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    schema = options[0] if len(options) == 1 else schema
    named = known.get(schema.get("$ref", "").rpartition("/")[2], {})
    return named if "enum" in named else schema


def _type(schema: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(_plain(one, {}), known) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
    kind = schema.get("type")
    if kind == "array":
        return f"list[{_type(_plain(schema['items'], known), known)}]"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"dict[str, {_type(inner, known) if isinstance(inner, Mapping) else 'Any'}]"
    if schema.get("format") == "date-time":
        return "Time"
    return SCALARS.get(str(kind), "Any")


def _typed_dict(name: str, fields: Mapping[str, str], base: str = "TypedDict") -> str:
    lines = "".join(f"    {field}: {kind}\n" for field, kind in fields.items()) or "    pass\n"
    return f"class {name}({base}):\n{lines}"


def _module(purpose: str, parts: Iterable[str]) -> str:
    body = "\n\n".join(parts)
    used = [one for one in ("Annotated", "Any", "Literal", "Required", "TypeAlias", "TypedDict") if one in body]
    time = ""
    if "Time" in body:
        used = sorted({*used, "Annotated", "TypeAlias"})
        time = 'Time: TypeAlias = Annotated[str, "date-time"]\n"""A time in UTC, in ISO 8601."""\n\n'
    head = f'"""{purpose} {MADE}"""\n\nfrom __future__ import annotations\n\n'
    return f"{head}from typing import {', '.join(used)}\n\n{time}{body}"


def laid_out(text: str) -> str:
    """Let ruff lay out a module."""
    command = [sys.executable, "-m", "ruff"]
    for more in (["check", "--fix-only", "--unsafe-fixes", "-q"], ["format", "-q"]):
        text = subprocess.run(
            [*command, *more, "--stdin-filename", str(FOLDER / "made.py"), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return text


def main() -> None:
    """Write the three files."""
    openapi = document()
    made = {"shapes.py": shapes(openapi), "questions.py": questions(openapi), "_sync_client.py": waiting_client()}
    for name, text in made.items():
        (FOLDER / name).write_text(laid_out(text), "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
