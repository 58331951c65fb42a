"""The terms of a drain in words: its handler, failure policy and rules, and what rules skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.terms import PayloadSettings, RedriveSettings, Unkeyed
from drainer.model.unhandled import RuleStatus, Unhandled
from drainer.text.escape import shorten
from drainer.view import figures, priority
from drainer.view.page import Field, Tone, few

WIDTH = 60  # The characters of a name or an expression that are shown.

_ORDERS = {
    "sub-key": "one sub-message at a time per sub-key, many sub-keys at once",
    "key": "one sub-message at a time per message key",
    "partition": "one sub-message at a time per partition",
    "none": "drainer keeps no order",
}


def task_fields(found: OffsetPlan, examples: Sequence[str] = ()) -> Iterator[Field]:
    """Yield what was requested of a drain, for its preview and for the page of its plan.

    ``examples`` say what ``split`` makes of some messages.
    """
    yield Field("topic", found.terms.topic, f"id {found.terms.topic_id}")
    kept = "" if found.terms.commits else "keeps its offsets: drainer commits nothing"
    yield Field("group", found.terms.group, kept)
    yield Field("cluster", found.terms.cluster_id, f"at {found.terms.bootstrap_servers}")
    yield Field("handler", found.terms.handler)
    yield from payload_fields(found.terms.payloads)
    yield from (Field("" if n else "for example", each) for n, each in enumerate(examples))
    yield Field("order", found.terms.order, _ORDERS.get(found.terms.order, ""))
    yield Field("isolation", found.terms.isolation)
    if found.terms.redrive:
        yield redrive_field(found.terms.redrive)
    yield from priority.fields_before(found.account)
    yield from policy_fields(found.terms.failures)
    yield from skip_fields(found.terms.failures.skip)


def payload_fields(payloads: PayloadSettings) -> Iterator[Field]:
    """Yield how a message is decoded and split before the handler gets it."""
    if payloads.times is not None:
        yield Field("times", str(payloads.times), "drainer skips other records")
    formats = ("value", payloads.value_format), ("key", payloads.key_format)
    for name, found in (*formats, ("registry", payloads.registry)):
        if found is not None:
            yield Field(name, found)
    if payloads.split is not None:
        yield Field("split", shorten(payloads.split, WIDTH))
    none = "a lane of its own" if payloads.unkeyed is Unkeyed.OWN_LANE else "one lane for all"
    if payloads.keys:
        yield Field("sub-keys", shorten(" and ".join(payloads.keys), WIDTH), f"none: {none}")
    elif payloads.unkeyed is not Unkeyed.OWN_LANE:
        yield Field("no sub-key", none)
    if payloads.barrier is not None:
        does = "waits for all before it, and all after it wait"
        yield Field("barrier", shorten(payloads.barrier, WIDTH), does)


def policy_fields(failures: FailureSettings) -> Iterator[Field]:
    """Yield what happens when the handler fails."""
    retries, limit = "none", "no timeout"
    if failures.retries:
        first, most = map(figures.duration, (failures.retry_delay_s, failures.retry_max_delay_s))
        apart = f"after {first}" if failures.retries == 1 else f"{first} to {most} apart"
        retries = f"{figures.count(failures.retries)}, {apart}"
    if failures.timeout_s:
        limit = f"at most {figures.duration(failures.timeout_s)} per attempt"
    yield Field("retries", retries, limit)
    yield Field("on failure", _then(failures, failures.on_failure))
    if failures.on_unsplit is not failures.on_failure:
        does = _then(failures, failures.on_unsplit)
        # The whole message has failed, and its lanes are unknown.
        does = does.replace("sub-message", "message").replace("its lane", "its partition")
        yield Field("split fails", does)
    if failures.divert:
        where = f"to {failures.dead_letter_topic}, without a call"
        yield Field("diverts", "; ".join(failures.divert), where)
    if not failures.breaker:
        yield Field("breaker", "none", "an outage counts as failures of sub-messages")
    if failures.halts_when:
        yield Field("halts", " or ".join(failures.halts_when))
    if (per_s := failures.rate) is not None:
        slow = per_s < 1
        rate = f"{figures.rate(per_s * 60)}/min" if slow else f"{figures.rate(per_s)}/s"
        yield Field("rate", rate, "limit on the sub-messages that start")


def redrive_field(redrive: RedriveSettings) -> Field:
    """Name the dead letters that a redrive gives to the handler again."""
    chosen = redrive.letters
    named = [
        f"{each.name.replace('_', '-').removesuffix('s')} {', '.join(texts)}"
        for each in fields(chosen)
        if (texts := getattr(chosen, each.name))
    ]
    often = figures.counted(redrive.max_redrives, "time")
    text = f"those with {' and '.join(named)}" if named else "all"
    text += f", to {redrive.to}" * (redrive.to is not None)
    return Field("letters", text, f"except those redriven {often}")


def _then(failures: FailureSettings, action: OnFailure) -> str:
    if action is not OnFailure.DEAD_LETTER:
        return action.does
    behind = "; drainer parks its lane" if failures.stops_behind_dead else ""
    return f"{action.does} to {failures.dead_letter_topic}{behind}"


def skip_fields(expressions: Sequence[str]) -> Iterator[Field]:
    """Yield the rules by which a drain skips sub-messages, if it has any."""
    if expressions:
        known = figures.counted(len(expressions), "rule")
        shown = [shorten(text, 2 * WIDTH) for text in expressions]
        yield Field("skips", f"by {known}", lines=few(shown))


def unhandled_lines(rules: Unhandled) -> Iterator[Field]:
    """Yield how many sub-messages rules and the handler have skipped or diverted so far."""
    yield from skip_lines("skipped by", rules.skipped_by)
    yield from skip_lines("skipped for", rules.skipped_for)
    yield from skip_lines("diverted by", rules.diverted_by)


def skip_lines(
    label: str, counts: Mapping[str, int], of: int | None = None, about: str = ""
) -> Iterator[Field]:
    """Yield how many sub-messages are left out, and how many by each rule or reason.

    ``of`` is how many there are. ``about`` stands before each number, if they are from a sample.
    """
    if counts:
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        each = [f"{about}{figures.count(n)} by {shorten(name, WIDTH)}" for name, n in most]
        total = sum(counts.values())
        text = figures.counted(total, "sub-message")
        if of is not None:
            text = f"{about}{figures.count(total)} of {about}{figures.counted(of, 'sub-message')}"
        yield Field(label, text, lines=few(each))


def undecided_lines(rules: RuleStatus) -> Iterator[Field]:
    """Yield how many sub-messages were handled because a rule failed on them."""
    if rules.undecided:
        each = [
            f"{figures.count(number)} by {shorten(name, WIDTH)}: {rules.why.get(name, '')}"
            for name, number in rules.undecided.items()
        ]
        total = figures.counted(sum(rules.undecided.values()), "sub-message")
        text = f"{total} that a rule could not decide on"
        yield Field("not skipped", text, "", Tone.WARN, few(each))
