"""How a drain meets failures, as it was asked for: the settings that the plan keeps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from drainer.model.codec import JsonRecord, Whole

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
