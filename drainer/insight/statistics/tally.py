"""Counts that are given away when there are many, for somebody who adds them up: none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from drainer.insight.statistics.sketch import TALLIED, encodable

_PLAIN = frozenset({str, bytes, int, type(None)})
_NUMBERS = (int, float, Decimal, Fraction, complex)


@dataclass(frozen=True, slots=True)
class Named:
    """How often something came.

    Attributes:
        name: the thing, as text.
        same: the same text for all that are equal (1, 1.0 and True); None when that is the name.
        count: how often.
    """

    name: str
    same: str | None
    count: int


class Tally:
    """Counts things by what ``text`` says of them, as lanes tell them apart."""

    def __init__(self, text: Callable[[Any], str]) -> None:
        self._text = text
        self._tally: Counter[Hashable] = Counter()

    def add(self, things: Iterable[Hashable]) -> None:
        """Raises TypeError when one of them is not hashable; some are counted then."""
        self._tally.update(things)

    @property
    def full(self) -> bool:
        """Whether it is time to give the counts away."""
        return len(self._tally) > TALLIED

    def give(self) -> Iterator[Named]:
        """All counts, each name at least once; it begins anew."""
        tally, self._tally = self._tally, Counter()
        text = self._text
        for thing, count in tally.items():
            name = encodable(text(thing))
            same = None
            if type(thing) not in _PLAIN:
                found = encodable(text(plain(thing)))
                same = None if found == name else found
            yield Named(name, same, count)


def plain(thing: Hashable) -> Hashable:
    """One that looks the same for all things that are equal; of what is unknown, the thing."""
    if type(thing) in _PLAIN:
        return thing
    make = next((make for kind, make in _MADE if isinstance(thing, kind)), None)
    return thing if make is None else make(thing)


def _number(number: Any) -> Hashable:
    if isinstance(number, complex):
        if number.imag:
            return complex(number)
        number = number.real
    for kind in (int, Fraction):  # exact, where a float would round
        try:
            found = kind(number)
        except (ValueError, OverflowError, ArithmeticError):  # no number, or no end to it
            return repr(float(number))
        if found == number:
            return found
    return repr(number)


def _members(things: Iterable[Hashable]) -> Hashable:
    # Their order is another one in each process.
    return ("frozenset", *sorted(repr(plain(thing)) for thing in things))


_MADE: tuple[tuple[type | tuple[type, ...], Callable[[Any], Hashable]], ...] = (
    (str, str.__str__),
    (bytes, bytes),
    (tuple, lambda things: tuple(map(plain, things))),
    (frozenset, _members),
    (_NUMBERS, _number),
)
