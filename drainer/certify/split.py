"""Checks of the law of ``split``: a message gives the same sub-messages each time, everywhere.

Run as a program, this module is the other process whose results are compared.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drainer.certify.form import form_of
from drainer.certify.subject import HandlerSource, Subject, again, run, sub_messages_of
from drainer.errors import EXIT_DONE, EXIT_FOUND, Refused, SplitFailed
from drainer.host.process import python_module
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.model.codec import builtins, decode, encode
from drainer.model.finding import Finding, Level
from drainer.split.splitting import way_out
from drainer.text.escape import shorten
from drainer.text.mask import describe

TIMEOUT_S = 120.0  # The other process has this much time to split all messages.
# Seeds for hash(). With a different seed, a set of texts has a different order.
HASH_SEEDS = ("1", "2")
KEY_WIDTH = 80  # A sub-key is printed with at most this many characters.

# The result of splitting one message: for each sub-message, a text for its sub-keys and a text for
# its payload. If split rejects the message, the result is the reason.
SplitResult = list[tuple[str, str]] | str


class LawBroken(AssertionError):
    """Raised when a handler breaks a law. The text names the law and has a counter-example."""

    def __init__(self, law: str, text: str, hint: str) -> None:
        super().__init__(f"{law}: {text}\nhint: {hint}")


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What was found about the ``split`` of a handler.

    Attributes:
        messages: how many messages were split.
        sub_messages: how many sub-messages they gave.
    """

    findings: list[Finding]
    messages: int
    sub_messages: int

    @property
    def exit_code(self) -> int:
        broken = any(finding.level is Level.BAD for finding in self.findings)
        return EXIT_FOUND if broken else EXIT_DONE

    def as_json(self) -> dict[str, object]:
        return {
            "status": "broken" if self.exit_code else "certified",
            "exit_code": self.exit_code,
            **builtins(self),
        }


def check_split(
    handler: HandlerSource, messages: Sequence[Message], *, options: Mapping[str, str] | None = None
) -> None:
    """Ensure that ``split`` gives the same sub-messages again, here and in another process.

    The handler is opened and closed three times, and ``handle`` is not called.

    Raises:
        LawBroken: with the message and the sub-message that differ, or when ``split`` rejects every
            message.
        Refused: when the handler does not open, or can't be sent to another process.
    """
    for finding in split_report(Subject(handler, options), messages).findings:
        if finding.level is Level.BAD:
            raise LawBroken(finding.check, finding.text, finding.hint or "")


def split_report(subject: Subject, sample: Sequence[Message]) -> SplitReport:
    """Split each message twice here, in two orders, and once in another process.

    Raises Refused when the handler does not open, or can't be sent to another process.
    """
    first = run(_results(subject, sample))
    findings = [_accepts(sample, first)]
    if findings[0].level is not Level.BAD:
        findings.append(_repeats(subject, sample, first))
    subs = sum(len(result) for result in first if not isinstance(result, str))
    return SplitReport(findings, len(sample), subs)


async def _results(subject: Subject, sample: Sequence[Message]) -> list[SplitResult]:
    async with subject.opened(sample) as handler:
        return [_result(handler, message) for message in sample]


def _result(handler: LoadedHandler, message: Message) -> SplitResult:
    try:
        subs = sub_messages_of(handler, message)
    except SplitFailed as error:
        return str(error)
    return [(_keys_of(sub), form_of(sub.content)) for sub in subs]


def _keys_of(sub: SubMessage) -> str:
    if isinstance(sub, Barrier):
        return "a barrier"
    return f"sub-key {sub.key if sub.keys is None else sub.keys!r}"


def _accepts(sample: Sequence[Message], results: Sequence[SplitResult]) -> Finding:
    failed = [result for result in results if isinstance(result, str)]
    if not failed:
        return Finding("split", Level.OK, "split accepts every message")
    text = f"split rejects {len(failed):,} of {len(sample):,} messages; first, {failed[0]}"
    level = Level.WARN if len(failed) < len(sample) else Level.BAD
    hint = f"{way_out(failed[0])}, or choose --tune on-split-failure=ACTION."
    return Finding("split", level, text, hint)


def _repeats(subject: Subject, sample: Sequence[Message], first: Sequence[SplitResult]) -> Finding:
    backwards = run(_results(subject, sample[::-1]))[::-1]
    found = _difference(sample, first, backwards)
    where = "when called again, after other messages"
    if found is None:
        found = _difference(sample, first, _results_elsewhere(subject, sample))
        where = "in another process"
    if found is None:
        text = "split gives the same again, here and in another process"
        return Finding("deterministic", Level.OK, text)
    hint = "Make split depend on the message alone: no clock, no random, no state, no set order."
    return Finding("deterministic", Level.BAD, f"{found} {where}", hint)


def _difference(
    sample: Sequence[Message], here: Sequence[SplitResult], there: Sequence[SplitResult]
) -> str | None:
    for message, one, other in zip(sample, here, there, strict=True):
        if isinstance(one, str) and isinstance(other, str):
            continue  # The text of an error may differ.
        if isinstance(one, str) or isinstance(other, str):
            failure = one if isinstance(one, str) else other
            return f"split works at {message}, then fails: {failure},"
        if len(one) != len(other):
            return f"split gives {len(one)} sub-messages at {message}, then {len(other)}"
        for index, ((keys, payload), (other_keys, other_payload)) in enumerate(
            zip(one, other, strict=True)
        ):
            if keys != other_keys:
                one_key, other_key = (shorten(each, KEY_WIDTH) for each in (keys, other_keys))
                return f"split gives {one_key} at {message}[{index}], and {other_key}"
            if payload != other_payload:
                return f"split gives another payload at {message}[{index}]"
    return None


def _results_elsewhere(subject: Subject, sample: Sequence[Message]) -> list[SplitResult]:
    """Return the results of a new Python process, where ``hash()`` of a text is different.

    Raises Refused when the handler can't be sent there, or when that Python fails.
    """
    seed = next(each for each in HASH_SEEDS if each != os.environ.get("PYTHONHASHSEED"))
    settings = (subject.options, subject.payloads, subject.extras)
    messages = [again(message) for message in sample]
    try:
        task = pickle.dumps((subject.reference or subject.source, settings, messages))
        ended = subprocess.run(
            python_module(__name__),
            input=task,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _refusal(f"it took longer than {TIMEOUT_S:.0f} s") from None
    except Exception as error:  # The handler's own code may run while it is pickled.
        raise _refusal(describe(error)) from None
    if ended.returncode:
        printed = ended.stderr.decode(errors="replace").strip().splitlines()
        raise _refusal(printed[-1] if printed else f"exit code {ended.returncode}")
    return decode(ended.stdout, list[SplitResult])


def _refusal(reason: str) -> Refused:
    return Refused(
        f"drainer can't call split in another process: {reason}",
        hint="Define the handler at the top level of a module that can be imported.",
    )


def _serve() -> None:
    """Read a task from standard input, and write its results to standard output."""
    answer = os.dup(1)
    os.dup2(2, 1)  # What the handler prints must not be taken for the answer.
    source, settings, messages = pickle.load(sys.stdin.buffer)
    results = run(_results(Subject(source, *settings), messages))
    with os.fdopen(answer, "wb") as file:
        file.write(encode(results))


if __name__ == "__main__":
    _serve()
