"""No container engine is at hand, so Dockerfile and compose file are read: what they name exists in the project."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
import typer.main
import yaml

from service.api.access_scopes import OPEN
from service.cli import app
from service.config import Settings, is_loopback
from service.stream.addresses import open_feed
from service.usecases.preflight_facts import ConnectorFacts, Facts
from tests.preflight import wrong

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+\.?\d*[A-Za-z0-9.-]*")
SETTINGS = {f"SUBSETD_{name.upper()}" for name in Settings.model_fields}
COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
PORT = Settings.model_fields["port"].default


def dockerfile() -> list[tuple[str, str]]:
    """Give the instructions of the Dockerfile with their arguments; continued lines are one."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def arguments_of(instruction: str) -> list[str]:
    return [argument for name, argument in dockerfile() if name == instruction]


def compose_text() -> str:
    """Give the compose file as it is with the variables' defaults, and a key where one must be given."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
    return re.sub(r"\$\{\w+:\?[^}]*\}", "a key", text)


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose_text())["services"]
    return found


def connector() -> dict[str, str]:
    found: dict[str, str] = json.loads((ROOT / "deploy" / "connector.json").read_text())
    return found


def is_sent_to_the_build(path: str) -> bool:
    """Tell whether .dockerignore lets `path` through: the last pattern that matches decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch.fnmatch(path, line.removeprefix("!")):
            sent = line.startswith("!")
    return sent


def test_the_image_stands_on_pinned_ones_and_is_built_in_stages() -> None:
    bases = [argument.split()[0] for argument in arguments_of("FROM")]
    assert len(bases) == 2
    assert all(PINNED.fullmatch(base) for base in bases)


def test_all_that_pip_fetches_for_the_image_is_pinned_by_its_hash() -> None:
    installs = [line for line in arguments_of("RUN") if "pip install" in line]
    assert len(installs) == 3
    for line in installs:
        assert "--require-hashes" in line or {"--no-deps", "--no-build-isolation", "."} <= set(line.split()), line


def test_all_that_the_image_copies_is_in_the_project_and_sent_to_the_build() -> None:
    copied = [word for argument in arguments_of("COPY") if "--from" not in argument for word in argument.split()[:-1]]
    assert {"service", "spark_jobs", "migrations", "pyproject.toml", "requirements-service.lock"} <= set(copied)
    for path in copied:
        assert (ROOT / path).exists(), path
        assert is_sent_to_the_build(path), path
    assert not is_sent_to_the_build("tests")


def test_the_image_runs_as_a_user_of_its_own_who_owns_the_state() -> None:
    (user,) = arguments_of("USER")
    (install,) = [argument for argument in arguments_of("RUN") if "useradd" in argument]
    assert user == "subsetd"
    assert re.search(rf"useradd .*\b{user}\b", install)
    assert re.search(rf"install --directory --owner {user} .*{arguments_of('VOLUME')[0]}", install)
    names = [name for name, _ in dockerfile()]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_the_images_variables_are_settings_and_its_port_is_the_services() -> None:
    (environment,) = arguments_of("ENV")
    given = dict(word.split("=", 1) for word in environment.split())
    ours = {name: value for name, value in given.items() if name.startswith("SUBSETD_")}
    assert set(ours) <= SETTINGS
    assert ours["SUBSETD_DATA_DIR"] == arguments_of("VOLUME")[0]
    assert [int(ours["SUBSETD_PORT"])] == [int(port) for port in arguments_of("EXPOSE")] == [PORT]
    assert given["PATH"].split(":")[0] == arguments_of("COPY")[-1].split()[-1] + "/bin"


def test_the_image_starts_our_command() -> None:
    (entrypoint,) = [json.loads(argument) for argument in arguments_of("ENTRYPOINT")]
    (command,) = [json.loads(argument) for argument in arguments_of("CMD")]
    assert entrypoint[:2] == ["tini", "--"]
    assert "tini" in " ".join(arguments_of("RUN"))
    assert entrypoint[2] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert command[0] in COMMANDS


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1)])
def test_the_image_asks_for_its_health_at_the_port_of_its_settings_where_no_key_is_wanted(
    status: int, exit_code: int
) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (health,) = arguments_of("HEALTHCHECK")
    program, *arguments = json.loads(health.split("CMD ")[1])
    assert program == "python"
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        proxy = "http://127.0.0.1:1"  # Docker hands on that of its user
        environment = {"SUBSETD_PORT": str(server.server_address[1]), "http_proxy": proxy}
        ended = subprocess.run([sys.executable, *arguments], env=environment, check=False, capture_output=True)
        server.shutdown()
        thread.join()
    assert (asked, ended.returncode) == (["/healthz"], exit_code)
    assert asked[0] in OPEN


def test_the_image_has_the_service_and_a_java_for_the_spark_driver() -> None:
    assert any(re.search(r"openjdk-(17|21)-jre-headless", argument) for argument in arguments_of("RUN"))
    service_lock = (ROOT / "requirements-service.lock").read_text()
    assert "\npyspark==" in service_lock
    for tool in ("pytest", "mypy", "ruff"):
        assert f"\n{tool}==" not in service_lock


def test_both_locks_name_the_same_versions_with_hashes_and_no_addresses() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert "--index-url" not in text
        entries = re.findall(r"^([a-z0-9._-]+)==(.*(?:\n    --hash=\S+.*)+)", text, flags=re.MULTILINE)
        assert len(entries) == len(re.findall(r"^[a-z]", text, flags=re.MULTILINE))
        return dict(entries)

    everything, for_the_service = pins("requirements.lock"), pins("requirements-service.lock")
    assert for_the_service.items() <= everything.items()
    assert "desbordante" not in everything


def test_the_compose_file_is_valid_by_the_specification() -> None:
    schema = json.loads((ROOT / "tests" / "data" / "compose" / "compose-spec.json").read_text())
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(yaml.safe_load(compose_text()))
    with pytest.raises(jsonschema_rs.ValidationError):
        validator.validate({"services": {"subsetd": {"imagine": "a field that is not known"}}})


def test_every_image_is_pinned_and_ours_is_built_here() -> None:
    for name, service in services().items():
        assert PINNED.fullmatch(service["image"]), name
        if "build" in service:
            assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert services()["subsetd"]["image"] == f"subsetd:{version}"


def test_who_is_waited_for_can_tell_that_it_is_well() -> None:
    image_has_healthcheck = bool(arguments_of("HEALTHCHECK"))
    assert image_has_healthcheck
    for name, service in services().items():
        for needed, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy", name
            assert "healthcheck" in services()[needed], needed
    assert set(services()["subsetd"]["depends_on"]) == {"postgres", "kafka"}


def test_state_is_in_named_volumes_and_mounted_files_exist() -> None:
    declared = set(yaml.safe_load(compose_text())["volumes"])
    sources = [mount.split(":")[0] for service in services().values() for mount in service.get("volumes", [])]
    assert {source for source in sources if not source.startswith(".")} == declared
    for source in sources:
        assert not source.startswith(".") or (ROOT / source).is_file(), source
    (ours,) = services()["subsetd"]["volumes"]
    assert ours.split(":")[1] == arguments_of("VOLUME")[0]


def test_ports_are_open_on_this_machine_alone() -> None:
    published = [port for service in services().values() for port in service.get("ports", [])]
    assert all(is_loopback(port.rsplit(":", 2)[0]) for port in published)
    assert services()["subsetd"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


def test_our_service_gets_settings_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = services()["subsetd"]
    assert set(ours["environment"]) <= SETTINGS
    assert ours["command"][0] in COMMANDS
    for name, value in ours["environment"].items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.api_key is not None
    assert settings.feed is not None
    open_feed(settings.feed)


def test_hosts_named_in_addresses_are_services_at_the_ports_they_listen_on() -> None:
    found = services()
    state, feed = (urlsplit(found["subsetd"]["environment"][f"SUBSETD_{name}"]) for name in ("DATABASE_URL", "FEED"))
    assert (state.hostname, state.port, state.path) == ("postgres", 5432, "/subsetd")
    assert feed.netloc == found["connect"]["environment"]["BOOTSTRAP_SERVERS"] == "kafka:9092"
    assert found["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{feed.netloc}"
    assert "wal_level=logical" in found["postgres"]["command"]
    assert urlsplit(found["connector"]["command"][-1]).netloc == "connect:8083"
    assert set(re.findall(r"//(?:[^@/\s]*@)?([a-z]+):\d", compose_text())) <= {*found, "localhost"}


def test_the_connector_sends_what_subsetd_follows() -> None:
    found = services()
    settings = connector()
    assert settings["database.hostname"] in found
    assert settings["database.dbname"] == found["postgres"]["environment"]["POSTGRES_DB"]
    feed = urlsplit(found["subsetd"]["environment"]["SUBSETD_FEED"])
    assert feed.query == f"prefix={settings['topic.prefix']}.{settings['schema.include.list']}."
    # A truncate is a change too; the rows of a snapshot are the bootstrap's business.
    assert (settings["skipped.operations"], settings["snapshot.mode"]) == ("none", "no_data")
    assert wrong(Facts(connectors=[ConnectorFacts("app", settings, ["RUNNING", "RUNNING"])])) == []
    (variable,) = re.findall(r"\$\{env:(\w+)\}", settings["database.password"])
    assert variable in found["connect"]["environment"]
    mounted = found["connector"]["volumes"][0].split(":")[1]
    assert f"@{mounted}" in found["connector"]["command"]
    database = urlsplit(found["subsetd"]["environment"]["SUBSETD_DATABASE_URL"]).path.strip("/")
    assert f"create database {database};" in (ROOT / "deploy" / "state.sql").read_text()


@pytest.mark.parametrize("name", ["Dockerfile", "docker-compose.yml"])
def test_commands_in_the_comments_exist(name: str) -> None:
    comments = "\n".join(line for line in (ROOT / name).read_text().splitlines() if line.startswith("#"))
    for command in re.findall(r"(?<=subsetd )(bootstrap|[a-z-]+)(?= postgresql)", comments):
        assert command in COMMANDS
    assert "subsetd bootstrap postgresql://" in comments
    assert set(re.findall(r"SUBSETD_\w+", comments)) <= SETTINGS
    for services_named in re.findall(r"docker compose up(?: --\w+)* ([a-z ]+?)(?:  |\n|$)", comments):
        assert set(services_named.split()) <= set(services())
