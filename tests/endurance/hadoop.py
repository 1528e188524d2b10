"""Own an HDFS on loopback: its two servers in one Java, which ends with this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_jobs.java_runtime import find_java
from tests.kafka_jars import HADOOP_SERVERS, fetch_jars
from tests.ports import free_ports
from tests.waiting import wait_for

JAVA_OPTIONS = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LISTENING = {
    "fs.defaultFS": "hdfs://{}",
    **dict.fromkeys(
        ("dfs.namenode.http-address", "dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address"),
        "{}",
    ),
}  # fmt: skip
"""What has a port of its own."""


@contextmanager
def hadoop(folder: Path) -> Iterator[str]:
    """Run an HDFS that keeps everything in a folder, and give its address."""
    jars = Path(pyspark.__file__).parent / "jars"
    said: deque[str] = deque(maxlen=500)
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))), classpath=f"{fetch_jars(jars=HADOOP_SERVERS)}/*:{jars}/*",
        javaopts=JAVA_OPTIONS, java_path=str(find_java().java), die_on_exit=True, enable_auth=True,
        redirect_stdout=said, redirect_stderr=said, return_proc=True,
    )  # fmt: skip
    try:
        java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        hosts = [f"127.0.0.1:{port}" for port in free_ports(len(LISTENING))]
        told = {
            **{name: address.format(host) for (name, address), host in zip(LISTENING.items(), hosts, strict=True)},
            "dfs.namenode.name.dir": f"file://{folder}/names",
            "dfs.datanode.data.dir": f"file://{folder}/blocks",
            "dfs.replication": "1",
        }
        servers = java.jvm.org.apache.hadoop
        settings, none = servers.hdfs.HdfsConfiguration(), java.new_array(java.jvm.java.lang.String, 0)
        for name, value in told.items():
            settings.set(name, value)
        servers.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)  # several servers in one Java
        servers.hdfs.server.namenode.NameNode.format(settings)
        servers.hdfs.server.namenode.NameNode.createNameNode(none, settings)
        wait_for(servers.hdfs.server.datanode.DataNode.createDataNode(none, settings).isDatanodeFullyStarted)
        yield told["fs.defaultFS"]
    finally:
        process.stdin.close()
        process.wait(60)
