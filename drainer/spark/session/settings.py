"""Settings of Spark, and drainer's own on Spark. They are known without PySpark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from drainer.errors import Refused, SandboxRefused, UsageError, raised_as
from drainer.host.java import find_java
from drainer.loading.extensions import ensure_installed
from drainer.model.option import TEXT, ValueType, number, parse_size
from drainer.spark.state import lease
from drainer.spark.state.lease import LeaseTimes
from drainer.spark.state.objects import check_uri
from drainer.store.place import is_folder
from drainer.text.secret import REDACTED, hides

EVERY_CORE = "local[*]"
REMOTE = "sc://"  # The address of a server of Spark Connect begins with it.
WAVE_BYTES = 2 * 1024**3
STARTING = "Spark was starting"
BATCH_BYTES = 4 * 1024 * 1024  # of an Arrow batch between Spark and a task
BATCH_ROWS = 64  # of an Arrow batch that a task gets; most rows are chunks of some 64 KiB
FAILURES_MOST = 4  # attempts at a task on local[N], as on a cluster
MOST_TASKS = 10_000  # A higher number is a slip of the finger.

# Settings of Spark that name files with code to send to the executors, separated by commas.
PY_FILES, ARCHIVES = "spark.submit.pyFiles", "spark.archives"
SEND_ALONG = (
    f"Send it with --spark-conf {PY_FILES}=FILE.zip (spark-submit: --py-files), or install it on"
    " the executors."
)


def _parse_wave(text: str) -> int:
    if not (size := parse_size(text)):
        raise UsageError("a wave of no bytes reads nothing", hint="Give a size, such as 256MiB.")
    return size


# Settings that drainer has on Spark, beside Spark's own, and how their values are typed.
TASKS, SHARDS, WAVE, STATE = "drainer.tasks", "drainer.shards", "drainer.wave", "drainer.state"
_OWN: dict[str, ValueType] = {
    TASKS: number(1, MOST_TASKS),
    SHARDS: number(1, MOST_TASKS),
    WAVE: ValueType("SIZE", _parse_wave),
    STATE: TEXT,
}

# Settings of Spark that a drain can't work with. For each: the value that is refused (None for
# any), whether it is refused in a session that exists already, too, and the reason.
_BARRED = {
    "spark.speculation": ("true", True, "a second copy of a task would handle everything twice"),
    "spark.master": (None, False, "--master sets the master"),
    "spark.remote": (None, False, "--master sc://HOST:PORT sets the server"),
    "spark.api.mode": ("connect", False, "--master sc://HOST:PORT sets the server"),
    "spark.submit.deploymode": ("cluster", False, "this command is the driver"),
}
_LOCAL = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]")
_CORES = re.compile(r"local(?:\[(\d+|\*)\])?")
_REMOTE = re.compile(r"(spark|k8s)://.+|yarn|sc://.*")


def master_of(typed: str | None) -> str:
    """Return a master, or the address of a server of Spark Connect; without one, this machine.

    Raises UsageError if the address has a secret.
    """
    master = EVERY_CORE if typed is None else typed.strip()
    if not master.startswith(REMOTE):
        return master
    for name, _, value in (each.partition("=") for each in master.split(";")[1:]):
        if hides(name, value):
            raise UsageError(
                f"--master has a {name}, which other users and the plan's readers would see",
                hint="Put a token into the variable SPARK_CONNECT_AUTHENTICATE_TOKEN.",
            )
    return master


def shown_master(master: str) -> str:
    """Return a master as it may be shown, without a token behind the address of a server."""
    return master.partition("/;")[0]


def with_retries(master: str) -> str:
    """Return a local master that repeats tasks which fail; any other master as it is."""
    local = _CORES.fullmatch(master)
    return f"local[{local[1] or 1},{FAILURES_MOST}]" if local else master


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The master of a session of Spark, and the settings that were typed for it.

    ``master`` is the URL of a master, or of a server of Spark Connect. ``conf`` has settings of
    Spark and drainer's own by name. ``repr`` shows neither, since both may have secrets.

    Raises UsageError if the master is not one, or if a setting is unknown or breaks a law.
    """

    master: str = field(default=EVERY_CORE, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, master: str | None, conf: Mapping[str, str]) -> Self:
        """Return the settings that were typed. Without a master, this machine is it."""
        return cls(master_of(master), conf)

    def __post_init__(self) -> None:
        if not is_local(self.master) and not _REMOTE.fullmatch(self.master):
            raise UsageError(
                f"--master {self.master!r} is not a Spark master",
                hint="Use local[*], spark://HOST:PORT, yarn, k8s://https://HOST:PORT, or sc://HOST:PORT"
                " of Spark Connect.",
            )
        for name in self.conf:
            if name in _OWN:
                self.own(name)
            elif not name.startswith("spark."):
                raise _unknown(name)
        check_conf(self.conf, typed=True)
        for name in (PY_FILES, ARCHIVES):
            for path in self.files(name):
                _ensure_there(name, path)

    def files(self, name: str) -> list[str]:
        """Return the files that a setting of Spark lists."""
        return [path for path in self.conf.get(name, "").split(",") if path]

    def own(self, name: str) -> Any:
        """Return the value of one of drainer's own settings; None if it is not set.

        Raises UsageError.
        """
        if (text := self.conf.get(name)) is None:
            return None
        with raised_as(UsageError, about=f"--spark-conf {name}: "):
            return _OWN[name].parse(text)

    @property
    def tasks(self) -> int | None:
        """The maximum number of tasks that work at once; None for as many as pay."""
        tasks: int | None = self.own(TASKS)
        return tasks

    @property
    def is_local(self) -> bool:
        """Whether the whole session runs on this machine."""
        return is_local(self.master)

    @property
    def is_remote(self) -> bool:
        """Whether the session is one of a server of Spark Connect."""
        return self.master.startswith(REMOTE)

    @property
    def slots_to_come(self) -> int | None:
        """The number of slots that a cluster is to have by these settings; None if they don't
        say."""
        conf = self.conf
        executors, each = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
        if executors and each:
            return int(executors) * int(each)
        return int(conf["spark.cores.max"]) if "spark.cores.max" in conf else None

    @property
    def of_spark(self) -> dict[str, str]:
        """The settings that are Spark's."""
        return {name: value for name, value in self.conf.items() if name not in _OWN}

    def shown_conf(self) -> dict[str, str]:
        """Return the settings as they may be shown, without secrets."""
        return {n: REDACTED if hides(n, value) else value for n, value in sorted(self.conf.items())}


@dataclass(frozen=True, slots=True)
class SparkSettings(SessionSettings):
    """The settings of a drain on Spark. None of them changes what is drained.

    Raises UsageError as ``SessionSettings`` does, and if a cluster has no place for the state.
    """

    def __post_init__(self) -> None:
        # A dataclass with slots is a new class, which super() does not know.
        SessionSettings.__post_init__(self)
        if self.state is not None:
            check_uri(self.state)
        elif not self.is_local:
            raise UsageError(
                f"on {shown_master(self.master)} tasks run on other machines, so they need a place"
                " to record what is done",
                hint=f"Add --spark-conf {STATE}=URI with a place that all machines reach:"
                " s3://bucket/path, gs://, abfs://, or a folder mounted everywhere.",
            )

    @property
    def wave_bytes(self) -> int:
        """Bytes of the backlog that are read, shuffled and handled in one wave, at most."""
        return self.own(WAVE) or WAVE_BYTES

    @property
    def state(self) -> str | None:
        """The folder or URI where tasks record what is done; None for the folder beside the
        plan."""
        state: str | None = self.own(STATE)
        return state

    @property
    def shards(self) -> int | None:
        """The number of hash ranges of the sub-keys; None to choose it by the slots."""
        shards: int | None = self.own(SHARDS)
        return shards

    @property
    def lease(self) -> LeaseTimes:
        """The times of the lease of the drain's tasks, which depend on where its state is."""
        if self.state is not None and not is_folder(self.state):
            return lease.REMOTE
        return lease.LOCAL if self.is_local else lease.MOUNTED


def check_conf(conf: Mapping[str, str], *, typed: bool = False) -> None:
    """Ensure that settings of Spark break none of drainer's laws.

    ``typed`` settings come from the command line, others from a session that exists already.
    Raises UsageError, whose text has the reason.
    """
    for name, value in conf.items():
        barred, everywhere, reason = _BARRED.get(name.lower(), ("", False, ""))
        if reason and (typed or everywhere) and barred in (None, value.strip().lower()):
            shown = name if barred is None else f"{name}={barred}"
            raise UsageError(f"{shown} is not possible: {reason}", hint="Remove it.")


def _ensure_there(name: str, path: str) -> None:
    """Ensure that a local file exists that is sent to the executors: Spark notices it late.

    Raises UsageError.
    """
    file = path.partition("#")[0]  # Behind it is the folder that an archive is unpacked to.
    if "://" not in file and "*" not in file and not Path(file).exists():
        raise UsageError(
            f"--spark-conf {name}: {file} does not exist",
            hint="Name files of this machine, separated by commas: Spark sends them.",
        )


def _unknown(name: str) -> UsageError:
    if not name.startswith("drainer."):
        return UsageError(
            f"--spark-conf {name} is not a Spark setting: those begin with spark.",
            hint="Give a Hadoop setting as spark.hadoop.NAME, and a Kafka property with -X or"
            " --client-config.",
        )
    near = get_close_matches(name, _OWN, n=1, cutoff=0)
    return UsageError(f"there is no setting {name}", hint=f"Did you mean {near[0]}?")


def java_for_spark() -> Path:
    """Return the Java that Spark's driver runs on.

    Raises Refused if there is none that will do; ExtraMissing if PySpark is not installed.
    """
    ensure_installed("spark", "Spark")
    try:
        return find_java()
    except SandboxRefused as error:
        raise Refused(str(error).replace("the sandbox", "Spark"), hint=error.hint) from None


def is_local(master: str) -> bool:
    """Whether all that a master starts runs on this machine."""
    return _LOCAL.fullmatch(master) is not None
