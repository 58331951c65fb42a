"""A look at a few messages before a drain begins: what ``split`` makes of them.

Otherwise, a wrong path, key or expression would be noticed only once a plan exists, or once all is
drained in a wrong order. Nothing is handled or committed, and ``open`` is not called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain, groupby, zip_longest
from operator import attrgetter
from time import monotonic
from typing import Any

from drainer.errors import DrainerError, Refused, SplitFailed
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import sample_ranges
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.model.facts import Facts, Undecided, View, shown
from drainer.model.listed import counted, listed
from drainer.model.order import keys_of
from drainer.model.plan import OffsetPlan
from drainer.model.predicate import Predicate
from drainer.model.priority import PriorityClasses
from drainer.model.settings import FailureSettings
from drainer.model.sub_messages import identify
from drainer.model.terms import PayloadSettings, Unkeyed
from drainer.policy.redrive import LeftAlone
from drainer.split.keys import Key
from drainer.split.splitting import split_up, way_out
from drainer.text.escape import shorten
from drainer.text.mask import masking, short_key

# About this many messages are read, spread over the backlog. What selects 3% of them is missed once
# in 2,000 times.
MESSAGES = 250
# Reading ends after this size or time, and splitting after this time, even if it is not done.
READ_BYTES, READ_S, SPLIT_S = 16 * 1024 * 1024, 3.0, 2.0
SUBS_MOST = 50  # Expressions are tried on this many sub-messages of a message.
EXAMPLES, KEYS_SHOWN, FIELDS_SHOWN = 3, 2, 8
WIDTH = 60  # An expression is cut to this many characters.
_PAYLOAD_PATH = re.compile(r"\bpayload\.(\w+(?:\.\w+)*)")
_RARE = "it is rare or misspelt"
_RARE_AMONG_FEW = f"{_RARE}; `drainer estimate` tries it on more messages"
_ON_PURPOSE = "To give up what split rejects, add --tune on-split-failure=dead-letter."


# Examples and warnings, as sentences, and whether what was seen is so unlikely that only --yes
# confirms it.
Look = tuple[tuple[str, ...], tuple[str, ...], bool]
NOTHING_SEEN: Look = (), (), False


def sampled(cluster: Cluster, plan: OffsetPlan) -> list[Message]:
    """Read a few messages of a plan's backlog, in turn from each partition.

    The result is empty for a redrive, because its topic has letters instead of messages.
    """
    terms, account = plan.terms, plan.account
    if terms.redrive is not None:
        return []
    ranges = {n: (account.watermark(n), part.end) for n, part in account.partitions.items()}
    found = sample_ranges(
        *(cluster.settings, terms.topic, terms.topic_id, ranges, MESSAGES),
        most_bytes=READ_BYTES,
        most_s=READ_S,
    )
    of_each = [list(each) for _, each in groupby(found.messages, attrgetter("partition"))]
    return [each for each in chain.from_iterable(zip_longest(*of_each)) if each is not None]


def look(handler: LoadedHandler, plan: OffsetPlan, messages: Callable[[], list[Message]]) -> Look:
    """Split some messages, and try the expressions of the drain on what comes out.

    Raises Refused if ``split`` rejects all of these messages, or if none of what comes out has a
    key of ``--key``. That is only a warning if the reason may be that ``open`` was not called, or
    if a setting says what to do with such messages.
    """
    if plan.terms.redrive is not None or plan.account.complete:
        return NOTHING_SEEN
    try:
        found = messages()
    except DrainerError as error:
        return (), (f"drainer could not read messages to try split on: {error}",), False
    examples, rejected = list[str](), list[tuple[Message, SplitFailed]]()
    terms = plan.terms
    tried = OptionsTried(
        plan.account.classes, terms.failures, terms.payloads, unseen=_RARE_AMONG_FEW
    )
    until_s, any_right = monotonic() + SPLIT_S, False
    for message in found:
        try:
            parts = split_up(handler.split, message)
            identify(message, parts)
        except SplitFailed as error:
            rejected.append((message, error))
            made = "split rejects it"
        else:
            if any(isinstance(sub, LeftAlone) for sub in parts):
                continue  # Its time is outside of the range to drain.
            any_right |= message.value is not None
            tried.add(parts[:SUBS_MOST])
            made = _made(parts)
        examples.append(f"{message.partition}:{message.offset} → {made}")
        if monotonic() > until_s:
            break
    if not examples:
        return ("none: drainer read no message of the backlog",), (), False
    warnings, many = [*tried.unmatched()], counted(len(examples), "message")
    # Tombstones say nothing about a split that works for them, unless there is little else.
    if rejected and not any_right and 2 * len(rejected) >= len(examples):
        many = counted(len(rejected), "message")
        unlikely = [_ensure_meant(handler, plan, many, *rejected[0])]
    else:
        if rejected:
            some = f"{len(rejected):,} of {many}"
            warnings.append(f"split rejects {some} that drainer tried; {rejected[0][1]}")
        unlikely = [*tried.keys_missing()]
        if not tried.sub_messages:
            unlikely.append(f"split makes nothing of {many}: they are done without a call")
    return tuple(examples[:EXAMPLES]), (*warnings, *unlikely), bool(unlikely)


def _ensure_meant(
    handler: LoadedHandler, plan: OffsetPlan, many: str, message: Message, error: SplitFailed
) -> str:
    """Return a warning that all messages are rejected. Raises Refused if that is not meant."""
    path = plan.terms.payloads.split
    text = f"{'split' if path is None else f'--split {path}'} takes none of {many} apart; {error}"
    if path is None and handler.has_open:
        return f"{text}. drainer has not called open() yet, which may be why"
    if plan.terms.failures.on_split_failure is not None:
        return text
    hint = way_out(str(error))
    near = None if path is None else _nearest(path, message.meaning)
    if near is not None and hint.endswith(f"--split {path}"):
        hint = f"Write --split {near}"
    fields = _names(message.meaning)
    has = f": the message has the fields {fields}" if fields else ""
    raise Refused(text, hint=f"{hint}{has}. {_ON_PURPOSE}")


class OptionsTried:
    """Options that select or order sub-messages, tried on the sub-messages of some messages.

    Each expression is tried only until it matches. ``unseen`` ends the warning on one that matches
    nothing.

    Attributes:
        sub_messages: how many they were tried on.
    """

    def __init__(
        self,
        classes: PriorityClasses,
        failures: FailureSettings,
        payloads: PayloadSettings,
        unseen: str = _RARE,
    ) -> None:
        self._payloads, self._unseen = payloads, unseen
        first = "--only" if classes.only else "--first"
        expressions = [*((first, each.where) for each in classes.each), *failures.expressions]
        if payloads.barrier is not None:
            expressions.append(("--barrier", payloads.barrier))
        self._unmatched = [_Unmatched(option, text) for option, text in expressions]
        self._absent = [(text, Key(text)) for text in payloads.keys]
        self._example: SubMessage | None = None  # It should have a key.
        self.sub_messages = self._laned = 0

    def add(self, subs: Sequence[SubMessage]) -> None:
        """Try the options on the sub-messages of a message."""
        self.sub_messages += len(subs)
        if self._unmatched:
            self._unmatched = [each for each in self._unmatched if not each.matches(subs)]
        if not self._absent:
            return
        laned = [sub for sub in subs if not isinstance(sub, Barrier) and sub.content is not None]
        self._laned += len(laned)
        self._example = self._example or next(iter(laned), None)
        self._absent = [each for each in self._absent if not any(map(each[1].is_in, laned))]

    def unmatched(self) -> Iterator[str]:
        """Yield a warning for each expression that matches none of the sub-messages."""
        for each in self._unmatched if self.sub_messages else ():
            tried = counted(self.sub_messages, "sub-message")
            wanted = f"{each.option} {shorten(each.text, WIDTH)}"
            why = each.why or self._unseen
            yield f"{wanted} matches none of {tried} that drainer tried: {why}"

    def keys_missing(self) -> Iterator[str]:
        """Yield a warning for each key that none of the sub-messages has.

        Raises Refused if none of them has any key: they would be handled in any order.
        """
        example, keys = self._example, self._payloads.keys
        if example is None:
            return
        absent, tried = [text for text, _ in self._absent], counted(self._laned, "sub-message")

        def none_has(*keys: str) -> str:
            return f"none of {tried} has the key {', '.join(keys)}{_meant(' '.join(keys), example)}"

        if absent and absent == [*keys] and self._payloads.unkeyed is Unkeyed.OWN_LANE:
            hint = "Correct --key. To keep the order of what has no key, add --unkeyed one-lane."
            raise Refused(none_has(*absent), hint=hint)
        yield from map(none_has, absent)


class _Unmatched:
    """An expression that has matched no sub-message so far, with the option that gives it."""

    def __init__(self, option: str, text: str) -> None:
        self.option, self.text = option, text
        self._predicate = Predicate(text)
        self._last: tuple[Undecided, SubMessage] | None = None

    @property
    def why(self) -> str:
        """Why it could not decide on the last such sub-message; empty if it always could."""
        if self._last is None:
            return ""
        reason, sub = self._last
        return f"{reason}{_meant(self.text, sub) if 'payload' in self.text else ''}"

    def matches(self, subs: Sequence[SubMessage]) -> bool:
        """Return whether it matches one of the sub-messages; ``--barrier``, if one is a barrier."""
        for sub in subs:
            try:
                if self._predicate.matches(sub):
                    return True
            except Undecided as reason:
                self._last = reason, sub
        return self.option == "--barrier" and any(isinstance(sub, Barrier) for sub in subs)


def _meant(text: str, sub: SubMessage) -> str:
    """Return the paths that an expression may mean, or the fields that there are."""
    meant = (_meant_by(path, sub) for path in dict.fromkeys(_PAYLOAD_PATH.findall(text)))
    if found := [*filter(None, meant)]:
        return f"; did you mean {listed(found)}?"
    fields = _names(sub.content)
    return f"; the payload has the fields {fields}" if fields else ""


def _meant_by(path: str, sub: SubMessage) -> str | None:
    """Return what a path in the payload may mean: one that the message has, or one like it."""
    if _has(sub.content, path):
        return None
    with suppress(Exception):  # What a message holds may be anything, too.
        message = Facts(sub)["message"]
        for each in (f"value.{path}", path):
            if _has(message, each):
                return f"message.{each}"
    near = _nearest(path, sub.content)
    return near and f"payload.{near}"


def _has(content: Any, path: str) -> bool:
    for name in path.split("."):
        fields = _fields(content)
        if name not in fields:
            return False
        content = fields[name]
    return True


def _made(subs: Sequence[SubMessage]) -> str:
    """Return what came out of a message: ``12 sub-messages: 'd-17', 'd-18', …``."""
    names = [_name(sub) for sub in subs[:KEYS_SHOWN]]
    if len(subs) < 2:
        return names[0] if names else "nothing"
    if not any(isinstance(sub, Barrier) or {*keys_of(sub)} != {None} for sub in subs):
        return f"{counted(len(subs), 'sub-message')}, none has a key"
    more = ", …" if len(subs) > KEYS_SHOWN else ""
    return f"{counted(len(subs), 'sub-message')}: {', '.join(names)}{more}"


def _name(sub: SubMessage) -> str:
    if isinstance(sub, Barrier):
        return "barrier"
    return " + ".join("no key" if key is None else short_key(key) for key in keys_of(sub))


def _fields(content: Any) -> dict[str, Any]:
    """Return the fields of a content; none if their names may be personal data."""
    with suppress(Exception):  # It may be anything, such as bytes that are not JSON.
        if not masking() and isinstance(found := shown(content), View):
            return {str(name): each for name, each in found.fields.items()}
    return {}


def _names(content: Any) -> str:
    return listed([shorten(name, WIDTH) for name in _fields(content)], FIELDS_SHOWN)


def _nearest(path: str, content: Any) -> str | None:
    """Return the path that a person probably meant; None if the path exists, or none is close."""
    *above, name = path.split(".")
    for each in above:
        content = _fields(content).get(each)
    fields = _fields(content)
    near = get_close_matches(name, fields, 1)
    return ".".join([*above, *near]) if near and name not in fields else None
