"""What becomes of a sub-message whose attempt failed: the user's settings, and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from random import Random
from typing import Any

from drainer.core import fields
from drainer.core.failing.breaker import Breaker
from drainer.message import SubMessage

JITTER = 0.5  # a delay is drawn between this share of itself and the whole
SHARE_JUDGED_FROM = 1_000  # sub-messages; a share of fewer says nothing


class OnFailure(Enum):
    """What to do with a sub-message whose retries are spent."""

    HALT = "halt"
    DEAD_LETTER = "dead-letter"
    PARK = "park"
    SKIP = "skip"


class AfterDead(Enum):
    """What to do with the sub-messages behind a dead letter on its lane."""

    CONTINUE = "continue"
    PARK = "park"


@dataclass(frozen=True, slots=True)
class Limit:
    """How many may be given up: a count, or a share of what finished. Neither is no limit."""

    count: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """``100``, ``1%`` or ``none``. Raises ValueError."""
        word = text.strip().lower()
        if word == "none":
            return cls()
        if word.endswith("%"):
            share = float(word[:-1]) / 100
            if not 0 <= share <= 1:
                raise ValueError(f"{text!r} is no share")
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
        """Whether this many of so many finished sub-messages are too many."""
        if self.count is not None:
            return given_up > self.count
        return (
            self.share is not None
            and (finished >= SHARE_JUDGED_FROM or not self.share)
            and given_up > self.share * finished
        )


@dataclass(frozen=True, slots=True)
class FailureSettings:
    """How a drain meets failures; the plan keeps it, so that a resume goes on in the same way.

    ``retries`` counts attempts after the first. Delays double from ``retry_delay_s`` up to
    ``retry_max_delay_s``. A ``timeout_s`` of 0 is none. ``max_consecutive`` sub-messages given up
    with nothing done between them halt the drain. ``max_outage_s`` is how long the circuit breaker
    waits for the downstream. ``rate`` is in sub-messages started per second.
    """

    retries: int = 0
    retry_delay_s: float = 0.2
    retry_max_delay_s: float = 30.0
    timeout_s: float = 30.0
    on_failure: OnFailure = OnFailure.HALT
    after_dead: AfterDead = AfterDead.CONTINUE
    dead_letter_topic: str | None = None
    max_dead: Limit = Limit(share=0.5)
    max_consecutive: int | None = None
    breaker: bool = True
    max_outage_s: float = 3600.0
    rate: float | None = None

    def __post_init__(self) -> None:
        durations = (self.retry_delay_s, self.retry_max_delay_s, self.timeout_s, self.max_outage_s)
        if min(self.retries, *durations) < 0:
            raise ValueError("a number of retries or a duration is below zero")
        if self.max_consecutive is not None and self.max_consecutive < 1:
            raise ValueError("max_consecutive is below one")
        if self.rate is not None and self.rate <= 0:
            raise ValueError("with this rate nothing would ever start")

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "on_failure": self.on_failure.value,
            "after_dead": self.after_dead.value,
            "max_dead": str(self.max_dead),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FailureSettings:
        """Raises KeyError, TypeError or ValueError when the body is not what was written."""
        return cls(
            retries=fields.whole(body["retries"]),
            retry_delay_s=fields.number_of(body["retry_delay_s"]),
            retry_max_delay_s=fields.number_of(body["retry_max_delay_s"]),
            timeout_s=fields.number_of(body["timeout_s"]),
            on_failure=OnFailure(body["on_failure"]),
            after_dead=AfterDead(body["after_dead"]),
            dead_letter_topic=fields.optional(fields.text, body["dead_letter_topic"]),
            max_dead=Limit.parse(fields.text(body["max_dead"])),
            max_consecutive=fields.optional(fields.whole, body["max_consecutive"]),
            breaker=fields.yes_or_no(body["breaker"]),
            max_outage_s=fields.number_of(body["max_outage_s"]),
            rate=fields.optional(fields.number_of, body["rate"]),
        )

    def delay_s(self, failures: int, random: Random) -> float:
        """How long to wait after so many failures (from 1): exponential, with jitter."""
        whole: float = min(self.retry_max_delay_s, self.retry_delay_s * 2 ** min(failures - 1, 60))
        return whole * random.uniform(JITTER, 1)


class Fate(Enum):
    """What becomes of a sub-message after a failed attempt."""

    RETRY = "retry"
    DEAD = "dead"
    PARKED = "parked"
    SKIPPED = "skipped"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``at_s`` is when to try again, by the clock that was given; ``why`` tells a halt's reason."""

    fate: Fate
    at_s: float = 0.0
    why: str | None = None


_FATES = {
    OnFailure.DEAD_LETTER: Fate.DEAD,
    OnFailure.PARK: Fate.PARKED,
    OnFailure.SKIP: Fate.SKIPPED,
    OnFailure.HALT: Fate.HALT,
}


class FailurePolicy:
    """Decides after each failed attempt, and keeps count of what was given up.

    ``done`` is how many sub-messages this run has done so far: whoever succeeds need not report it.
    """

    def __init__(self, settings: FailureSettings, breaker: Breaker, random: Random) -> None:
        self.settings = settings
        self.breaker = breaker
        self.retries = 0
        self.given_up = 0
        self._consecutive = 0
        self._done_at_last = -1
        self._random = random

    def later(self, now_s: float, after_s: float | None, sub: SubMessage) -> Verdict:
        """For a handler that asks to be called again: it is no failure, and spends no retry."""
        self.retries += 1
        self.breaker.undecided(sub, now_s)
        wait_s = self.settings.delay_s(sub.attempt, self._random) if after_s is None else after_s
        return Verdict(Fate.RETRY, now_s + max(0.0, wait_s))

    def failed(self, sub: SubMessage, done: int, now_s: float, *, looked: bool = False) -> Verdict:
        """For an attempt that failed, or took too long.

        ``looked`` says that ``look_for_outage`` has heard of this attempt, when it was overdue.
        """
        settings = self.settings
        why = None if looked else self.look_for_outage(sub, done, now_s)
        if why is not None:
            return Verdict(Fate.HALT, why=why)
        failures = getattr(sub, "failures", 0) + 1
        if not self.breaker.open:
            # While the downstream is away, no sub-message is given up for that, nor loses a retry.
            sub.failures = failures
        if self.breaker.open or failures <= settings.retries:
            self.retries += 1
            return Verdict(Fate.RETRY, now_s + settings.delay_s(failures, self._random))
        return Verdict(_FATES[settings.on_failure])

    def look_for_outage(self, sub: SubMessage, done: int, now_s: float) -> str | None:
        """Tells the breaker of a failed attempt; the reason to halt rather than to wait."""
        if self.settings.breaker and self.breaker.failed(sub, done, now_s) and not done:
            return (
                "nothing has succeeded yet in this run: the handler or its downstream is broken,"
                " and not one message"
            )
        return None

    def gave_up(self, done: int, finished: int) -> str | None:
        """Counts one that was given up; the reason to halt when those are too many."""
        self.given_up += 1
        self._consecutive = self._consecutive + 1 if done == self._done_at_last else 1
        self._done_at_last = done
        settings = self.settings
        if settings.max_dead.passed(self.given_up, finished):
            return f"{self.given_up:,} sub-messages were given up, more than {settings.max_dead}"
        most = settings.max_consecutive
        if most is not None and self._consecutive >= most:
            return f"{self._consecutive:,} sub-messages in a row were given up, with none done"
        return None
