"""How many sub-messages may be in the handler at once: a number, or one that a drain finds."""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 20  # where a drain that finds its own begins
MOST = 2_000  # how far it goes with an async handler
MOST_THREADS = 200  # and with a plain one: each is a thread


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A fixed number, or ``auto`` with the most that it may become.

    ``first`` is what a drain begins with and ``most`` what it never exceeds; both are the number
    itself when it is fixed. ``most_threads`` is ``most`` for a handler that runs on threads.
    """

    first: int
    most: int
    most_threads: int
    is_auto: bool = False

    @classmethod
    def fixed(cls, number: int) -> Concurrency:
        return cls(number, number, number)

    @classmethod
    def auto(cls, most: int | None = None) -> Concurrency:
        """Found while draining, ``most`` at most."""
        if most is None:
            return cls(FIRST, MOST, MOST_THREADS, is_auto=True)
        return cls(min(FIRST, most), most, most, is_auto=True)

    @classmethod
    def of(cls, given: int | Concurrency) -> Concurrency:
        return cls.fixed(given) if isinstance(given, int) else given

    def most_for(self, *, threads: bool) -> int:
        """The most with a handler of this kind."""
        return self.most_threads if threads else self.most

    def __str__(self) -> str:
        """As it is typed."""
        if not self.is_auto:
            return str(self.most)
        return "auto" if self == Concurrency.auto() else f"auto:{self.most}"

    def as_json(self) -> int | str:
        return str(self) if self.is_auto else self.most
