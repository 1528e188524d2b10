"""What the Grafana dashboard and the alert rules ask for is what a running service tells, in PromQL that reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from service.config import Settings
from service.observe import ConsumerObserver
from service.store.database import make_engine
from service.watch_wiring import watch_sender
from tests import states
from tests.asking import http_client
from tests.integration.serving import app_over, serving

ROOT = Path(__file__).parents[2]
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
BOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text())
TARGETS = [(panel["title"], one["expr"]) for panel in BOARD["panels"] for one in panel.get("targets", ())]
EXPRESSIONS = sorted({*(expression for _, expression in TARGETS), *(rule["expr"] for rule in RULES)})

FUNCTIONS = {"sum", "rate", "increase", "delta", "deriv", "time", "histogram_quantile"}
WORDS = {"by", "and", "or", "unless"}
OF_PROMETHEUS = {"up"}

STRING = r'"[^"\n]*"'
MATCHER = rf"[a-z_]+(?:=~|!~|!=|=){STRING}"
TOKEN = re.compile(
    rf"\s*(?:(?P<matchers>\{{{MATCHER}(?:,{MATCHER})*\}})|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])"
    r"|(?P<labels>by \([a-z_]+(?:, [a-z_]+)*\))|(?P<number>\d+(?:\.\d+)?(?:e\d+)?)|(?P<name>[a-z_]+)"
    r"|(?P<sign>==|[-+*/<>(),]))"
)


def tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expression):
        found = TOKEN.match(expression, at)
        assert found is not None, f"{expression!r} does not read from {expression[at:]!r} on"
        at = found.end()
        yield str(found.lastgroup), found.group(str(found.lastgroup))


def metrics_of(expression: str) -> dict[str, set[str]]:
    """Read a query: its brackets close, functions have brackets, ranges stand behind metrics; give names and labels."""
    found: dict[str, set[str]] = {}
    depth, before, newest = 0, ("", ""), ""
    all_tokens = list(tokens(expression))
    for (kind, word), (_, following) in zip(all_tokens, [*all_tokens[1:], ("", "")], strict=True):
        if word in "()" and kind == "sign":
            depth += 1 if word == "(" else -1
            assert depth >= 0, expression
        elif kind == "name" and word in FUNCTIONS:
            assert following == "(" or following.startswith("by ("), expression
        elif kind == "name" and word not in WORDS:
            newest = word
            found.setdefault(word, set())
        elif kind == "matchers":
            assert before[1] == newest, expression
            found[newest] |= set(re.findall(r"([a-z_]+)(?:=|!)", re.sub(STRING, "", word)))
        elif kind == "range":
            assert before[0] in ("name", "matchers"), expression
        before = (kind, word)
    assert depth == 0, expression
    return found


@pytest.fixture(scope="module")
def told(postgres_server: Any) -> Iterator[dict[str, set[str]]]:
    """Give what a service with a consumer tells at /metrics: names of samples, with the labels that they may have."""
    from tests.postgres import TEMPLATE, fresh_database

    with fresh_database(postgres_server, TEMPLATE) as url:
        states.store(url, states.Tables({"t": ["c"]}).add("t", ["1"]))
        states.execute(
            url,
            "insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report) "
            "values (1, now(), 1, 1, 1, 0, 0, '{}'); "
            "insert into corpus (name, location, kind, settings, generation) values ('c', '/c', 'csv', '{}', 1); "
            "insert into corpus_refresh (corpus_id, state, requested_by, generation, started_at, ended_at, report) "
            "select corpus_id, 'landed', 'me', 1, now(), now(), "
            '\'{"tables": 1, "inds": 1, "faults": 0}\' from corpus',
        )
        registry, engine = CollectorRegistry(), make_engine(url, "test")
        ConsumerObserver(registry).waiting({("t", 0): 3})
        try:
            with (
                watch_sender(url, Settings(), registry),
                serving(app_over(engine, registry=registry)) as address,
                http_client(base_url=address, timeout=60) as client,
            ):
                client.get("/api/v1/uinds")
                text = client.get("/metrics").text
        finally:
            engine.dispose()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        kinds = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        for kind in kinds:
            found[family.name + kind] = {"instance", "job"}
        for sample in family.samples:
            found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_query_reads_and_asks_for_what_the_service_tells(expression: str, told: dict[str, set[str]]) -> None:
    asked = metrics_of(expression)
    assert asked
    for name, labels in asked.items():
        if name in OF_PROMETHEUS:
            continue
        assert name in told, f"{expression}: /metrics has no {name}"
        if name.startswith("subsetd_") and not name.startswith(("subsetd_skipped", "subsetd_consumer_step")):
            assert labels <= told[name], f"{expression}: {name} has no such label"


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(rate(a_total[5m])",
        "rate a_total[5m]",
        "a_total[5 minutes]",
        'a{b="c}',
        "a =< 3",
        "sum by (le rate(a[5m])",
        ")a(",
    ],
)
def test_what_does_not_read_is_seen(wrong: str) -> None:
    with pytest.raises(AssertionError):
        metrics_of(wrong)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_panels_stand_side_by_side_and_name_variables_that_are_there() -> None:
    places = {
        (x, y)
        for panel in BOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    }
    assert len(places) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in BOARD["panels"])
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    variables = {one["name"] for one in BOARD["templating"]["list"]}
    named = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"])))
    assert named - {"__rate_interval"} == variables
