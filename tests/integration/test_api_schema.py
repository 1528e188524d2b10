"""Own the proof that the OpenAPI document is true: its examples fit its schemas, and answers fit what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.api.routes_stream import PATH as STREAM
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from tests.corpora import GivenCorpus, GivenTable
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.serving import app_over, serving
from tests.postgres import TEMPLATE, fresh_database

KEY = "a key"
BEARER = {"Authorization": f"Bearer {KEY}"}
"""Keys are made here, and from the first one on each route wants one."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@pytest.fixture(scope="module")
def address(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Serve the paper's running example, with a transition behind it, and a corpus with two generations."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        state = HandMadeState(url, TABLE_1)
        state.commit({name: [cells[0], *cells[2:]] for name, cells in TABLE_1.items()})
        state.close()
        lake = GivenCorpus(url)
        for rows in {(0, 1, 3), (1, 0, 3)}, {(0, 1, 3)}:
            lake.refresh(rows, [GivenTable(0, "a.csv", 0, ["x", "y"], [3, 3])])
        lake.index()
        engine = make_engine(url, "test-api")
        with serving(app_over(engine, api_key=KEY)) as address:
            yield address
        engine.dispose()


@pytest.fixture(scope="module")
def document(address: str) -> dict[str, Any]:
    """Hold the OpenAPI document."""
    found: dict[str, Any] = httpx.get(f"{address}/api/v1/openapi.json", headers=BEARER, timeout=60).json()
    return found


def test_every_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            answers = [one for status, one in operation["responses"].items() if status < "300" and "content" in one]
            assert answers or "204" in operation["responses"], path
            for media_type, shape in (pair for one in answers for pair in one["content"].items()):
                assert shape["example"], path
                if media_type == "application/json":
                    schema = {**shape["schema"], "components": document["components"]}
                    jsonschema_rs.validator_for(schema).validate(shape["example"])


def test_no_two_shapes_have_one_name(document: dict[str, Any]) -> None:
    """FastAPI would put the path of a module of ours before both."""
    assert [name for name in document["components"]["schemas"] if "__" in name] == []


def test_every_error_of_every_route_is_described_as_a_problem(document: dict[str, Any]) -> None:
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            errors = {code: one for code, one in operation["responses"].items() if code >= "400"}
            assert "500" in errors, path
            for one in errors.values():
                assert one["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                }


def generating(address: str) -> BaseSchema:
    """Let questions be made of the document, with the key that each is sent with."""
    document = httpx.get(f"{address}/api/v1/openapi.json", headers=BEARER, timeout=60).json()
    for operation in (one for of_path in document["paths"].values() for one in of_path.values()):
        operation.pop("security", None)  # who asks is no part of the question: test_access.py
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=address)
    return schema.exclude(path=STREAM)  # it never ends: test_stream_schema.py


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_to_generated_questions_fit_the_document(address: str, mode: GenerationMode) -> None:
    schema = generating(address)
    checks = [*CHECKS, *([negative_data_rejection] if mode is GenerationMode.NEGATIVE else [])]
    # Names of what is there, so that generated questions reach beyond "there is no such attribute".
    known: dict[str, object] = {
        "dependent": "paper.r.A", "referenced": "paper.r.B", "attribute": "id:3", "column": "id:2",
        "contract_id": 1, "corpus": "lake", "generation": 2, "refresh_id": 1, "table": "a.csv",
        "dependent_table": "a.csv", "dependent_position": 0, "referenced_table": "a.csv", "referenced_position": 1,
    }  # fmt: skip
    asked = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not operation.query:
            continue  # Any text is a name, so only a query can be wrong.

        @settings(
            max_examples=8,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
        def ask(case: schemathesis.Case, real: bool) -> None:
            nonlocal asked
            if real and mode is GenerationMode.POSITIVE and case.method != "DELETE":
                for part in (case.path_parameters, case.query):
                    part.update({name: known[name] for name in known if name in part})
            answer = case.call(headers=BEARER)
            # That an address is too long is no answer to what is asked in it.
            case.validate_response(answer, checks=CHECKS if answer.status_code == 414 else checks, headers=BEARER)
            asked += 1

        ask()
    assert asked > 50


def test_answers_to_one_question_after_the_other_fit_the_document(address: str) -> None:
    """What an answer names may be asked about next: what was added is shown, cancelled and removed."""
    answered: list[int] = []

    class Questions(generating(address).as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: schemathesis.Case) -> None:
            if "corpus" in case.path_parameters:
                case.path_parameters["corpus"] = "gone" if case.method == "DELETE" else "lake"

        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"headers": BEARER}

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS, headers=BEARER)
            answered.append(response.status_code)

    Questions.run(
        settings=settings(
            max_examples=12,
            stateful_step_count=8,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
    )
    assert len(answered) > 50
    assert any(status < 300 for status in answered)


@pytest.mark.parametrize("body", [b"\xff", b'{"verdict": "\xff"}', b"[" * 100_000, b"{", b"", b"1", b"\xef\xbb\xbf{}"])
def test_a_body_that_is_no_json_is_refused_as_any_other(address: str, body: bytes) -> None:
    headers = {**BEARER, "Content-Type": "application/json"}
    answer = httpx.post(f"{address}/api/v1/contracts", content=body, headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["type"]) == (422, "/docs#invalid-request")
