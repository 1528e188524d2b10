"""Own a stand-in for a Kubernetes on loopback: the API server of the client's own tests, and pods that are processes.

The server keeps objects and tells who watches them; it checks nothing, and gives a new pod no status, of which Spark
complains until ours comes. There is no container: a pod's process has this machine's files, the environment of its
specification, and its volumes in a folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyspark

from spark_jobs.java_runtime import find_java
from tests.endurance.py4j_java import expect_loopback, java_with
from tests.endurance.spark_masters import end_with_children
from tests.kafka_jars import KUBERNETES

PODS = "/api/v1/namespaces/default/pods"
LOOK_SECONDS = 0.2
HOME = Path(pyspark.__file__).parent

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""What an executor is told, by the name that its pod's environment has for it."""


@contextmanager
def kubernetes(folder: Path) -> Iterator[str]:
    """Run the server, and in a folder what pods ask for; give the address of a master."""
    with java_with(KUBERNETES) as java:
        mock = java.jvm.io.fabric8.mockwebserver
        of_kubernetes = java.jvm.io.fabric8.kubernetes.client.server.mock
        server = of_kubernetes.KubernetesMockServer(
            mock.Context(), mock.MockWebServer(), java.jvm.java.util.HashMap(),
            of_kubernetes.KubernetesCrudDispatcher(), False,
        )  # fmt: skip
        server.init(java.jvm.java.net.InetAddress.getByName("127.0.0.1"), 0)
        expect_loopback(java, 1)
        pods = _Pods(f"http://127.0.0.1:{server.getPort()}", folder)
        thread = Thread(target=pods.run)
        thread.start()
        try:
            yield f"k8s://{pods.address}"
        finally:
            pods.ending.set()
            thread.join()
        if pods.failure is not None:
            raise pods.failure


@dataclass
class _Pods:
    """Start a process for each new pod, tell how it stands, and end it when the pod is deleted."""

    address: str
    folder: Path
    ending: Event = field(default_factory=Event)
    failure: BaseException | None = None
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self) -> None:
        try:
            while not self.ending.wait(LOOK_SECONDS):
                self._look()
        except BaseException as failure:  # the test says it
            self.failure = failure
        finally:
            for process in self._running.values():
                end_with_children(process)

    def _look(self) -> None:
        listed = {pod["metadata"]["name"]: pod for pod in self._ask("GET", PODS)["items"]}
        for name in self._running.keys() - listed.keys():
            end_with_children(self._running.pop(name))
        for name, pod in listed.items():
            phase = pod.get("status", {}).get("phase")
            if name not in self._running and phase is None:
                self._running[name] = self._start(name, pod["spec"])
                self._tell(pod, "Running", {"running": {}})
            elif phase == "Running" and (code := self._running[name].poll()) is not None:
                self._tell(pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}})

    def _start(self, name: str, specified: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Do what the entry point of Spark's image does for an executor."""
        (container,) = specified["containers"]
        assert container["args"] == ["executor"]
        place = self.folder / name
        (place / "work").mkdir(parents=True)
        mounted = {mount["mountPath"]: place / mount["name"] for mount in container["volumeMounts"]}
        for volume in specified["volumes"]:
            (place / volume["name"]).mkdir()
            if "configMap" in volume:
                found = self._ask("GET", f"/api/v1/namespaces/default/configmaps/{volume['configMap']['name']}")
                for file, text in found.get("data", {}).items():
                    (place / volume["name"] / file).write_text(text)
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        told = {}
        for one in container["env"]:
            value = fields[one["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in one else one.get("value", "")
            told[one["name"]] = str(mounted.get(value, value))
        options = [value for key, value in sorted(told.items()) if key.startswith("SPARK_JAVA_OPT_")]
        memory = told["SPARK_EXECUTOR_MEMORY"]
        command = [str(find_java().java), *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{HOME}/jars/*", EXECUTOR]
        command += [word for option, key in OPTIONS.items() for word in (option, told[key])]
        here = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "SUBSETD"))}
        with (place / "said").open("wb") as said:
            return subprocess.Popen(
                command, cwd=place / "work", env=here | {"SPARK_HOME": str(HOME), **told}, stdout=said, stderr=said
            )

    def _tell(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "containerStatuses": [{"name": container["name"], "ready": phase == "Running", "state": state}],
        }
        self._ask("PUT", f"{PODS}/{name}/status", {**pod, "status": status})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.address}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
