"""Every route answers what its own examples ask, over a state that has what they name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx
import jsonschema_rs
import pytest

from service.api.access_schemas import EXAMPLE_KEY
from service.api.docs_page import HOST
from service.api.example_requests import ExampleRequest, example_request
from service.api.routes_stream import MEDIA_TYPE as STREAM
from service.core.sketches.column import ColumnSketch
from tests.asking import http_client
from tests.integration.example_state import served_examples

BYTES = "application/octet-stream"


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    """Serve what the examples speak of."""
    # Keys are made here, and from the first one on each route wants one.
    headers = {"Authorization": f"Bearer {EXAMPLE_KEY}"}
    with (
        served_examples(database_url, EXAMPLE_KEY) as address,
        # The first record that is tried again compiles what values are looked up with: long, where others work, too.
        http_client(base_url=address, headers=headers, timeout=300) as client,
    ):
        yield client


@pytest.fixture
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/v1/openapi.json").json()
    return found


def ask(client: httpx.Client, request: ExampleRequest) -> httpx.Response:
    """Send a request as its curl line would."""
    headers = {} if request.media_type is None else {"Content-Type": request.media_type}
    content = ColumnSketch(13, 1536, 512).to_bytes() if request.media_type == BYTES else request.body
    with client.stream(request.method, request.target, content=content, headers=headers) as answer:
        if not answer.headers.get("Content-Type", "").startswith(STREAM):  # which never ends
            answer.read()
        return answer


def test_every_route_answers_its_example(client: httpx.Client, document: dict[str, Any]) -> None:
    operations = [(method, path, one) for path, many in document["paths"].items() for method, one in many.items()]
    # What is put or begun comes first, and what is taken away last.
    operations.sort(key=lambda one: ["put", "get", "patch", "post", "delete"].index(one[0]))
    assert len(operations) > 45
    for method, path, operation in operations:
        request = example_request(method, path, operation, document)
        answer = ask(client, request)
        assert answer.is_success, f"{request}: {answer.text}"
        media_type = answer.headers.get("Content-Type", "").partition(";")[0]
        told = operation["responses"][str(answer.status_code)].get("content", {}).get(media_type)
        if told is not None and media_type == "application/json":
            schema = {**told["schema"], "components": document["components"]}
            jsonschema_rs.validator_for(schema).validate(answer.json())


def test_examples_find_what_they_name(client: httpx.Client, document: dict[str, Any]) -> None:
    def example(path: str) -> Any:
        return ask(client, example_request("get", path, document["paths"][path]["get"], document)).json()

    assert example("/api/v1/uinds/{dependent}/{referenced}")["holds"] is True
    assert example("/api/v1/graph/paths")["length"] == 2
    assert example("/api/v1/corpora/{corpus}/pair")["holds"] is True
    assert [one["column"]["name"] for one in example("/api/v1/corpora/{corpus}/tables/{table}/columns")["items"]] == [
        "id",
        "customer",
    ]
    assert example("/api/v1/corpora/{corpus}/graph/paths")["length"] == 1


def test_the_page_shows_each_route_as_a_command(client: httpx.Client, document: dict[str, Any]) -> None:
    page = unescape(client.get("/docs").text)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            line = example_request(method, path, operation, document).as_curl(HOST)
            assert line in page
            assert shlex.split(line)[0] == "curl"


def test_the_page_has_contents_and_says_what_answers_hold(client: httpx.Client, document: dict[str, Any]) -> None:
    page = unescape(client.get("/docs").text)
    for operations in document["paths"].values():
        for operation in operations.values():
            name = operation["operationId"]
            assert page.count(f"<a href='#{name}'>") == page.count(f"<h3 id='{name}'>") == 1
    described = document["components"]["schemas"]["Uind"]["properties"]["until_version"]["description"]
    assert f"<code>items[].until_version</code><td>{described}" in page
    assert "<code>409</code> Conflict" in page


def test_each_question_may_be_asked_with_all_of_its_examples(client: httpx.Client, document: dict[str, Any]) -> None:
    asked = 0
    for path, operations in document["paths"].items():
        parameters = operations.get("get", {}).get("parameters", ())
        told = {one["name"]: one["schema"]["examples"][0] for one in parameters if "examples" in one["schema"]}
        if told:
            target = httpx.URL(example_request("get", path, operations["get"], document).target)
            answer = client.get(target.copy_merge_params(told))
            assert answer.is_success, f"{answer.url}: {answer.text}"
            asked += 1
    assert asked > 15
