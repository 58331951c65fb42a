"""How the work of a backlog is spread: over messages, over sub-keys, over kinds of operation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from zlib import crc32

from drainer.core.identity import identify
from drainer.insight.statistics.kind import kinds_of
from drainer.insight.statistics.sketch import Distinct, Heavy, Mean, Quantiles, Share, ratio
from drainer.message import Barrier, Message, SubMessage

SHOWN = 10
LONGEST_KEY = 256  # characters of a sub-key's repr; both ends of a longer one are kept
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

Rule = Callable[[SubMessage], str | None]  # the name of the rule that would leave it out


@dataclass(frozen=True, slots=True)
class FanOut:
    """How many sub-messages a message splits into."""

    mean: Mean
    p50: int
    p99: int
    most: int

    def as_json(self) -> dict[str, Any]:
        return {"mean": self.mean.as_json(), "p50": self.p50, "p99": self.p99, "max": self.most}


@dataclass(frozen=True, slots=True)
class Skew:
    """How the sub-messages of what was read are spread. Shares are of all sub-messages.

    A sub-message with several sub-keys counts for each of them, so those shares may add up to more
    than 1.

    Attributes:
        messages: how many were split.
        sub_messages: what they split into, barriers included.
        barriers: how many of those run alone.
        empty: messages that split into nothing.
        fan_out: sub-messages per message.
        sub_keys: how many different ones came in what was read.
        hottest: the sub-keys with the most sub-messages, by Python's repr; the hottest first.
        curve: (n, share): what the n hottest sub-keys have together, at least.
        kinds: of operations, the most frequent first.
        rules: what each rule would leave out.
    """

    messages: int
    sub_messages: int
    barriers: int
    empty: int
    fan_out: FanOut
    sub_keys: Distinct
    hottest: tuple[Share, ...]
    curve: tuple[tuple[int, float], ...]
    kinds: tuple[Share, ...]
    rules: tuple[Share, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "sub_messages": self.sub_messages,
            "barriers": self.barriers,
            "empty": self.empty,
            "fan_out": self.fan_out.as_json(),
            "sub_keys": self.sub_keys.as_json(),
            "hottest": [share.as_json() for share in self.hottest],
            "curve": [{"sub_keys": count, "share": share} for count, share in self.curve],
            "kinds": [share.as_json() for share in self.kinds],
            "rules": [share.as_json() for share in self.rules],
        }


class SplitTotals:
    """What can be summed up of what messages split into; several of them make one."""

    def __init__(self) -> None:
        self.messages = self.sub_messages = 0
        self.barriers = self.empty = 0
        self._fan_outs = Quantiles()

    def take(self, message: Message, subs: Sequence[SubMessage]) -> Sequence[Hashable]:
        """The sub-keys that count, each as often as it came.

        Raises SplitFailed, and takes nothing of it, where a drain would halt at it.
        """
        keys: Sequence[Hashable] = identify(message, subs)
        if [sub for sub in subs if sub.keys is not None or type(sub) is not SubMessage]:
            self.barriers += sum(isinstance(sub, Barrier) for sub in subs)
            laned = [sub for sub in subs if not isinstance(sub, Barrier)]
            of_each = [(sub.key,) if sub.keys is None else sub.keys for sub in laned]
            keys = list(chain.from_iterable(of_each))
        self._fan_outs.add(len(subs))
        self.empty += not subs
        self.messages += 1
        self.sub_messages += len(subs)
        return keys

    def merge(self, other: SplitTotals) -> None:
        """Those of the other are in these from now on."""
        self.messages += other.messages
        self.sub_messages += other.sub_messages
        self.barriers += other.barriers
        self.empty += other.empty
        self._fan_outs.merge(other._fan_outs)

    def fan_out(self, mean: Mean) -> FanOut:
        """How many sub-messages a message has; ``mean`` knows how far it may be off."""
        fan_outs = self._fan_outs
        if fan_outs.empty:
            return FanOut(mean, 0, 0, 0)
        middle, high = fan_outs.quantile(0.5), fan_outs.quantile(0.99)
        return FanOut(mean, round(middle), round(high), round(fan_outs.most))


class SkewMeter:
    """Takes messages with what they split into; gives a ``Skew`` of them.

    Memory is bounded, whatever the count of distinct sub-keys. Messages come in clusters, the
    windows of a sample: end each of them, the last one too.
    """

    def __init__(self, rule: Rule | None = None) -> None:
        self._rule = rule
        self._keys = Heavy(key_text)
        self._kinds = Heavy(str)
        self._rules = Heavy(str)
        self._totals = SplitTotals()
        self._messages: list[int] = []  # by cluster
        self._subs: list[int] = []
        self._before = (0, 0)  # messages and sub-messages of the clusters that have ended

    def take(self, message: Message, subs: Sequence[SubMessage]) -> None:
        """Raises SplitFailed, and takes nothing of it, where a drain would halt at it."""
        self._keys.add(self._totals.take(message, subs))
        self._kinds.add(kinds_of(message, subs))
        if self._rule is not None:
            self._rules.add(filter(None, map(self._rule, subs)))

    def end_cluster(self) -> None:
        """What comes from now on is of another window."""
        for heavy in (self._keys, self._kinds, self._rules):
            heavy.end_cluster()
        messages, subs = self._before
        totals = self._totals
        self._messages.append(totals.messages - messages)
        self._subs.append(totals.sub_messages - subs)
        self._before = (totals.messages, totals.sub_messages)

    def skew(self, fraction: float) -> Skew:
        """The spread, when ``fraction`` (0 to 1) of the backlog was taken."""
        totals = self._totals
        return skew_of(
            totals,
            totals.fan_out(Mean(*ratio(self._subs, self._messages, fraction))),
            sub_keys=self._keys.distinct,
            hottest=self._keys.most(SHOWN, self._subs, fraction),
            curve=self._keys.curve(STEPS, totals.sub_messages),
            kinds=self._kinds.most(SHOWN, self._subs, fraction),
            rules=self._rules.most(SHOWN, self._subs, fraction),
        )


def skew_of(
    totals: SplitTotals,
    fan_out: FanOut,
    *,
    sub_keys: Distinct,
    hottest: tuple[Share, ...],
    curve: tuple[tuple[int, float], ...],
    kinds: tuple[Share, ...],
    rules: tuple[Share, ...],
) -> Skew:
    """The skew that has these totals, and what was counted beside them."""
    return Skew(
        messages=totals.messages,
        sub_messages=totals.sub_messages,
        barriers=totals.barriers,
        empty=totals.empty,
        fan_out=fan_out,
        sub_keys=sub_keys,
        hottest=hottest,
        curve=curve,
        kinds=kinds,
        rules=rules,
    )


def key_text(key: Hashable) -> str:
    """A sub-key's repr, by which it is counted; a very long one loses its middle."""
    try:
        text = repr(key)
    except Exception:  # it may be the user's own code
        text = f"<{type(key).__name__}>"
    if len(text) <= LONGEST_KEY:
        return text
    mark = crc32(text.encode("utf-8", "backslashreplace"))
    return f"{text[: LONGEST_KEY // 2]}…{mark:08x}…{text[-LONGEST_KEY // 4 :]}"
