"""The rates that ``--broker-limits`` allows, for an estimate and its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drainer.model.rate_cap import CapCurve
from drainer.view import figures
from drainer.view.page import Field

READ_CAP, WRITE_CAP = "read cap", "write cap"
BINDING = {
    READ_CAP: "the brokers' limits on reading",
    WRITE_CAP: "the brokers' limits on writing",
}


@dataclass(frozen=True, slots=True)
class EstimatedCaps:
    """The rates that the brokers' limits allow. None means that there is no limit.

    Attributes:
        read_cap: messages per second that may be read.
        write_cap: sub-messages per second that a handler may write.
    """

    read_cap: float | None = None
    write_cap: float | None = None

    @classmethod
    def of(cls, limits: CapCurve, message_bytes: float, records: float) -> EstimatedCaps:
        """Return the rates for messages of this mean size.

        The handler writes this many ``records`` for each message. The estimate assumes that they
        are together as large as the message.
        """
        size = max(1.0, message_bytes)
        read_cap = limits.reading.cap(size).messages_per_s
        if not records:
            return cls(read_cap)
        return cls(read_cap, limits.cap(max(1.0, size / records)).messages_per_s)

    def bounds(self, messages: float, subs: float) -> dict[str, float]:
        """Return how long it takes at least to read and write so many, in seconds by bound."""
        work = ((READ_CAP, messages, self.read_cap), (WRITE_CAP, subs, self.write_cap))
        return {
            bound: max(0.0, number - 1) / per_s
            for bound, number, per_s in work
            if per_s is not None
        }

    def fields(self) -> Iterator[Field]:
        """Yield the rates, for the page of an estimate."""
        for what, per_s in (("read", self.read_cap), ("written", self.write_cap)):
            if per_s is not None:
                yield Field("limits", f"{figures.rate(per_s)} messages/s", f"{what}, at most")
