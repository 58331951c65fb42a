"""The laws of ``split``: pure, deterministic, with sub-keys and payloads that can be relied on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drainer.certify.finding import Certificate
from drainer.certify.split_result import (
    Entry,
    ProcessFailed,
    SplitResult,
    results_in_process,
    split_result,
)
from drainer.certify.subject import Subject, again, run
from drainer.certify.travel import payloads
from drainer.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.model.finding import Finding, Level
from drainer.policy.exact_json import Encoding, encode_payload

DAY_S = 24 * 3600.0
# The other processes: the seed of hash(), for two elements of a set stand in one order in half of
# all processes; and how far the clock is ahead: another date, day of the week, hour and minute.
PROBES = ((1, 0.0), (2, 0.0), (3, 397 * DAY_S + 27_077))
_PURE = "Make split depend on the message alone: no clock, no random, no state, no set order."
_KEYS = "Use str, bytes, int, or tuples of them, in one normal form."


@dataclass(slots=True)
class _Pass:
    """Sub-messages that one handler gave for each message, in their order."""

    subs: list[list[SubMessage]] = field(default_factory=list)
    results: list[SplitResult] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


def split_report(
    subject: Subject, sample: Sequence[Message], *, processes: int = len(PROBES)
) -> Certificate:
    """Splits each message several times, here and in other processes; never calls ``handle``.

    The handler's ``open`` and ``close`` are called, as they are before any drain. Raises Refused
    when ``open`` does.
    """
    first, others = run(_passes(subject, sample))
    findings = [
        _takes(sample, first),
        _deterministic(subject, sample, first, others, processes),
        _leaves_alone(first),
    ]
    keys = _sub_keys(first)
    # A sub-key that differs because of its own type is reported as that, and only once.
    if keys.level is Level.BAD and findings[1].level is Level.BAD:
        findings[1] = Finding(
            "deterministic", Level.UNCHECKED, "not checked: its sub-keys are not stable"
        )
    findings += [keys, _writable(first), payloads(zip(sample, first.subs, strict=True))]
    return Certificate(findings, len(sample), sum(map(len, first.subs)))


async def _passes(
    subject: Subject, sample: Sequence[Message]
) -> tuple[_Pass, list[tuple[str, _Pass]]]:
    async with subject.opened(sample) as handler:
        first = _split_all(sample, handler)
        backwards = _split_all(sample[::-1], handler)
        backwards.results.reverse()
    async with subject.opened(sample) as handler:
        fresh = _split_all(sample, handler)
    return first, [("again, after other messages", backwards), ("by a fresh handler", fresh)]


def _split_all(sample: Sequence[Message], handler: LoadedHandler) -> _Pass:
    made = _Pass()
    for each in sample:
        message = again(each)
        subs, result = split_result(message, handler)
        made.subs.append(subs)
        made.results.append(result)
        if _content(message) != _content(each):
            made.changed.append(str(each))
    return made


def _content(message: Message) -> tuple[object, ...]:
    return message.origin, message.offset, message.key, message.value, list(message.headers)


def _takes(sample: Sequence[Message], first: _Pass) -> Finding:
    failed = [result for result in first.results if isinstance(result, str)]
    if failed:
        text = f"split rejects {len(failed):,} of {len(sample):,} messages; first, {failed[0]}"
        level = Level.WARN if len(failed) < len(sample) else Level.BAD
        return Finding("split", level, text, "Fix split, or choose --on-split-failure.")
    return Finding("split", Level.OK, "split accepts every message")


def _deterministic(
    subject: Subject,
    sample: Sequence[Message],
    first: _Pass,
    others: Iterable[tuple[str, _Pass]],
    processes: int,
) -> Finding:
    for how, other in others:
        if found := _first_difference(sample, first.results, other.results):
            return Finding("deterministic", Level.BAD, f"{found} when called {how}", _PURE)
    for seed, ahead_s in PROBES[:processes]:
        where = "in another process"
        if ahead_s:
            where += f" whose clock is {ahead_s / DAY_S:,.0f} days ahead"
        try:
            there = results_in_process(subject, sample, seed, ahead_s)
        except ProcessFailed as reason:
            return Finding(
                "deterministic",
                Level.WARN,
                f"split gives the same each time here, but drainer can't call it {where}: {reason}",
                "Define the handler at the top level of an importable module.",
            )
        if found := _first_difference(sample, first.results, there):
            return Finding("deterministic", Level.BAD, f"{found} {where}", _PURE)
    where = ("in this process", "here and in another process")[min(processes, 1)]
    if processes > 1:
        where = "here, in other processes and at other times"
    return Finding("deterministic", Level.OK, f"split gives the same again, {where}")


def _first_difference(
    sample: Sequence[Message], here: Sequence[SplitResult], there: Sequence[SplitResult]
) -> str | None:
    for message, one, other in zip(sample, here, there, strict=True):
        if one == other:
            continue
        if isinstance(one, str) or isinstance(other, str):
            if isinstance(one, str) and isinstance(other, str):
                continue  # both fail; an error's text is free to differ
            failure = one if isinstance(one, str) else other
            return f"split works at {message}, then fails: {failure},"
        if len(one) != len(other):
            return f"split gives {len(one)} sub-messages at {message}, then {len(other)}"
        index = next(n for n, pair in enumerate(zip(one, other, strict=True)) if len(set(pair)) > 1)
        before, after = one[index], other[index]
        if (before.kind, before.keys) == (after.kind, after.keys):
            return f"split gives another payload at {message}[{index}]"
        return f"split gives {_entry(before)} at {message}[{index}], and {_entry(after)}"
    return None


def _entry(entry: Entry) -> str:
    if entry.kind == Barrier.__name__:
        return "a barrier"
    return f"sub-key {entry.keys if len(entry.keys) < 80 else entry.keys[:79] + '…'}"


def _leaves_alone(first: _Pass) -> Finding:
    if first.changed:
        return Finding(
            "message",
            Level.BAD,
            f"split changes the message {first.changed[0]} itself",
            "Copy what split changes: drainer may split the same message again.",
        )
    return Finding("message", Level.OK, "split leaves the message as it was")


def _sub_keys(first: _Pass) -> Finding:
    types_of: defaultdict[str, set[type]] = defaultdict(set)
    for subs in first.subs:
        for sub in subs:
            for key in (sub.key,) if sub.keys is None else sub.keys:
                if type(key) in (str, bytes, int):
                    types_of[_text_of(key)].add(type(key))
    mixed = next((text for text, types in types_of.items() if len(types) > 1), None)
    if mixed is not None:
        names = " and ".join(sorted(kind.__name__ for kind in types_of[mixed]))
        text = f"sub-key {mixed} comes as {names}: as many lanes"
        return Finding("sub-keys", Level.WARN, text, _KEYS)
    return Finding("sub-keys", Level.OK, "sub-keys are the same everywhere")


def _text_of(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _writable(first: _Pass) -> Finding:
    for subs in first.subs:
        for sub in subs:
            written = sub.message.is_payload(sub) or encode_payload(sub.content)[1]
            if written is Encoding.REPR:
                return Finding(
                    "dead-letters",
                    Level.WARN,
                    f"drainer can't write and read back the payload of {sub}"
                    f" ({type(sub.payload).__name__}): a redrive could not handle its dead letter",
                    "Use dict, list, tuple, str, bytes, numbers, True, False and None in payloads.",
                )
    return Finding("dead-letters", Level.OK, "payloads can be written and read back")
