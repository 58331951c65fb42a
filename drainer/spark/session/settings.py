"""Settings of Spark, and drainer's own on Spark. This module does not import PySpark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, cast

from drainer.errors import Refused, SandboxRefused, UsageError, raised_as
from drainer.host.java import find_java
from drainer.loading.extensions import ensure_installed
from drainer.model.option import TEXT, ValueType, number, parse_size
from drainer.spark.state import lease
from drainer.spark.state.lease import LeaseTimes
from drainer.store.objects import STATES, check_uri
from drainer.store.place import is_folder
from drainer.text.secret import REDACTED, hides

EVERY_CORE = "local[*]"
REMOTE = "sc://"  # The address of a server of Spark Connect begins with it.
SLICE_BYTES = 2 * 1024**3
STARTING = "Spark was starting"
# The size of Arrow batches between Spark and a task. Most rows are chunks of some 64 KiB.
BATCH_BYTES, BATCH_ROWS = 4 * 1024 * 1024, 64
FAILURES_MOST = 4  # A task on local[N] is tried this often, which is Spark's default on a cluster.
MOST_TASKS = 10_000  # A higher number must be a typing error.

# These settings of Spark name files with code, which Spark sends to the executors.
PY_FILES, ARCHIVES = "spark.submit.pyFiles", "spark.archives"
SEND_ALONG = (
    f"Send it with --spark-conf {PY_FILES}=FILE.zip (spark-submit: --py-files), or install it on"
    " the executors."
)


def _parse_slice(text: str) -> int:
    if not (size := parse_size(text)):
        raise UsageError("a slice of no bytes reads nothing", hint="Give a size, such as 256MiB.")
    return size


# drainer's own settings on Spark, and the types of their values.
TASKS, SLICE, STATE = "drainer.tasks", "drainer.slice", "drainer.state"
_OWN: dict[str, ValueType] = {
    TASKS: number(1, MOST_TASKS),
    SLICE: ValueType("SIZE", _parse_slice),
    STATE: TEXT,
}

# Settings of Spark that a drain can't work with. For each of them: the value that is refused (None
# for any value), whether a session that already exists is refused for it, too, and the reason.
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
    """Return the master, or the address of a server of Spark Connect, that was typed.

    If nothing was typed, the master is this machine. Raises UsageError if the address has a secret.
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
    """Return a master as it may be shown. The parameters of a server, such as a token, are cut."""
    return master.partition("/;")[0]


def with_retries(master: str) -> str:
    """Return a master, changed so that a local one repeats tasks which fail."""
    local = _CORES.fullmatch(master)
    return f"local[{local[1] or 1},{FAILURES_MOST}]" if local else master


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The master of a session of Spark, and the settings that were typed for it.

    ``master`` is the URL of a master, or of a server of Spark Connect. ``conf`` has settings of
    Spark and drainer's own by name. ``repr`` shows neither, since both may have secrets.

    Raises UsageError if the text is not a master, or if a setting is unknown or one that a drain
    can't work with.
    """

    master: str = field(default=EVERY_CORE, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, master: str | None, conf: Mapping[str, str]) -> Self:
        """Return the settings that were typed, as ``master_of`` reads the master."""
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
        """The number of tasks that handle a slice; None for one per slot."""
        return cast("int | None", self.own(TASKS))

    @property
    def is_local(self) -> bool:
        """Whether the whole session runs on this machine."""
        return is_local(self.master)

    @property
    def is_remote(self) -> bool:
        """Whether the session is one of a server of Spark Connect."""
        return self.master.startswith(REMOTE)

    @property
    def of_spark(self) -> dict[str, str]:
        """The settings of Spark, without drainer's own."""
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
        # super() does not work here, because a dataclass with slots replaces its class.
        SessionSettings.__post_init__(self)
        if self.state is not None:
            check_uri(self.state, STATES)
        elif not self.is_local:
            raise UsageError(
                f"on {shown_master(self.master)} tasks run on other machines, so they need a place"
                " to record what is done",
                hint=f"Add --spark-conf {STATE}=URI with a place that all machines reach:"
                " s3://bucket/path, gs://, abfs://, or a folder mounted everywhere.",
            )

    @property
    def slice_bytes(self) -> int:
        """The maximum size of a slice: the bytes that one query reads, shuffles and handles."""
        return self.own(SLICE) or SLICE_BYTES

    @property
    def state(self) -> str | None:
        """The folder or URI where tasks record what is done; None for a folder beside the plan."""
        return cast("str | None", self.own(STATE))

    @property
    def lease(self) -> LeaseTimes:
        """The times of the lease of the drain's tasks, which depend on where its state is."""
        if self.state is not None and not is_folder(self.state):
            return lease.REMOTE
        return lease.LOCAL if self.is_local else lease.MOUNTED


def check_conf(conf: Mapping[str, str], *, typed: bool = False) -> None:
    """Ensure that a drain can work with these settings of Spark.

    Settings that are ``typed`` come from the command line, others from a session that exists.
    Raises UsageError, which names the reason.
    """
    for name, value in conf.items():
        barred, everywhere, reason = _BARRED.get(name.lower(), ("", False, ""))
        if reason and (typed or everywhere) and barred in (None, value.strip().lower()):
            shown = name if barred is None else f"{name}={barred}"
            raise UsageError(f"{shown} is not possible: {reason}", hint="Remove it.")


def _ensure_there(name: str, path: str) -> None:
    """Ensure that a file of this machine exists. Spark notices a missing one only much later.

    Raises UsageError.
    """
    file = path.partition("#")[0]  # The part after # is where an archive is unpacked.
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

    Raises Refused if there is no suitable Java; ExtraMissing if PySpark is not installed.
    """
    ensure_installed("spark", "Spark")
    with raised_as(Refused, SandboxRefused):
        return find_java("Spark")


def is_local(master: str) -> bool:
    """Return whether everything that a master starts runs on this machine."""
    return _LOCAL.fullmatch(master) is not None
