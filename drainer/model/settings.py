"""The settings of one run, and the settings of failures, which the plan keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import partial
from random import Random
from typing import Any

from drainer.errors import UsageError, WrongValue
from drainer.host.memory import memory_limit
from drainer.model.codec import AsText, JsonRecord, Whole
from drainer.model.deadline import DEADLINE
from drainer.model.listed import round_duration
from drainer.model.option import (
    CONCURRENCY,
    DURATION,
    LAG,
    PAIRS,
    RATE,
    REASON,
    SIZE,
    Concurrency,
    Lag,
    OrText,
    ValueType,
    number,
    option,
    parse_texts,
)
from drainer.model.predicate import EXPRESSIONS

JITTER = 0.5  # A delay is drawn between this share of itself and the whole.
SHARE_JUDGED_FROM = 1_000  # A share of fewer sub-messages proves nothing.


class OnFailure(Enum):
    """What becomes of a sub-message whose retries are spent. ``does`` describes it in words."""

    HALT = "halt", "halt the drain"
    DEAD_LETTER = "dead-letter", "dead letter"
    PARK = "park", "park its lane, and drain the others"
    SKIP = "skip", "skip the sub-message"

    does: str

    def __new__(cls, value: str, does: str) -> OnFailure:
        """Make a member whose ``value`` is the word that options and plans have."""
        member = object.__new__(cls)
        member._value_ = value
        member.does = does
        return member


_NAMES = [each.value for each in OnFailure]
_ACTIONS = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"


class AfterDead(Enum):
    """What becomes of the sub-messages that are behind a dead letter in its lane."""

    CONTINUE = "continue"
    PARK = "park"


class Limit(AsText):
    """The most that may be given up: a count, a share of what finished, or no limit."""

    __slots__ = ("count", "share")

    def __init__(self, count: int | None = None, share: float | None = None) -> None:
        self.count = count
        self.share = share

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse ``100``, ``1%`` or ``none``. Raises ValueError."""
        word = text.strip().lower()
        if word == "none":
            return cls()
        if word.endswith("%"):
            share = float(word[:-1]) / 100
            if not 0 <= share <= 1:
                raise ValueError(f"{text!r} is not a share")
            return cls(share=share)
        count = int(word)
        if count < 0:
            raise ValueError(f"{text!r} is below zero")
        return cls(count=count)

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.share * 100:.15g}%"
        return "none" if self.count is None else str(self.count)

    def passed(self, given_up: int, finished: int) -> bool:
        """Return whether too many of the finished sub-messages were given up."""
        if self.count is not None:
            return given_up > self.count
        return (
            self.share is not None
            and (finished >= SHARE_JUDGED_FROM or not self.share)
            and given_up > self.share * finished
        )


def parse_limit(text: str) -> Limit:
    """Parse ``100``, ``1%`` or ``none``. Raises UsageError."""
    try:
        return Limit.parse(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a count or a share", hint="Give one, such as 100, 1% or none."
        ) from None


_HALF = Limit(share=0.5)
_kept = partial(option, panel="Failures", live=True)
_rare = partial(_kept, tune=True)


@dataclass(frozen=True, slots=True)
class FailureSettings(JsonRecord):
    """Settings of failures and of what is not handled. The plan keeps them for a resume.

    Attributes:
        retries: how many attempts follow the first.
        retry_delay_s, retry_max_delay_s: the delay before the second attempt, which doubles each
            time, and its maximum.
        timeout_s: the time limit for an attempt; 0 for none.
        skip: expressions. A sub-message that one of them is true of is skipped without a call.
        divert: expressions. A sub-message that one of them is true of becomes a dead letter without
            a call.
        max_outage_s: how long the circuit breaker waits for the downstream.
        max_doubt_s: how long a failing sub-message is tried again because the downstream may be the
            cause, while no other lane has work that would show it.
        rate: how many sub-messages may start per second.
    """

    retries: OrText[Whole] = _kept("Number of attempts after the first one.", 3, number(0))
    retry_delay_s: OrText[float] = _rare(
        "Delay before the second attempt. It doubles for each further one.", 0.2, DURATION
    )
    retry_max_delay_s: OrText[float] = _rare("Maximum delay between attempts.", 30.0, DURATION)
    timeout_s: OrText[float] = _rare("Time limit per attempt. 0 means no limit.", 30.0, DURATION)
    on_failure: OrText[OnFailure] = _kept(
        f"When all retries failed: {_ACTIONS}.", OnFailure.HALT, metavar="ACTION", basic=True
    )
    # None stands for ``on_failure``.
    on_split_failure: OrText[OnFailure | None] = _rare(
        f"When split rejects a message: {_ACTIONS}.", None, unset="--on-failure", metavar="ACTION"
    )
    after_dead: OrText[AfterDead] = _rare(
        "After a dead letter, continue or park its lane.", AfterDead.CONTINUE, metavar="ACTION"
    )
    dead_letter_topic: str | None = _rare(
        "Dead-letter topic. If it is missing, drainer creates it.",
        None,
        unset="TOPIC.GROUP.dead",
        metavar="TOPIC",
        proposes="topic",
    )
    divert: OrText[tuple[str, ...]] = _kept(
        "Write matching sub-messages to the dead-letter topic, without a call. Repeatable."
        " On resume, none removes the plan's.",
        (),
        EXPRESSIONS,
        metavar="EXPR",
        live=False,
        envvar=None,
    )
    skip: OrText[tuple[str, ...]] = _kept(
        "Skip matching sub-messages, such as \"payload.kind == 'mail'\". Repeatable."
        " On resume, none removes the plan's.",
        (),
        EXPRESSIONS,
        live=False,
        risk="it leaves sub-messages out",
        panel="Skip rules",
    )
    max_failures: OrText[Limit] = _kept(
        "Halt when more than this many sub-messages are given up, over all runs.",
        _HALF,
        ValueType("N|N%|none", parse_limit),
    )
    breaker: OrText[bool] = _rare("During a downstream outage, wait instead of giving up.", True)
    max_outage_s: OrText[float] = _rare(
        "Halt when an outage lasts longer than this.", 3600.0, DURATION
    )
    max_doubt_s: OrText[float] = _rare(
        "How long to treat one failing lane as an outage.", 60.0, DURATION
    )
    rate: OrText[float | None] = _kept(
        "Maximum number of sub-messages that start per second, including retries.",
        None,
        RATE,
        unset="none",
        basic=True,
    )

    def __post_init__(self) -> None:
        parse_texts(self)
        delays = (self.retry_delay_s, self.retry_max_delay_s)
        waits = (self.timeout_s, self.max_outage_s, self.max_doubt_s)
        if min(self.retries, *delays, *waits) < 0:
            raise WrongValue(
                "a number of retries or a duration is below zero", hint="Give 0 or more."
            )
        if self.rate is not None and self.rate <= 0:
            raise WrongValue(
                f"with the rate {self.rate} nothing would ever start",
                hint='Give more than 0, or a text such as "300/m".',
            )

    def changed(self, given: Mapping[str, Any]) -> FailureSettings:
        """Return these settings with those that were given, by field.

        A dead-letter topic implies that failures become dead letters, unless only messages that
        ``split`` rejects or rules select are to become dead letters. Raises UsageError if the
        settings contradict each other.
        """
        given = dict(given)
        of_split = given.get("on_split_failure", self.on_split_failure)
        has_letters = of_split is OnFailure.DEAD_LETTER or given.get("divert", self.divert)
        if given.get("dead_letter_topic") and not has_letters:
            action = given.setdefault("on_failure", OnFailure.DEAD_LETTER)
            if action is not OnFailure.DEAD_LETTER:
                raise UsageError(
                    f"--tune dead-letter-topic has no effect with --on-failure {action.value}",
                    hint="Remove one of them.",
                )
        return replace(self, **given)

    @property
    def halts_when(self) -> tuple[str, ...]:
        """The conditions in words under which a drain halts, though no single failure halts it."""
        found = []
        most, gives_up = str(self.max_failures), {self.on_failure, self.on_unsplit}
        if gives_up != {OnFailure.HALT} and most != "none":
            found.append(f"when more than {most} are given up")
        if self.breaker:
            found.append(f"after an outage of {round_duration(self.max_outage_s)}")
        return tuple(found)

    @property
    def expressions(self) -> Iterator[tuple[str, str]]:
        """All expressions, each with the name of its option."""
        for name, texts in (("--skip", self.skip), ("--divert", self.divert)):
            yield from ((name, text) for text in texts)

    @property
    def on_unsplit(self) -> OnFailure:
        """What becomes of a message that ``split`` rejects."""
        return self.on_split_failure or self.on_failure

    @property
    def stops_unsplit(self) -> bool:
        """Whether a message that ``split`` rejects stops its partition."""
        dead = self.on_unsplit is OnFailure.DEAD_LETTER
        return self.on_unsplit is OnFailure.PARK or (dead and self.stops_behind_dead)

    @property
    def stops_behind_dead(self) -> bool:
        """Whether a dead letter stops its lane."""
        return self.after_dead is AfterDead.PARK

    @property
    def writes_letters(self) -> bool:
        return bool(self.divert) or OnFailure.DEAD_LETTER in (self.on_failure, self.on_unsplit)

    @property
    def letters_topic(self) -> str | None:
        """The topic of dead letters; None if the drain writes no dead letters."""
        return self.dead_letter_topic if self.writes_letters else None

    def delay_s(self, failures: int, random: Random | None = None) -> float:
        """Return the seconds to wait after a failure.

        ``failures`` is its number, from 1 on. The delay grows exponentially, and has random jitter.
        """
        whole: float = min(self.retry_max_delay_s, self.retry_delay_s * 2 ** min(failures - 1, 60))
        return whole if random is None else whole * random.uniform(JITTER, 1)


DEFAULT_FAILURES = FailureSettings()


PLAN_INTERVAL_S = 1.0
JOURNAL_INTERVAL_S = 0.05

_BUFFER_MOST = 256 * 1024 * 1024
# The rest of a container's memory is for Python, the Kafka client and the handler.
_BUFFER_BYTES = min(_BUFFER_MOST, (memory_limit() or 4 * _BUFFER_MOST) // 4)

_drain = partial(option, panel="Drain", resumes=True)
# The settings of a run whose topic has producers and consumers that go on.
BESIDE_OTHERS = ("follow", "until_lag", "wait_for_group_s", "hand_over_s")


@dataclass(frozen=True, slots=True)
class LocalSettings(JsonRecord):
    """Settings of one run.

    None of them changes what is drained, but for ``follow`` and ``until_lag``: they let the backlog
    grow with its log.
    """

    concurrency: OrText[int | Concurrency] = _drain(
        "Maximum number of calls in flight. With auto, drainer finds it.",
        100,
        CONCURRENCY,
        short="-c",
        basic=True,
        live=True,
    )
    buffer_bytes: OrText[int] = _drain(
        "Memory for messages that are read but not done.",
        _BUFFER_BYTES,
        SIZE,
        tune=True,
        unset="256MiB, or a quarter of the memory that cgroups allow if that is less",
    )
    grace_s: OrText[float] = _drain(
        "Time that the first Ctrl-C waits for calls in flight.",
        10.0,
        DURATION,
        live=True,
        tune=True,
    )
    wait_for_group_s: OrText[float] = _drain(
        "Wait up to this time for the group's members to leave, also if some join meanwhile.",
        0.0,
        DURATION,
        live=True,
    )
    hand_over_s: OrText[float] = _drain(
        "At the end, wait up to this time for consumers to take over; exit code 7 if they don't.",
        0.0,
        DURATION,
        live=True,
    )
    # The seconds between two writes of the plan. A commit follows each of them.
    plan_interval_s: float = PLAN_INTERVAL_S
    # The seconds between two records of the journal.
    journal_interval_s: float = JOURNAL_INTERVAL_S
    options: OrText[Mapping[str, str] | None] = _drain(
        "Handler option; repeatable. The plan keeps those of built-in handlers.",
        None,
        PAIRS,
        name="--set",
        pairs=True,
    )
    deadline: OrText[datetime | None] = option(
        "Time to finish by; drainer warns when the drain will miss it.",
        None,
        DEADLINE,
        panel="Estimate",
        resumes=True,
        live=True,
    )
    follow: OrText[bool] = _drain(
        "Drain what is added to the topic meanwhile, too, and go on until you stop it.", False
    )
    until_lag: OrText[Lag | None] = _drain(
        "Follow the topic until the group is only this far behind, then drain that and end.",
        None,
        LAG,
        unset="none; with --follow, the drain goes on until you stop it",
        live=True,
    )
    reason: str | None = option(
        "Reason for this, kept in the plan's history.", None, REASON, envvar=None, panel="Output"
    )

    @property
    def follows(self) -> bool:
        """Whether the end of the backlog moves with the log."""
        return self.follow or self.until_lag is not None

    def __post_init__(self) -> None:
        parse_texts(self)
        if Concurrency.of(self.concurrency).most < 1:
            raise WrongValue(
                f"with the concurrency {self.concurrency} nothing would ever start",
                hint='Give 1 or more, or "auto".',
            )
        if min(self.buffer_bytes, self.grace_s, self.wait_for_group_s, self.hand_over_s) < 0:
            raise WrongValue("a buffer or a duration is below zero", hint="Give 0 or more.")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise WrongValue(
                f"the deadline {self.deadline} has no time zone",
                hint='Give it one, such as by astimezone(), or a text such as "08:00" or "6h".',
            )
        if self.plan_interval_s <= 0:
            raise WrongValue(
                f"a plan can't be written every {self.plan_interval_s:g} s",
                hint="Give more than 0 seconds.",
            )
