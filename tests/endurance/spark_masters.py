"""Own Spark on more than one machine, as far as one machine has it: settings, a standalone master, and jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from spark_jobs.java_runtime import find_java
from spark_jobs.submit import JOBS
from tests.ports import free_ports
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
KILLERS = Path(__file__).resolve().parent
JOB_SECONDS = 2400
"""Many times what a job takes: each executor that is killed costs seconds of a core, and others may use the cores."""

PYTHON = re.compile("Python|MapInArrow|MapInPandas")
"""What Spark calls the steps of a stage that run Python."""

PROGRESS = re.compile(r"^\[ *[\d.]+ s\] .*\n", re.MULTILINE)
"""What a job tells of its progress: spark-submit gives what Python writes to its standard error out like its answer."""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.4",
    "spark.speculation.multiplier": "1.05",
    "spark.speculation.minTaskRuntime": "10ms",
    # A task that is alone in its stage has none to lag behind.
    "spark.speculation.task.duration.threshold": "1s",
}
"""Whatever is a little slower than others is run a second time, beside the first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Write Spark's settings into a folder of their own, where Spark leaves what it works with, too."""

    folder: Path

    def write(self, settings: Mapping[str, str], killing: str | None = None) -> dict[str, str]:
        """Write spark-defaults.conf; give the environment that names it. `killing` says when executors are killed."""
        home = self.folder / "spark"
        if not home.exists():
            home.mkdir(parents=True)
            for part in ("bin", "jars", "python"):
                (home / part).symlink_to(Path(pyspark.__file__).parent / part)
        told = {
            "spark.executor.memory": "512m",
            # Each kill starts another Java: it moves bytes for seconds.
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            **settings,
        }
        if killing is not None:
            self.kills().mkdir()
            told |= {
                "spark.python.daemon.module": "killed_daemon",
                "spark.executorEnv.PYTHONPATH": str(KILLERS),
                "spark.executorEnv.SUBSETD_KILL_AT": killing,
                "spark.executorEnv.SUBSETD_KILLS": str(self.kills()),
                "spark.task.maxFailures": "20",
                "spark.stage.maxConsecutiveAttempts": "20",
                "spark.deploy.maxExecutorRetries": "-1",
            }
        (self.folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in told.items()))
        return {
            **os.environ,
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def kills(self) -> Path:
        """Give the folder that has a file for each kill."""
        return self.folder / "kills"

    def event_log(self) -> dict[str, str]:
        """Give the settings that let Spark write what it does into a folder of these settings."""
        events = self.folder / "events"
        events.mkdir(parents=True)
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give what Spark has written there, each event with its application."""
        for file in sorted((self.folder / "events").iterdir()):
            told = [json.loads(line) for line in file.read_text().splitlines()]
            (application,) = (event["App ID"] for event in told if event["Event"] == "SparkListenerApplicationStart")
            yield from ((application, event) for event in told)

    def python_stages(self) -> set[str]:
        """Name the stages that had tasks in Python, and were not skipped, as kills are named."""
        return {
            f"{application}-{event['Stage Info']['Stage ID']:03}"
            for application, event in self.events()
            if event["Event"] == "SparkListenerStageCompleted"
            if any(PYTHON.search(f"{rdd['Name']} {rdd.get('Scope')}") for rdd in event["Stage Info"]["RDD Info"])
        }


def run_job(
    master: str, module: str, arguments: Sequence[str], secrets: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a job as the service does, addresses on its standard input."""
    if "." not in module:
        module = f"spark_jobs.{module}"
    return subprocess.run(
        [sys.executable, "-m", module, *arguments, "--database-url=-", f"--master={master}",
         "--driver-memory=512m"],
        input="".join(f"{secret}\n" for secret in secrets), env=environment, text=True, capture_output=True,
        timeout=JOB_SECONDS, cwd=ROOT, check=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Submission:
    """Run jobs by spark-submit, as docs/scale-out.md says: in a folder that has the archive unpacked and the address.

    Beside the archive are what it unpacks to, and the script that runs jobs.
    No package of ours is on the path, and no process shows the password. `stdout` names the files (a folder, a pattern)
    of which the newest has what the driver said, where that is not spark-submit.
    """

    settings: Settings
    environment: Mapping[str, str]
    archive: Path
    options: Sequence[str]
    stdout: tuple[Path, str] | None = None

    def __call__(self, url: str, module: str, arguments: Sequence[str]) -> str:
        """Run a job, or a script of the tests that is its like; give what it said."""
        place = self.settings.folder / "submitted"
        if not place.exists():
            place.mkdir()
            (place / "environment").symlink_to(self.archive.with_name("environment"))
        (place / "url").write_text(url)
        password = url.partition("postgres:")[2].partition("@")[0]
        assert len(password) > 8
        script = [f"{ROOT / module.replace('.', '/')}.py"]
        if "." not in module:
            (name,) = (name for name, known in JOBS.items() if known == module)
            script = [str(self.archive.with_name("subsetd_job.py")), name]
        command = [
            f"{self.settings.folder}/spark/bin/spark-submit", *self.options, "--driver-memory", "512m",
            "--archives", f"{self.archive}#environment", *script, *arguments, "--database-url=@url",
        ]  # fmt: skip
        alone = {name: value for name, value in self.environment.items() if name != "PYTHONPATH"}
        alone |= {"PYSPARK_DRIVER_PYTHON": "./environment/bin/python"}
        with (
            (place / "said").open("wb") as said,
            (place / "log").open("wb") as log,
            subprocess.Popen(command, cwd=place, env=alone, stdout=said, stderr=log) as job,
        ):

            def ended() -> bool:
                for process in psutil.process_iter(["cmdline"]):
                    assert password not in " ".join(process.info["cmdline"] or ())
                return job.poll() is not None

            wait_for(ended, JOB_SECONDS)
        assert job.returncode == 0, (place / "said").read_text() + (place / "log").read_text()
        folder, pattern = self.stdout or (place, "said")
        newest = max(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
        return PROGRESS.sub("", newest.read_text())


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[str]:
    """Run a master and workers on loopback, in folders of their own; give the master's address.

    Each worker has an address of its own: Spark starts no second attempt on the host of the first.
    """
    java = find_java()
    classpath = f"{Path(pyspark.__file__).parent / 'jars'}/*"
    command = [str(java.java), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "SUBSETD"))},
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",  # which Spark's own scripts find out
    }
    port, master_page, *pages = free_ports(2 + workers)
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = stack.enter_context((folder / "master.log").open("wb"))

        def run(host: str, *main: str) -> None:
            process = subprocess.Popen(
                [*command, *main, "--host", host], cwd=folder, env={**environment, "SPARK_LOCAL_IP": host}, stdout=log,
                stderr=log,
            )  # fmt: skip
            stack.callback(end_with_children, process)

        run("127.0.0.1", "org.apache.spark.deploy.master.Master", "--port", str(port), "--webui-port", str(master_page))
        wait_for(lambda: "I have been elected leader" in (folder / "master.log").read_text())
        for number, page in enumerate(pages):
            run(f"127.0.0.{2 + number}", "org.apache.spark.deploy.worker.Worker", "--cores", str(cores),
                "--memory", memory, "--work-dir", str(folder / f"worker-{number}"), "--webui-port", str(page),
                master)  # fmt: skip
        wait_for(lambda: (folder / "master.log").read_text().count("Registering worker") == workers)
        yield master


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    process.wait(60)
    for child in children:
        if child.is_running():
            child.kill()
