"""The settings of a measurement, which are options of ``drainer limits``, and their types."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from typing import Annotated

from msgspec import Meta

from drainer.errors import UsageError
from drainer.limits.search.trial import WINDOW_S_LEAST, AboveZero, Amount, AtLeastZero, Positive
from drainer.model.option import (
    DURATION,
    SIZE,
    ValueType,
    number,
    option,
    parse_byte_rate,
    parse_duration,
    parse_size,
)

MESSAGE_BYTES_MOST = 64 * 1024 * 1024
# Clients report a few times a second. At each end, up to one report lies outside the window, so a
# window has to be longer by this time.
REPORTS_S = 1.0
TRIALS_MOST = 20  # The default limit of trials for one boundary.
# Without --max-rate, the search goes up to this rate per broker at first. If this rate is safe, the
# search doubles it. Most brokers that also serve readers tolerate less (Dropbox: 60 MB/s with five
# groups).
MB_PER_S_A_BROKER = 200.0


class Payload(StrEnum):
    """Content of the messages that producers send."""

    RANDOM = "random"  # It can't be compressed, which is the worst case for brokers.
    CONSTANT = "constant"


def _parse_sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(map(parse_size, text.split(",")))
    if not all(0 < size <= MESSAGE_BYTES_MOST for size in sizes):
        raise UsageError(
            f"{text} is not a message size up to 64MiB", hint="Give sizes, such as 100,1KiB."
        )
    if len(set(sizes)) < len(sizes):
        raise UsageError("has a value twice", hint="Give each value once.")
    return sizes


def _parse_window(text: str) -> float:
    seconds, least_s = parse_duration(text), WINDOW_S_LEAST + REPORTS_S
    if seconds < least_s:
        raise UsageError(f"{text} is too short to measure", hint=f"Give at least {least_s:g}s.")
    return seconds


def _share(least: float, most: float) -> ValueType:
    """Return the type of options that are shares, which a person types as ``5%`` or ``0.05``."""

    def parse(text: str) -> float:
        word = text.strip()
        try:
            found = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
        except ValueError:
            found = 0.0
        if not least <= found <= most:
            raise UsageError(
                f"{text!r} is not a share from {least:.0%} to {most:.0%}",
                hint="Give a share, such as 5% or 0.05.",
            )
        return found

    return ValueType("SHARE", parse, lambda share: f"{share * 100:g}%")


_traffic = partial(option, panel="Traffic")
_search = partial(option, panel="Search")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Settings of a measurement.

    A measurement can be resumed only with the same settings, except that message sizes may be
    added, and ``trials`` and ``safe_share`` may change.
    """

    message_bytes: tuple[Positive, ...] = _traffic(
        "Message sizes; each gets its own boundary.",
        (100, 1024, 10 * 1024, 100 * 1024),
        ValueType("SIZES", _parse_sizes, lambda values: ",".join(map(SIZE.show, values))),
        name="--bytes",
        basic=True,
    )
    consumer_groups: AtLeastZero = _traffic(
        "Consumer groups that read all messages.", 5, number(0, 1_000)
    )
    topics: Positive = _traffic("Number of test topics.", 1, number(1, 1_000))
    partitions: Positive = _traffic(
        "Partitions of each test topic, per broker.", 10, number(1, 1_000)
    )
    payload: Payload = _traffic("Message content: random bytes or constant ones.", Payload.RANDOM)
    # The unit is 10^6 bytes/s. If there is no maximum, the search begins with MB_PER_S_A_BROKER per
    # broker, and doubles that as long as it is safe.
    max_mb_per_s: AboveZero | None = _traffic(
        "Maximum rate of all producers together.",
        None,
        ValueType("SIZE/s", lambda text: parse_byte_rate(text) / 1e6),
        unset=f"{MB_PER_S_A_BROKER:g}MB/s per broker",
        name="--max-rate",
        basic=True,
    )
    max_producers: Positive = _traffic(
        "Producers at the highest rate. Low rates use 20, each slower.", 256, number(1)
    )
    precision: AboveZero = _search(
        "Maximum distance of the boundary from the reported one.", 0.05, _share(0.01, 0.5)
    )
    trials: Positive = _search("Maximum trials per boundary.", TRIALS_MOST, number(2))
    warm_up_s: Amount = _search("Time per trial before the measurement starts.", 10.0, DURATION)
    window_s: AboveZero = _search(
        "Measurement time per trial. Short trials miss full disks and caches.",
        30.0,
        ValueType("DURATION", _parse_window, DURATION.show),
    )
    # With 0.8, a fifth of the brokers may be away.
    safe_share: Annotated[float, Meta(gt=0, le=1)] = _search(
        "Share of the boundary that a drain may use.", 0.8, _share(0.01, 1.0)
    )
    compression: str = "none"  # The producers' codec, by librdkafka's name.
    jmx: bool = False  # Whether the brokers' own metrics were read.

    def __post_init__(self) -> None:
        if not self.message_bytes or len(set(self.message_bytes)) < len(self.message_bytes):
            raise ValueError(f"{list(self.message_bytes)} are not sizes, each once")

    def differences(self, other: LimitSettings) -> list[str]:
        """Describe each setting that is different in ``other``: ``topics was 1, and is 2``."""
        names = [each.name for each in fields(self)]
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return [f"{name} was {was}, and is {now}" for name, was, now in pairs if was != now]
