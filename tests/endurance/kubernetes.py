"""Own a stand-in for a Kubernetes on loopback: the API server of the client's own tests, and pods that are processes.

The server keeps objects and tells who watches them, and checks nothing. There is no container, and no name of a
service: a pod's process has this machine's files and address, the environment of its specification, and its volumes in
a folder. Of what it wrote, what it said is left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyspark

from spark_jobs.java_runtime import find_java
from tests.endurance.applying_proxy import applying
from tests.endurance.py4j_java import expect_loopback, java_with
from tests.endurance.spark_masters import end_with_children
from tests.kafka_jars import KUBERNETES

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
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


DRIVER_IS_HERE = ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
"""A cluster has a name for it."""


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
            with applying(pods.address) as address:
                yield f"k8s://{address}"
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
        except BaseException as failure:  # the test says it, sooner or later
            self.failure = failure
            traceback.print_exception(failure)
        finally:
            for name in [*self._running]:
                self._end(name)

    def _look(self) -> None:
        listed = {pod["metadata"]["name"]: pod for pod in self._ask("GET", PODS)["items"]}
        for name in [*self._running.keys() - listed.keys()]:
            self._end(name)
        for name, pod in listed.items():
            phase = pod.get("status", {}).get("phase")
            if name not in self._running and phase == "Pending" and self._is_whole(pod["spec"]):
                self._running[name] = self._start(name, pod["spec"])
                self._tell(pod, "Running", {"running": {}})
            elif phase == "Running" and (code := self._running[name].poll()) is not None:
                self._tell(pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}})
                self._drop_volumes(name)

    def _end(self, name: str) -> None:
        end_with_children(self._running.pop(name))
        self._drop_volumes(name)

    def _drop_volumes(self, name: str) -> None:
        """Let go of what a pod wrote, as its node would: each has unpacked an archive."""
        for volume in (self.folder / name).iterdir():
            if volume.is_dir():
                shutil.rmtree(volume, ignore_errors=True)  # a worker of Python may still be on its way out

    def _is_whole(self, specified: dict[str, Any]) -> bool:
        """Tell whether all is there that a pod mounts: a driver's settings come behind it."""
        wanted = {volume["configMap"]["name"] for volume in specified["volumes"] if "configMap" in volume}
        return wanted <= {one["metadata"]["name"] for one in self._ask("GET", CONFIG_MAPS)["items"]}

    def _start(self, name: str, specified: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Do what the entry point of Spark's image does for a driver and for an executor."""
        (container,) = specified["containers"]
        place = self.folder / name
        (place / "work").mkdir(parents=True)
        mounted = {mount["mountPath"]: place / mount["name"] for mount in container["volumeMounts"]}
        for volume in specified["volumes"]:
            (place / volume["name"]).mkdir()
            if "configMap" in volume:
                found = self._ask("GET", f"{CONFIG_MAPS}/{volume['configMap']['name']}")
                for file, text in found.get("data", {}).items():
                    (place / volume["name"] / file).write_text(text)
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        told = {}
        for one in container["env"]:
            value = fields[one["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in one else one.get("value", "")
            told[one["name"]] = str(mounted.get(value, value))
        role, *arguments = container["args"]
        if role == "driver":
            for at, path in mounted.items():
                arguments = [argument.replace(at, str(path)) for argument in arguments]
            command = [f"{HOME}/bin/spark-submit", "--deploy-mode", "client", *DRIVER_IS_HERE, *arguments]
        else:
            assert container["args"] == ["executor"]
            options = [value for key, value in sorted(told.items()) if key.startswith("SPARK_JAVA_OPT_")]
            memory = told["SPARK_EXECUTOR_MEMORY"]
            command = [str(find_java().java), *options, f"-Xms{memory}", f"-Xmx{memory}"]
            command += ["-cp", f"{HOME}/jars/*", EXECUTOR]
            command += [word for option, key in OPTIONS.items() for word in (option, told[key])]
        here = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "SUBSETD"))}
        (place / "tmp").mkdir()
        here["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={place / 'tmp'}"
        here |= {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(find_java().home)}
        with (place / "said").open("wb") as said, (place / "log").open("wb") as log:
            return subprocess.Popen(command, cwd=place / "work", env=here | told, stdout=said, stderr=log)

    def _tell(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": container["name"], "ready": phase == "Running", "state": state}],
        }
        try:
            self._ask("PUT", f"{PODS}/{name}/status", {**pod, "status": status})
        except urllib.error.HTTPError as error:
            if error.code != 404:  # whoever made it has deleted it since we looked
                raise

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.address}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
