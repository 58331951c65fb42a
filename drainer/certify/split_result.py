"""Results of ``split`` as text, which is the same in every process.

Run as a program with ``FOLDER AHEAD_S``, this module is the other process with which results are
compared.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from drainer.certify.form import form_of
from drainer.certify.subject import Subject, again, run
from drainer.errors import DrainerError, SplitFailed
from drainer.loader import LoadedHandler
from drainer.mask import describe
from drainer.message import Message, SubMessage
from drainer.model.codec import decode, encode
from drainer.model.sub_messages import identify
from drainer.process import python_module
from drainer.splitting import split_up

TIMEOUT_S = 120.0
TASK, RESULTS = "task.pickle", "results.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One sub-message: its kind, the repr of its sub-keys, and the structure of its payload."""

    kind: str
    keys: str
    payload: str

    @classmethod
    def of(cls, sub: SubMessage) -> Entry:
        keys = sub.key if sub.keys is None else sub.keys
        return cls(type(sub).__name__, repr(keys), form_of(sub.content))


SplitResult = list[Entry] | str  # of one message; text when split rejects it


class ProcessFailed(Exception):
    """Raised when another process gives no results; the text has the reason."""


def split_result(message: Message, handler: LoadedHandler) -> tuple[list[SubMessage], SplitResult]:
    """The sub-messages of a message, themselves and as text."""
    try:
        subs = split_up(handler.split, message)
        identify(message, subs)
        return subs, [Entry.of(sub) for sub in subs]
    except SplitFailed as error:
        return [], str(error)


def results_in_process(
    subject: Subject, sample: Sequence[Message], seed: int, ahead_s: float = 0.0
) -> list[SplitResult]:
    """The results of a fresh Python, whose ``hash()`` of text is of this seed.

    Its clock is ``ahead_s`` ahead of this one's before the handler is imported, for all that reads
    the time in Python; the monotonic clock isn't. Raises ProcessFailed.
    """
    import cloudpickle  # noqa: PLC0415 - by value where it can't be imported by name

    plain = [again(message) for message in sample]
    source = subject.reference or subject.source
    with TemporaryDirectory(prefix="drainer-certify-") as name:
        folder = Path(name)
        try:
            settings = (subject.options, subject.payloads, subject.extras)
            task: bytes = cloudpickle.dumps((source, settings, plain))
        except Exception as error:  # whatever its __reduce__ raises
            raise ProcessFailed(
                f"the handler can't be sent to another process: {describe(error)}"
            ) from None
        (folder / TASK).write_bytes(task)
        try:
            ended = subprocess.run(
                python_module("drainer.certify.split_result", name, str(ahead_s)),
                env=os.environ | {"PYTHONHASHSEED": str(seed)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"it took longer than {TIMEOUT_S:.0f} s") from None
        if not (folder / RESULTS).exists():
            printed = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            raise ProcessFailed(printed[-1])
        return decode((folder / RESULTS).read_bytes(), list[SplitResult])


async def _results(subject: Subject, sample: Sequence[Message]) -> list[SplitResult]:
    async with subject.opened(sample) as handler:
        return [split_result(message, handler)[1] for message in sample]


def run_task(folder: Path, ahead_s: float) -> None:
    """Do the task in a folder, and write its results there."""
    if ahead_s:
        # It changes what C functions return, so modules that imported these see it too.
        from time_machine import travel  # noqa: PLC0415

        travel(time.time() + ahead_s).start()
    source, settings, sample = pickle.loads((folder / TASK).read_bytes())
    results = run(_results(Subject(source, *settings), sample))
    (folder / RESULTS).write_bytes(encode(results))


if __name__ == "__main__":
    try:
        run_task(Path(sys.argv[1]), float(sys.argv[2]))
    except DrainerError as error:
        sys.exit(str(error))
