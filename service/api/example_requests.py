"""Own the request that the examples of a route's parameters and body make, for /docs and for who tries it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

IN_EXAMPLE = "x-in-example"
"""Says in a parameter's schema that a request has to have it, or another one: the example has this one."""


class ExampleRequest(NamedTuple):
    """Hold a request: `target` is path and query, percent-encoded; `body` is text, or None where bytes are sent."""

    method: str
    target: str
    media_type: str | None
    body: str | None

    def as_curl(self, host: str) -> str:
        """Write it for a shell."""
        words = ["curl", *([] if self.method == "GET" else ["-X", self.method])]
        if self.media_type is not None:
            words += ["-H", f"Content-Type: {self.media_type}"]
            words += ["--data-binary", "@FILE"] if self.body is None else ["-d", self.body]
        return shlex.join([*words, host + self.target])


def example_request(
    method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]
) -> ExampleRequest:
    """Fill in an operation of an OpenAPI document: its path, its body, and the query parameters that must be there.

    Raises KeyError where one of them has no example.
    """
    query = {}
    for parameter in operation.get("parameters", ()):
        if parameter.get("required") or parameter["schema"].get(IN_EXAMPLE):
            value = _example(parameter)
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", quote(str(value), safe=":"))
            else:
                query[parameter["name"]] = value
    content = operation.get("requestBody", {}).get("content", {})
    is_json = "application/json" in content
    body = content["text/csv"]["example"] if "text/csv" in content else None
    if is_json:
        body = json.dumps(_schema(content["application/json"]["schema"], document)["example"])
    target = f"{path}?{urlencode(query, doseq=True)}" if query else path
    return ExampleRequest(method.upper(), target, next(iter(content), None), body)


def _example(parameter: Mapping[str, Any]) -> Any:
    told = parameter.get("examples")
    return next(iter(told.values()))["value"] if told else parameter["schema"]["examples"][0]


def _schema(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found
