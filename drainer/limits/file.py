"""The limits file, which is rewritten after each trial, and which one process locks meanwhile.

``load_limits`` and ``within_limits`` apply such a file to a drain (``--broker-limits FILE``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import filelock
import orjson

from drainer.errors import LimitsNotWritten, LimitsRefused, raised_as
from drainer.host.os_errors import describe_os, way_out
from drainer.kafka.backlog import remaining
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import sample_backlog
from drainer.limits.search.boundary import MeasuredLimits, as_json, cap_curve, from_json
from drainer.model.rate_cap import CapCurve
from drainer.operations.start import Prepared
from drainer.store.atomic_file import write_whole
from drainer.text.escape import command

SAMPLED = 2_000  # This many messages are read to learn their mean size.
_OTHER = "Name another file, or measure again with `drainer limits --out FILE`."
_BYTES_MOST = 256 * 1024 * 1024  # A larger file is not a limits file.


class LimitsFile:
    """A measurement on disk. During the measurement, a lock file ``.NAME.lock`` lies beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path.parent / f".{path.name}.lock", mode=0o600)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes of this machine from the file until the block ends.

        The lock also ends with this process. Raises LimitsRefused when another process holds it,
        or when the folder can't be written.
        """
        try:
            if not self.path.parent.is_dir():  # filelock would create the folder.
                raise FileNotFoundError(errno.ENOENT, "the folder does not exist")
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            raise LimitsRefused(
                f"another drainer process writes to {self.path}",
                hint="Wait for it, or stop it with Ctrl-C: it keeps its trials.",
            ) from None
        except OSError as error:
            raise LimitsRefused(
                f"can't write limits in {self.path.parent}: {error.strerror or error}",
                hint="Name a file in a writable folder with --out.",
            ) from None
        try:
            yield
        finally:
            # The lock file is removed while it is still locked. Otherwise another process could
            # lock this file just before it is removed, and a third one could make and lock a new
            # file.
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def find(self) -> MeasuredLimits | None:
        """Return the measurement; None when there is no file.

        Raises LimitsRefused when the file is damaged, of another version, or not a limits file.
        """
        return self.load() if os.path.lexists(self.path) else None

    def load(self) -> MeasuredLimits:
        """Return the measurement.

        Raises LimitsRefused when the file is missing, damaged, of another version, or not a limits
        file.
        """
        with raised_as(LimitsRefused, about=f"limits file {self.path}: "):
            try:
                if self.path.stat().st_size > _BYTES_MOST:
                    raise LimitsRefused("it is too large for a limits file", hint=_OTHER)
                return from_json(orjson.loads(self.path.read_bytes()))
            except FileNotFoundError:
                run = command("limits", options=["-b", "BROKER", "--out", str(self.path)])
                hint = f"Run `{run}`, or give a rate such as 50MB/s."
                raise LimitsRefused("it does not exist", hint=hint) from None
            except OSError as error:
                why = f"it can't be read: {error.strerror or error}"
                raise LimitsRefused(why, hint=_OTHER) from None
            except orjson.JSONDecodeError:
                raise LimitsRefused("it is not JSON", hint=_OTHER) from None

    def write(self, limits: MeasuredLimits) -> None:
        """Replace the file by a new one, which only its owner can read.

        Even after a crash, there is either the old file or the new one. If the new one can't be
        written, the old one stays, and LimitsNotWritten is raised.
        """
        data = orjson.dumps(as_json(limits), option=orjson.OPT_INDENT_2) + b"\n"
        try:
            write_whole(self.path, data, durable=True)
        except OSError as error:
            raise LimitsNotWritten(
                f"can't write the limits {self.path}: {describe_os(error)}",
                hint=f"{way_out(error, 'Make it writable.')} Then repeat the command. It keeps the"
                " earlier trials.",
            ) from error


def load_limits(path: Path) -> CapCurve:
    """Return the rates that a limits file allows, by message size.

    Raises LimitsRefused when the file is not a readable limits file, or when no traffic was safe.
    """
    measured = LimitsFile(path).load()
    with raised_as(LimitsRefused, about=f"{path}: "):
        curve = cap_curve(measured)
        curve.cap(1)  # This raises LimitsRefused if no traffic was safe.
    return curve


def within_limits(cluster: Cluster, prepared: Prepared, curve: CapCurve) -> Prepared:
    """Add the limit on reading to the preview of a drain whose plan has this curve.

    The limit depends on the size of the messages, so this reads a sample of the backlog.

    Raises LimitsRefused when no traffic of that size is safe, and Refused when the topic can't be
    read.
    """
    action, plan = prepared.action, prepared.plan
    if curve.cluster_id not in ("", plan.terms.cluster_id):
        warning = (
            f"the limits were measured on another cluster, {curve.cluster_id}; this one may"
            " tolerate less"
        )
        action = replace(action, warnings=(*action.warnings, warning))
    sample = sample_backlog(cluster, remaining(cluster, plan), SAMPLED)
    if messages := sample.messages:
        action = replace(action, cap=curve.reading.cap(max(1.0, sample.read_bytes / len(messages))))
    return replace(prepared, action=action)
