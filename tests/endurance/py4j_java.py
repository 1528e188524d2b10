"""Own a Java with a program's jars beside Spark's, which Python talks to and which ends with this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_jobs.java_runtime import find_java
from tests.kafka_jars import Jars, fetch_jars

JAVA_OPTIONS = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@contextmanager
def java_with(program: Jars) -> Iterator[JavaGateway]:
    """Start the Java, and give what calls it."""
    jars = Path(pyspark.__file__).parent / "jars"
    said: deque[str] = deque(maxlen=500)
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))), classpath=f"{fetch_jars(jars=program)}/*:{jars}/*",
        javaopts=JAVA_OPTIONS, java_path=str(find_java().java), die_on_exit=True, enable_auth=True,
        redirect_stdout=said, redirect_stderr=said, return_proc=True,
    )  # fmt: skip
    java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token), java_process=process)
    try:
        yield java
    finally:
        java.shutdown()  # what is still held of it is not given back later
        process.stdin.close()
        process.wait(60)


def expect_loopback(java: JavaGateway, servers: int) -> None:
    """Assert that so many servers of a Java at least can be reached, all from this machine alone."""
    connections = psutil.Process(java.java_process.pid).net_connections("tcp")
    heard = [connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN]
    assert len(heard) > servers  # Py4J's own is one more
    assert {ip.removeprefix("::ffff:") for ip in heard} == {"127.0.0.1"}
