"""What becomes of a sub-message whose attempt failed: the user's settings, and the decision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random

from drainer.core.codec import JsonRecord, Whole
from drainer.core.progress import Counts
from drainer.message import SubMessage
from drainer.policy.breaker import Breaker, Streak

JITTER = 0.5  # a delay is drawn between this share of itself and the whole
SHARE_JUDGED_FROM = 1_000  # sub-messages; a share of fewer says nothing

# How likely it is by chance that so many sub-messages fail for good, one after the other.
DOUBTFUL = 0.01  # below this it may be the downstream
CERTAIN = 1e-5  # below this it is
EXPECTED = 0.01  # of one sub-message, when nothing is known yet
SHARE_LEAST = 0.001  # of bad ones; nobody knows that there are fewer
CERTAIN_S = 5.0  # of failures alone that are certain to be the downstream's
OUTLIVED = 2  # failed attempts after each of which others succeeded: then it is no outage's fault


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


class Limit:
    """How many may be given up: a count, or a share of what finished. Neither is no limit."""

    __slots__ = ("count", "share")
    written = str  # in JSON

    def __init__(self, count: int | None = None, share: float | None = None) -> None:
        self.count = count
        self.share = share

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @classmethod
    def parse(cls, text: str) -> Limit:
        """``100``, ``1%`` or ``none``. Raises ValueError."""
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
        """Whether this many of so many finished sub-messages are too many."""
        if self.count is not None:
            return given_up > self.count
        return (
            self.share is not None
            and (finished >= SHARE_JUDGED_FROM or not self.share)
            and given_up > self.share * finished
        )


_HALF = Limit(share=0.5)


@dataclass(frozen=True, slots=True)
class FailureSettings(JsonRecord):
    """How a drain meets failures; the plan keeps it, so that a resume goes on in the same way.

    ``retries`` counts attempts after the first. Delays double from ``retry_delay_s`` up to
    ``retry_max_delay_s``. A ``timeout_s`` of 0 is none. ``max_outage_s`` is how long the circuit
    breaker waits for the downstream, ``max_doubt_s`` how long it may be the downstream that one
    sub-message fails, when nothing else could tell. ``rate`` is in sub-messages started per second.
    """

    retries: Whole = 0
    retry_delay_s: float = 0.2
    retry_max_delay_s: float = 30.0
    timeout_s: float = 30.0
    on_failure: OnFailure = OnFailure.HALT
    on_split_failure: OnFailure | None = None  # None: as ``on_failure``
    after_dead: AfterDead = AfterDead.CONTINUE
    dead_letter_topic: str | None = None
    max_failures: Limit = _HALF
    breaker: bool = True
    max_outage_s: float = 3600.0
    max_doubt_s: float = 60.0
    rate: float | None = None

    def __post_init__(self) -> None:
        delays = (self.retry_delay_s, self.retry_max_delay_s)
        waits = (self.timeout_s, self.max_outage_s, self.max_doubt_s)
        if min(self.retries, *delays, *waits) < 0:
            raise ValueError("a number of retries or a duration is below zero")
        if self.rate is not None and self.rate <= 0:
            raise ValueError("with this rate nothing would ever start")

    @property
    def on_unsplit(self) -> OnFailure:
        """What to do with a message that ``split`` rejects."""
        return self.on_split_failure or self.on_failure

    @property
    def stops_unsplit(self) -> bool:
        """Whether a message that ``split`` rejects stops its partition: its lanes are unknown."""
        dead = self.on_unsplit is OnFailure.DEAD_LETTER
        return self.on_unsplit is OnFailure.PARK or (dead and self.after_dead is AfterDead.PARK)

    @property
    def writes_letters(self) -> bool:
        return OnFailure.DEAD_LETTER in (self.on_failure, self.on_unsplit)

    @property
    def letters_topic(self) -> str | None:
        """Where dead letters go; None while there are none."""
        return self.dead_letter_topic if self.writes_letters else None

    def delay_s(self, failures: int, random: Random | None = None) -> float:
        """How long to wait after so many failures (from 1): exponential, with jitter by chance."""
        whole: float = min(self.retry_max_delay_s, self.retry_delay_s * 2 ** min(failures - 1, 60))
        return whole if random is None else whole * random.uniform(JITTER, 1)


class Fate(Enum):
    """What becomes of a sub-message after a failed attempt."""

    RETRY = "retry"
    DEAD = "dead"
    PARKED = "parked"
    FAILED = "failed"
    HALT = "halt"


@dataclass(frozen=True, slots=True)
class Decision:
    """``at_s`` is when to try again, by the clock that was given; ``why`` tells why it is given up.

    ``in_doubt`` says that its retries are spent: see ``proven`` when its time has come. ``asked``
    is for one whose handler asked for that time.
    """

    fate: Fate
    at_s: float = 0.0
    why: str | None = None
    in_doubt: bool = False
    asked: bool = False


FATES = {
    OnFailure.DEAD_LETTER: Fate.DEAD,
    OnFailure.PARK: Fate.PARKED,
    OnFailure.SKIP: Fate.FAILED,
    OnFailure.HALT: Fate.HALT,
}


NOTHING_SUCCEEDED = (
    "nothing has succeeded in this run: the handler or its downstream is broken, not one message"
    " (--no-breaker gives up anyway)"
)


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of sub-messages in a drain of several tasks.

    Attributes:
        done: in this run.
        given_up: in all runs.
        finished: likewise, without those that rules skipped.
    """

    done: Whole = 0
    given_up: Whole = 0
    finished: Whole = 0

    def beside(self, own: Totals, whole: Totals) -> Totals:
        """What others did, at least, as of now: ``self`` is what was known of it before, and
        ``whole`` what all did a moment ago, with part of our ``own`` in it."""
        return Totals(
            max(self.done, whole.done - own.done),
            max(self.given_up, whole.given_up - own.given_up),
            max(self.finished, whole.finished - own.finished),
        )


class FailurePolicy:
    """Decides after each failed attempt, and keeps count of what was given up.

    Nothing is given up while it may be the downstream. What tells is how many sub-messages began to
    fail since one last succeeded: that they all are bad is as likely as the share of those that
    were given up before, to the power of their number. Below ``CERTAIN`` the downstream is away,
    and is waited for; below ``DOUBTFUL`` it may be, and after ``max_doubt_s`` without any
    success a sub-message is given up.

    ``done`` is how many sub-messages this run has done so far: whoever succeeds need not report it.
    Where several tasks work for one drain those of the others count as well: what succeeds there
    tells as much of the downstream.
    ``before`` is the account of sub-messages that former runs left; ``given_up`` goes on from it.
    """

    def __init__(
        self,
        settings: FailureSettings,
        breaker: Breaker,
        random: Random,
        before: Counts = NOTHING,
    ) -> None:
        self.settings = settings
        self.breaker = breaker
        self.retries = 0
        self.given_up = before.given_up
        self._done_before = before.done
        self._streak: Streak | None = None  # before which ``_usual`` were given up
        self._usual = 0
        self._random = random

    def later(self, now_s: float, after_s: float | None, sub: SubMessage) -> Decision:
        """For a handler that asks to be called again: it is no failure, and spends no retry."""
        self.retries += 1
        self.breaker.undecided(sub, now_s)
        wait_s = self.settings.delay_s(sub.attempt, self._random) if after_s is None else after_s
        return Decision(Fate.RETRY, now_s + max(0.0, wait_s), asked=after_s is not None)

    def failed(self, sub: SubMessage, done: int, at_work: int, now_s: float) -> Decision:
        """For an attempt that failed, or took too long; ``at_work`` as the breaker wants it."""
        settings, breaker = self.settings, self.breaker
        why = self.look_for_outage(sub, done, at_work, now_s)
        if why is not None:
            return Decision(Fate.HALT, why=why)
        failing = breaker.failing(sub, now_s)
        if failing.failures and done > failing.done_at_last:
            failing.outlived += 1
        failing.done_at_last = done
        failing.failures += 1
        spent = failing.failures > settings.retries
        if spent:
            known_bad = failing.outlived >= OUTLIVED and not breaker.open
            patience_s = 0.0 if known_bad else self.patience_s(done)
            waited_s = now_s - max(failing.since_s, breaker.streak.since_s)
            in_vain = not done and settings.on_failure is OnFailure.HALT  # a resume tries it again
            if waited_s >= patience_s or in_vain:
                return Decision(FATES[settings.on_failure], why=_why(waited_s, patience_s))
            doubted = 0 < settings.max_doubt_s <= waited_s
            # Without a time for doubts too: what is certain must end, by --max-outage.
            certain = patience_s == inf and waited_s >= CERTAIN_S
            if breaker.open or breaker.streak.of_all or doubted or certain:
                if not done and patience_s == inf:
                    return Decision(Fate.HALT, why=NOTHING_SUCCEEDED)
                if not breaker.open:
                    breaker.start(now_s)
        self.retries += 1
        # Those in doubt are given up in the order in which they failed.
        wait_s = settings.delay_s(failing.failures, None if spent else self._random)
        return Decision(Fate.RETRY, now_s + wait_s, in_doubt=spent)

    def patience_s(self, done: int) -> float:
        """How long that which fails now may fail because of the downstream."""
        breaker, settings = self.breaker, self.settings
        if not settings.breaker:
            return 0.0
        chance = self._chance(breaker.streak) if breaker.streak.done == done else 1.0
        if chance < CERTAIN:
            return inf
        if chance < DOUBTFUL:
            return settings.max_doubt_s
        return inf if breaker.open else 0.0

    def proven(self, sub: SubMessage, done: int) -> Decision | None:
        """For one that was in doubt and whose time has come: it is given up without another attempt
        when others have succeeded since it failed, at once and not after all failed."""
        failing = sub.failing
        if (
            self.breaker.is_new(sub)
            or failing.failures > self.settings.retries + 1
            or self.patience_s(done)
            or self._chance(failing.streak) < CERTAIN
        ):
            return None
        self.retries -= 1  # that was granted when its retries were spent
        return Decision(FATES[self.settings.on_failure])

    def _chance(self, streak: Streak) -> float:
        """How likely it is that nothing but the sub-messages of a streak is bad."""
        if streak is self.breaker.streak and streak is not self._streak:
            self._streak, self._usual = streak, self.given_up
        ended = self._done_before + streak.done + self._usual
        share = (self._usual + EXPECTED) / (ended + 1)
        return float(max(SHARE_LEAST, share) ** streak.new)

    def expect(self, sub: SubMessage, now_s: float) -> None:
        """For what is behind one that was given up while others succeeded: if it fails as well,
        the lane is bad, and that says nothing of the downstream."""
        self.breaker.failing(sub, now_s).expected = True

    def look_for_outage(self, sub: SubMessage, done: int, at_work: int, now_s: float) -> str | None:
        """Tells the breaker of a failed attempt; the reason to halt rather than to wait."""
        if self.settings.breaker and self.breaker.failed(sub, done, at_work, now_s) and not done:
            return NOTHING_SUCCEEDED
        return None

    def gave_up(self, finished: int, elsewhere: int = 0) -> str | None:
        """Counts one that was given up; the reason to halt when those are too many, with those
        that others gave up."""
        self.given_up += 1
        given_up = self.given_up + elsewhere
        if not self.settings.max_failures.passed(given_up, finished):
            return None
        return (
            f"drainer gave up {given_up:,} sub-messages in all runs, more than --max-failures"
            f" {self.settings.max_failures}"
        )


def _why(waited_s: float, patience_s: float) -> str | None:
    if not 0 < patience_s <= waited_s:
        return None
    return (
        f"nothing has succeeded for {waited_s:.0f} s, and no other lane shows whether the"
        " downstream is the cause (--max-doubt)"
    )
