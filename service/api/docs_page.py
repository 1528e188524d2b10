"""Own the page /docs: the routes and problems as plain HTML, which asks nothing of other hosts."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from service.api.example_requests import example_request
from service.api.problems import EXPLANATIONS

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; } h3 { margin-top: 2.5rem; font-size: 1.1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: 4px; }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0; }
"""

HOST = "127.0.0.1:8321"
"""Where the service is unless settings say otherwise; the examples name it."""

SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def render(openapi: dict[str, Any], openapi_url: str) -> str:
    """Write the page for this OpenAPI document."""
    title = escape(openapi["info"]["title"])
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>",
        f"<h1>{title} {escape(openapi['info']['version'])}</h1><p>{escape(openapi['info']['description'])}</p>",
        f"<p>The same for programs: <a href='{openapi_url}'>{openapi_url}</a></p>",
    ]
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((method, path, operation))
    parts.append("<nav>")
    for tag, group in groups.items():
        links = (f"<a href='#{one['operationId']}'>{method.upper()} {escape(path)}</a>" for method, path, one in group)
        parts.append(f"<details><summary>{escape(tag.capitalize())}</summary>{'<br>'.join(links)}</details>")
    parts.append("<a href='#problems'>Problems</a></nav>")
    for tag, group in groups.items():
        parts.append(f"<h2>{escape(tag.capitalize())}</h2>")
        parts += [_operation(*one, openapi) for one in group]
    parts.append("<h2 id=problems>Problems</h2><table>")
    parts += [f"<tr id='{kind}'><td><code>{kind}</code><td>{escape(text)}" for kind, text in EXPLANATIONS.items()]
    parts.append("</table></html>")
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], openapi: dict[str, Any]) -> str:
    shown = escape(path) if "{" in path else f"<a href='{escape(path)}'>{escape(path)}</a>"
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one.get('description', ''))}"
        for one in operation.get("parameters", ())
        if one["in"] != "header"
    )
    answers = operation["responses"]
    good: dict[str, Any] = next((one for status, one in answers.items() if status < "300"), {})
    content = good.get("content", {}).get("application/json", {})
    example = json.dumps(content["example"], indent=2, ensure_ascii=False) if "example" in content else ""
    folded = f"<details><summary>Example</summary><pre>{escape(example)}</pre></details>" if example else ""
    text = escape(operation.get("description", "")).replace("\n\n", "<p>")
    fields = "".join(f"<tr><td><code>{name}</code><td>{escape(told)}" for name, told in _fields(content, openapi))
    if fields:
        folded = f"<details><summary>Fields</summary><table>{fields}</table></details>{folded}"
    statuses = "; ".join(
        f"<code>{status}</code> {escape(one['description'])}" for status, one in sorted(answers.items())
    )
    asked = escape(example_request(method, path, operation, openapi).as_curl(HOST))
    heading = f"<h3 id='{operation['operationId']}'>{method.upper()} <code>{shown}</code></h3>"
    return f"{heading}<p>{text}</p><table>{rows}</table><pre>{asked}</pre><p>{statuses}</p>{folded}"


def _fields(content: dict[str, Any], openapi: dict[str, Any]) -> list[tuple[str, str]]:
    """List the fields of an answer that have something to say, those of a list's items as `items[].name`."""
    told: list[tuple[str, str]] = []
    waiting = [("", content.get("schema", {}))]
    for prefix, schema in waiting:
        named = openapi["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
        for name, one in named.get("properties", {}).items():
            if "description" in one:
                told.append((f"{prefix}{name}", one["description"]))
            if not prefix and one.get("type") == "array":
                waiting.append((f"{name}[].", one["items"]))
    return told
