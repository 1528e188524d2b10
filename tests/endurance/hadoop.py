"""Own Hadoop's servers on loopback, each once and all in one Java that ends with this process: HDFS, and YARN."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

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
    **{
        f"yarn.resourcemanager{of}.address": "{}"
        for of in ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")
    },
    **{f"yarn.nodemanager{of}.address": "{}" for of in ("", ".localizer", ".webapp", ".collector-service")},
}  # fmt: skip
"""What has a port of its own."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Be a Java with Hadoop's servers; `address` is that of its HDFS, and `conf` a folder for HADOOP_CONF_DIR."""

    java: Any
    settings: Any
    address: str
    conf: Path
    said: deque[str]

    def run_yarn(self) -> None:
        """Run YARN's resource manager and a node manager, too."""
        server = self.java.jvm.org.apache.hadoop.yarn.server
        settings = self.java.jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(self.settings)
        for service in (server.resourcemanager.ResourceManager(), server.nodemanager.NodeManager()):
            service.init(settings)
            service.start()


@contextmanager
def hadoop(folder: Path) -> Iterator[Servers]:
    """Run an HDFS that keeps everything in a folder."""
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
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.local-dirs": str(folder / "work"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
        }
        write(folder / "conf", told)
        servers = java.jvm.org.apache.hadoop
        settings, none = servers.hdfs.HdfsConfiguration(), java.new_array(java.jvm.java.lang.String, 0)
        for name, value in told.items():
            settings.set(name, value)
        servers.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)  # several servers in one Java
        servers.hdfs.server.namenode.NameNode.format(settings)
        servers.hdfs.server.namenode.NameNode.createNameNode(none, settings)
        wait_for(servers.hdfs.server.datanode.DataNode.createDataNode(none, settings).isDatanodeFullyStarted)
        yield Servers(java, settings, told["fs.defaultFS"], folder / "conf", said)
    finally:
        process.stdin.close()
        process.wait(60)


def write(folder: Path, settings: Mapping[str, str]) -> None:
    """Write settings as HADOOP_CONF_DIR has them."""
    folder.mkdir()
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]  # fmt: skip
    for name in ("core-site.xml", "yarn-site.xml"):
        (folder / name).write_text("\n".join(["<configuration>", *lines, "</configuration>"]))
