"""Pages: what a command found as facts, from which terminal, log and HTML are made.

It is pure: a producer for each command makes a page, and renderers decide what it looks like
(``view/layout.py`` on a terminal, ``view/report/page.py`` in HTML). Texts may hold anything:
renderers neutralise them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from drainer.errors import DrainerError

OK, BAD, WARN, STOPPED = "✓", "✗", "!", "■"  # marks before a sentence
SHOWN = 12  # rows of a long table; the rest is one line on a terminal, and folded away in HTML


class Tone(StrEnum):
    """Meaning of a fact for the reader. What is BAD is shown even when quiet."""

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
    """Rows, those that need attention first: a terminal shows ``shown`` of them.

    A column that is named by its title alone has figures. ``total`` is the last row.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[str | Column, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
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
class Series:
    """A line: its values over the seconds of its plot."""

    label: str
    values: Sequence[float]
    ink: str = "c1"


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over the clock; ``description`` is what is to be seen, and is read out.

    ``name`` is the plot's own on its page. ``seconds`` are those since ``begun``, and ``troubles``
    intervals of them that are shaded. The ``unit`` of its values is "s", or "" for counts.
    """

    kind: ClassVar[str] = "plot"
    name: str
    title: str
    description: str
    begun: datetime
    seconds: Sequence[float]
    series: Sequence[Series]
    unit: str = ""
    troubles: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y), rising in x and all above 0."""

    label: str
    points: Sequence[tuple[float, float]]
    ink: str = "c1"


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves over sizes in bytes; both axes are logarithmic. The rest is as in ``Plot``."""

    kind: ClassVar[str] = "plot"
    name: str
    title: str
    description: str
    series: Sequence[Curve]


Item = Line | Field | Table | Plot | Curves


@dataclass(frozen=True, slots=True)
class Section:
    """Facts that belong together; a terminal leaves the title out."""

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """All that a command found."""

    headline: Line  # the answer, in one line; its tone is the verdict
    sections: tuple[Section, ...]
    subject: str = ""  # what the headline is about
    details: tuple[Line, ...] = ()  # what belongs right below it
    warnings: tuple[str, ...] = ()
    cause: DrainerError | None = None
    hints: tuple[str, ...] = ()
    # The commands to go on with, each with what it does and what to know of it.
    ways_on: tuple[Field, ...] = ()
    # When it began and ended, or when it was looked at, in the zone to show it in.
    times: tuple[datetime, ...] = ()
    # The same for programs, as the command's ``-o json`` prints it.
    data: Mapping[str, object] = field(default_factory=dict)
    # The name of this page in a log, with ``data``; without one it is printed in lines.
    event: str = ""

    @property
    def tables_last(self) -> list[Section]:
        """The sections, those with a table behind all others."""
        return sorted(
            self.sections, key=lambda each: any(isinstance(item, Table) for item in each.items)
        )

    @property
    def message(self) -> str:
        """The headline and what is below it as one line, without marks."""
        first = self.headline.text + self.headline.more
        if self.subject:
            first = f"{self.subject}: {first}"
        return "; ".join([first, *(line.text.strip() for line in self.details)])


def section(title: str, *items: Item | Iterable[Item | None] | None) -> Section:
    """A section of the items that there are: None stands for nothing."""
    found: list[Item] = []
    for each in items:
        if isinstance(each, Item):
            found.append(each)
        elif each is not None:
            found += [one for one in each if one is not None]
    return Section(title, tuple(found))


def bars(title: str, unit: str, rows: Sequence[tuple[str, float, str]]) -> Table:
    """A bar for each (label, value, text), all of it for the largest value; none is below 0."""
    largest = max((value for _, value, _ in rows), default=0.0) or 1.0
    drawn = tuple((label, Cell("", bar=value / largest), text) for label, value, text in rows)
    return Table((Column(title), "", Column(unit)), drawn, shown=len(rows))


def few(texts: Sequence[str], most: int = SHOWN, total: int | None = None) -> tuple[str, ...]:
    """The first of ``total`` texts, and how many others there are."""
    first = tuple(texts[:most])
    more = (len(texts) if total is None else total) - len(first)
    return (*first, f"and {more:,} more") if more > 0 else first
