"""Own Hadoop's servers on loopback, an HDFS or a YARN: all of one in one Java, which ends with this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from py4j.java_gateway import JavaGateway, JavaObject

from tests.endurance.py4j_java import expect_loopback, java_with
from tests.kafka_jars import HADOOP_SERVERS
from tests.ports import free_ports
from tests.waiting import wait_for

HDFS_LISTENS = (
    "fs.defaultFS", "dfs.namenode.http-address", "dfs.datanode.address", "dfs.datanode.http.address",
    "dfs.datanode.ipc.address",
)  # fmt: skip
MANAGER_LISTENS = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
NODE_LISTENS = ("address", "localizer.address", "webapp.address", "collector-service.address")
"""What has a port of its own."""


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Run an HDFS that keeps everything in a folder, and give its address."""
    with _java() as java:
        told = {
            **_addresses("", HDFS_LISTENS),
            "dfs.namenode.name.dir": f"file://{folder}/names",
            "dfs.datanode.data.dir": f"file://{folder}/blocks",
            "dfs.replication": "1",
        }
        told["fs.defaultFS"] = f"hdfs://{told['fs.defaultFS']}"
        servers, none = java.jvm.org.apache.hadoop.hdfs, java.new_array(java.jvm.java.lang.String, 0)
        settings = _set(servers.HdfsConfiguration(), told)
        servers.server.namenode.NameNode.format(settings)
        servers.server.namenode.NameNode.createNameNode(none, settings)
        wait_for(servers.server.datanode.DataNode.createDataNode(none, settings).isDatanodeFullyStarted)
        expect_loopback(java, 4)
        yield told["fs.defaultFS"]


@contextmanager
def yarn(folder: Path, nodes: int = 2, memory: int = 3072, cores: int = 3) -> Iterator[Path]:
    """Run a YARN whose nodes have so many MB and cores, on local files; give its clients' folder of settings."""
    with _java() as java:
        servers = java.jvm.org.apache.hadoop.yarn
        manager = {
            **_addresses("yarn.resourcemanager.", MANAGER_LISTENS),
            "yarn.resourcemanager.scheduler.class":
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }  # fmt: skip
        running = servers.server.resourcemanager.ResourceManager()
        running.init(_set(servers.conf.YarnConfiguration(), manager))
        running.start()
        for number in range(nodes):
            place = folder / f"node-{number}"
            node = {
                **_addresses("yarn.nodemanager.", NODE_LISTENS),
                "yarn.nodemanager.local-dirs": str(place / "local"),
                "yarn.nodemanager.log-dirs": str(place / "logs"),
                "yarn.nodemanager.resource.memory-mb": str(memory),
                "yarn.nodemanager.resource.cpu-vcores": str(cores),
                "yarn.nodemanager.vmem-check-enabled": "false",  # address space that a Java only reserves
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            }
            started = servers.server.nodemanager.NodeManager()
            started.init(_set(servers.conf.YarnConfiguration(), {**manager, **node}))
            started.start()
        wait_for(lambda: running.getResourceScheduler().getNumClusterNodes() == nodes)
        expect_loopback(java, 4)
        clients = folder / "clients"
        clients.mkdir()
        for file, told in (("core", {"fs.defaultFS": "file:///"}), ("yarn", manager)):
            properties = "".join(
                f"<property><name>{name}</name><value>{escape(value)}</value></property>"
                for name, value in told.items()
            )
            (clients / f"{file}-site.xml").write_text(f"<configuration>{properties}</configuration>")
        yield clients


@contextmanager
def _java() -> Iterator[JavaGateway]:
    with java_with(HADOOP_SERVERS) as java:
        # Several servers in one Java.
        java.jvm.org.apache.hadoop.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)
        yield java


def _addresses(prefix: str, names: tuple[str, ...]) -> dict[str, str]:
    return {f"{prefix}{name}": f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}


def _set(settings: JavaObject, told: Mapping[str, str]) -> JavaObject:
    for name, value in told.items():
        settings.set(name, value)
    return settings
