"""What a command found, as facts: the one model that terminal, log and HTML are made from.

It is pure: a producer for each command makes a page, and renderers decide what it looks like
(``view/layout.py`` on a terminal, ``view/report/page.py`` in HTML). Texts may hold anything:
renderers neutralise them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import log10
from typing import ClassVar

from drainer.errors import DrainerError

OK, BAD, WARN, STOPPED = "✓", "✗", "!", "■"  # marks before a sentence
SHOWN = 12  # rows of a long table; the rest is one line on a terminal, and folded away in HTML


class Tone(StrEnum):
    """What a fact means for the reader. What is BAD is shown even when quiet."""

    PLAIN = ""
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HINT = "hint"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence, its ``mark`` before it, and after it what it continues with in plain."""

    kind: ClassVar[str] = "line"
    text: str
    tone: Tone = Tone.PLAIN
    mark: str = ""
    more: str = ""
    note: str = ""

    @property
    def marked(self) -> str:
        return f"{self.mark} {self.text}" if self.mark else self.text


@dataclass(frozen=True, slots=True)
class Field:
    """A label and its value; ``lines`` are what it consists of, one below the other."""

    kind: ClassVar[str] = "field"
    label: str
    value: str
    note: str = ""
    tone: Tone = Tone.PLAIN
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; ``bar`` draws a share, 0 to 1, in place of the text."""

    text: str
    tone: Tone = Tone.PLAIN
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of words, aligned left; ``wide`` ones may break where lines can."""

    title: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows, those that need attention first: a terminal shows ``shown`` of them, and ``rest``.

    A column that is named by its title alone has figures. ``total`` is the last row.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[str | Column, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    rest: str = ""
    caption: str = ""
    total: tuple[str | Cell, ...] = ()
    shown: int = SHOWN

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Each column's title, and whether it has "text", "long" text or, with "", figures."""
        return [
            (each.title, "long" if each.wide else "text")
            if isinstance(each, Column)
            else (each, "" if each else "text")
            for each in self.columns
        ]


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar for each (label, value, text), with values of 0 or more.

    ``longest`` is the value that fills the line; the largest one does when it is None. ``log``
    draws orders of magnitude, and says so: 9 s is no visible bar beside 14 days otherwise.
    """

    kind: ClassVar[str] = "bars"
    title: str
    rows: tuple[tuple[str, float, str], ...]
    note: str = ""
    longest: float | None = None
    log: bool = False

    @property
    def shares(self) -> list[float]:
        """Of the line, for each bar."""
        values = [value for _, value, _ in self.rows]
        largest = self.longest or max(values, default=0.0)
        if largest <= 0:
            return [0.0] * len(values)
        if not self.log:
            return [min(1.0, max(0.0, value) / largest) for value in values]
        # One decade below the smallest is the zero line, so that the smallest still has a bar.
        floor = log10(min(value for value in values if value > 0)) - 1
        span = log10(largest) - floor
        return [(log10(value) - floor) / span if value > 0 else 0.0 for value in values]


@dataclass(frozen=True, slots=True)
class Clock:
    """The x of a plot over time: seconds since ``begun``, and the intervals that were trouble."""

    begun: datetime
    seconds: Sequence[float]
    troubles: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """The x of a curve: counts, on a logarithmic scale."""

    values: Sequence[float]
    title: str


@dataclass(frozen=True, slots=True)
class Series:
    """Values over the x of a plot, or areas when they are ``filled``."""

    label: str
    values: Sequence[float]
    ink: str = "c1"
    filled: bool = False
    dashed: bool = False
    stepped: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Series over one x; ``tells`` is what is to be seen, and is read out.

    ``name`` is the plot's own on its page. A unit is "", "s", "bytes", "share" or a word.
    """

    kind: ClassVar[str] = "plot"
    name: str
    title: str
    tells: str
    x: Clock | Counts
    series: Sequence[Series]
    unit: str = ""
    log: bool = False
    stacked: bool = False


Item = Line | Field | Table | Bars | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """Facts that belong together; ``about`` explains them where there is room for it."""

    title: str
    items: tuple[Item, ...]
    about: str = ""


@dataclass(frozen=True, slots=True)
class WayOn:
    """A command to go on with: what it does in a word, and what it needs beside."""

    label: str
    command: str
    about: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """All that a command found.

    Attributes:
        subject: what the headline is about.
        headline: the answer, in one line; its tone is the verdict.
        details: what belongs right below it.
        warnings: what can't wait.
        cards: the figures that are asked for first, for a page that has room for them.
        cause: what stopped it, when something did.
        ways_on: the commands to go on with.
        times: when it began and ended, or when it was looked at, in the zone to tell it in.
        event: the name of this page in a log, and its fields; without one it is told in lines.
        data: the same for programs, as the command's ``--json`` prints it.
    """

    headline: Line
    sections: tuple[Section, ...]
    subject: str = ""
    details: tuple[Line, ...] = ()
    warnings: tuple[str, ...] = ()
    cards: tuple[Field, ...] = ()
    cause: DrainerError | None = None
    hints: tuple[str, ...] = ()
    ways_on: tuple[WayOn, ...] = ()
    times: tuple[datetime, ...] = ()
    event: tuple[str, Mapping[str, object]] | None = None
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """The headline and what is below it as one line, without marks."""
        first = self.headline.text + self.headline.more
        if self.subject:
            first = f"{self.subject}: {first}"
        return "; ".join([first, *(line.text for line in self.details)])


def section(title: str, *items: Item | Iterable[Item | None] | None, about: str = "") -> Section:
    """A section of the items that there are: None stands for nothing to tell."""
    found: list[Item] = []
    for each in items:
        if isinstance(each, Item):
            found.append(each)
        elif each is not None:
            found += [one for one in each if one is not None]
    return Section(title, tuple(found), about)


def few(texts: Sequence[str], most: int, noun: str) -> tuple[str, ...]:
    """The first of them, and how many others there are."""
    more = len(texts) - most
    other = f"other {noun}" + "s" * (more > 1)
    return (*texts[:most], *([f"and {more:,} {other}"] if more > 0 else []))
