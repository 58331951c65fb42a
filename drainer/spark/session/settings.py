"""Settings of a drain on Spark, and Spark's own that would break it. Known without PySpark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from drainer.errors import Refused, SandboxRefused, UsageError, handling_nothing
from drainer.extensions import ensure_installed
from drainer.java import find_java
from drainer.model.status import Summary
from drainer.operations.engine import LocalContext
from drainer.secret import REDACTED, hides
from drainer.spark.state import lease
from drainer.spark.state.lease import LeaseTimes
from drainer.spark.state.objects import check_uri
from drainer.store.place import is_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_CORE = "local[*]"
REMOTE = "sc://"  # before the address of a server of Spark Connect
WAVE_BYTES = 2 * 1024**3
STARTING = "Spark was starting"
START_S = 10.0  # of a session, workers and the first wave, measured on local[2]; clusters vary
BATCH_BYTES = 4 * 1024 * 1024  # of Arrow, between Spark and a task
BATCH_ROWS = 64  # that a task is given at once: a chunk has values of 64 KiB
FAILURES_MOST = 4  # of one task, as on a cluster
MOST_TASKS = MOST_SHARDS = 10_000  # more is a slip of the finger
ARCHIVES = (".zip", ".whl", ".egg", ".py")  # what Spark can put on the executors' path

# Settings that a drain can't have: by name the value that is meant (None for any), whether it is
# about sessions of others as well as about --spark-conf, and why.
_BARRED = {
    "spark.speculation": ("true", True, "a second copy of a task would handle everything twice"),
    "spark.master": (None, False, "--master sets the master"),
    "spark.remote": (None, False, "--remote sets the server"),
    "spark.api.mode": ("connect", False, "--remote sets the server"),
    "spark.submit.deploymode": ("cluster", False, "this command is the driver"),
}
_LOCAL = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]")
_CORES = re.compile(r"local(?:\[(\d+|\*)\])?")
_REMOTE = re.compile(r"(spark|k8s)://.+|yarn|sc://.*")


def master_of(typed: str | None, remote: str | None = None) -> str:
    """A master, or a server of Spark Connect, as it is typed; without one, this machine.

    Raises UsageError when both are, or the server is none.
    """
    if remote is None:
        if typed is not None and typed.strip().startswith(REMOTE):
            raise UsageError(
                f"--master {shown_master(typed)} is a server of Spark Connect, not a master",
                hint="Use --remote; drainer limits needs a master.",
            )
        return EVERY_CORE if typed is None else typed.strip()
    if typed is not None:
        raise UsageError("--master and --remote are both given", hint="Remove one of them.")
    if not remote.strip().startswith(REMOTE):
        raise UsageError(
            f"--remote {shown_master(remote)!r} is not a server of Spark Connect",
            hint="Use sc://HOST:PORT.",
        )
    for name, _, value in (each.partition("=") for each in remote.split(";")[1:]):
        if hides(name, value):
            raise UsageError(
                f"--remote has a {name}, which other users and the plan's readers would see",
                hint="Put a token into the variable SPARK_CONNECT_AUTHENTICATE_TOKEN.",
            )
    return remote.strip()


def shown_master(master: str) -> str:
    """A master as it may be shown: behind the address of a server there may be a token."""
    return master.partition("/;")[0]


def with_retries(master: str) -> str:
    """A master with ``local[…]`` that repeats tasks which failed; any other as it is."""
    local = _CORES.fullmatch(master)
    return f"local[{local[1] or 1},{FAILURES_MOST}]" if local else master


@dataclass(frozen=True, slots=True)
class SparkLook:
    """Master and settings of Spark. ``repr`` shows nothing that may have secrets.

    Raises UsageError when the master is unknown, ``conf`` breaks a law, or the number makes no
    sense.
    """

    # The URL of the master, or of a server of Spark Connect; a local one is this machine, and
    # ``local-cluster`` too.
    master: str = field(default=EVERY_CORE, repr=False)
    # Further settings of Spark by name.
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    tasks: int | None = None  # how many of them work at once; None for as many as pay

    @classmethod
    def of(
        cls,
        master: str | None,
        conf: Mapping[str, str],
        tasks: int | None,
        remote: str | None = None,
    ) -> SparkLook:
        """Settings as they are typed: without a master or server, this machine."""
        return cls(master_of(master, remote), conf, tasks)

    def __post_init__(self) -> None:
        _check_master(self.master)
        check_conf(self.conf, typed=True)
        if self.tasks is not None and not 1 <= self.tasks <= MOST_TASKS:
            raise UsageError(
                f"--tasks {self.tasks} is not a number from 1 to {MOST_TASKS:,}",
                hint="Give a number in that range, or remove --tasks.",
            )

    @property
    def is_local(self) -> bool:
        """Whether all of it runs on this machine."""
        return is_local(self.master)

    @property
    def is_remote(self) -> bool:
        """Whether it is a server of Spark Connect."""
        return self.master.startswith(REMOTE)

    @property
    def cores(self) -> int | None:
        """Number of cores for its tasks; None where only the cluster knows."""
        conf, numbers = self.conf, [int(n) for n in re.findall(r"\d+", self.master)]
        if self.is_local:
            most = os.cpu_count() or 1
            if not self.master.startswith("local-cluster"):
                named = most if "*" in self.master else next(iter(numbers), 1)
            else:
                named = numbers[0] * numbers[1]
            return min(most, named, self.tasks or most)
        if self.tasks is not None:
            return self.tasks
        executors, each = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
        if executors and each:
            return int(executors) * int(each)
        return int(conf["spark.cores.max"]) if "spark.cores.max" in conf else None

    def shown_conf(self) -> dict[str, str]:
        """The settings of Spark as they may be shown, without secrets."""
        return {n: REDACTED if hides(n, value) else value for n, value in sorted(self.conf.items())}


@dataclass(frozen=True, slots=True)
class SparkSettings(SparkLook):
    """Settings of a drain on Spark; none of it changes what is drained.

    Raises UsageError as ``SparkLook``, and when a cluster has no ``state``, an archive isn't there
    or ``shards`` makes no sense.
    """

    wave_bytes: int = WAVE_BYTES  # how much of the backlog is read, shuffled and handled at once
    # Where tasks put what they finished, a folder or a URI; None for beside the plan.
    state: str | None = None
    archives: tuple[str, ...] = ()  # files with the handler's code, for the executors
    # Into how many the sub-keys are divided; None for three per slot, and 16 at least.
    shards: int | None = None

    def __post_init__(self) -> None:
        SparkLook.__post_init__(self)  # a class with slots is made again, which super() misses
        if self.wave_bytes < 1:
            raise UsageError("--wave must be above 0", hint="Give a size, such as 2GiB or 256MiB.")
        if self.shards is not None and not 1 <= self.shards <= MOST_SHARDS:
            raise UsageError(
                f"--shards {self.shards} is not a number from 1 to {MOST_SHARDS:,}",
                hint="Give a number in that range, or remove --shards.",
            )
        if self.state is not None:
            check_uri(self.state)
        elif not self.is_local:
            raise UsageError(
                f"on {shown_master(self.master)} tasks run on other machines, so they need a place"
                " to record what is done",
                hint="Add --state with a place that all machines reach: s3://bucket/path, gs://,"
                " abfs://, or a folder mounted everywhere.",
            )
        for archive in self.archives:
            _check_archive(archive)

    @property
    def lease(self) -> LeaseTimes:
        """The times of its tasks' lease, by where its state is."""
        if self.state is not None and not is_folder(self.state):
            return lease.REMOTE
        return lease.LOCAL if self.is_local else lease.MOUNTED


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Spark as the engine of a drain: reads and handles in its tasks.

    ``spark`` is a session that is there; without it, the drain starts its own.
    """

    settings: SparkSettings
    spark: SparkSession | None = None
    start_s = START_S

    @property
    def session_s(self) -> float:
        return self.settings.lease.session_s

    def __call__(self, context: LocalContext) -> Summary:
        with handling_nothing(STARTING):
            # PySpark takes half a second to import, and a preview does without.
            from drainer.spark.driver import run_on_spark  # noqa: PLC0415

        return run_on_spark(context, self.settings, self.spark)


def check_conf(conf: Mapping[str, str], *, typed: bool = False) -> None:
    """Make sure that settings of Spark, of a session or as typed, leave drainer's
    laws whole.

    Raises UsageError when one does not; its text has the reason.
    """
    for name, value in conf.items():
        if typed and not name.startswith("spark."):
            raise UsageError(
                f"--spark-conf {name} is not a Spark setting: those begin with spark.",
                hint="Give a Hadoop setting as spark.hadoop.NAME, and a Kafka property with -X or"
                " --client-config.",
            )
        barred, everywhere, reason = _BARRED.get(name.lower(), ("", False, ""))
        if reason and (typed or everywhere) and barred in (None, value.strip().lower()):
            shown = name if barred is None else f"{name}={barred}"
            raise UsageError(f"{shown} is not possible: {reason}", hint="Remove it.")


def java_for_spark() -> Path:
    """The Java that Spark's driver runs on.

    Raises Refused when there is none that will do; ExtraMissing when PySpark is not installed.
    """
    ensure_installed("spark", "Spark")
    try:
        return find_java()
    except SandboxRefused as error:
        raise Refused(str(error).replace("the sandbox", "Spark"), hint=error.hint) from None


def is_local(master: str) -> bool:
    """Whether all of it runs on this machine."""
    return _LOCAL.fullmatch(master) is not None


def _check_master(master: str) -> None:
    if not is_local(master) and not _REMOTE.fullmatch(master):
        raise UsageError(
            f"--master {master!r} is not a Spark master",
            hint="Use local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT.",
        )


def _check_archive(archive: str) -> None:
    path = Path(archive)
    if path.suffix not in ARCHIVES:
        raise UsageError(
            f"--archive {archive} is not an archive that Python can import",
            hint=f"Give one of {', '.join(ARCHIVES)}.",
        )
    if not path.is_file():
        raise UsageError(
            f"--archive {archive}: the file does not exist",
            hint="Give a path on this machine: Spark ships the file.",
        )
