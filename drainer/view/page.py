"""Pages: the facts that a command found, in a form from which terminal, log and HTML are made.

Each command makes a page of its facts. The renderers decide what the page looks like:
``view/layout.py`` on a terminal, and ``view/report/page.py`` in HTML. Texts on a page may contain
anything, because the renderers escape them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from drainer.errors import DrainerError

OK, BAD, WARN, STOPPED = "✓", "✗", "!", "■"  # Marks before a sentence.
# A long table shows only this many rows at first. On a terminal, a line counts the others. In HTML,
# the others are folded away.
SHOWN = 12


class Tone(StrEnum):
    """What a fact means for the reader. A fact that is BAD is shown even with --quiet."""

    PLAIN = ""
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HINT = "hint"
    QUIET = "quiet"
    COMMAND = "command"  # The text is a command, which a person may copy into a shell.


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence, with a ``mark`` before it. ``more`` continues the sentence in a plain tone."""

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
    """A label and its value. ``lines`` are the parts of the value, which are shown below it."""

    kind: ClassVar[str] = "field"
    label: str
    value: str
    note: str = ""
    tone: Tone = Tone.PLAIN
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. With ``bar``, a share from 0 to 1, a bar is drawn instead of the text."""

    text: str
    tone: Tone = Tone.PLAIN
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of words, which is aligned left.

    If it is ``wide``, its lines may be broken. If it is ``spare``, a terminal that is too narrow
    for the table leaves it out.
    """

    title: str
    wide: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. A terminal shows the first ``shown`` rows, so the most important ones come first.

    A column that is given as a string has figures, which are aligned right. ``total`` is the last
    row.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[str | Column, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    caption: str = ""
    total: tuple[str | Cell, ...] = ()
    shown: int = SHOWN

    @property
    def headings(self) -> list[tuple[str, str]]:
        """The title and the kind of each column.

        The kind is "text", "long" for text that may be broken into lines, or "" for figures.
        """
        return [
            (each.title, "long" if each.wide else "text")
            if isinstance(each, Column)
            else (each, "" if each else "text")
            for each in self.columns
        ]

    def without_spare(self) -> Table | None:
        """Return the table without its last spare column; None if there is none."""
        for at in reversed(range(len(self.columns))):
            if isinstance(column := self.columns[at], Column) and column.spare:
                columns = (*self.columns[:at], *self.columns[at + 1 :])
                rows = tuple((*row[:at], *row[at + 1 :]) for row in self.rows)
                return replace(self, columns=columns, rows=rows)
        return None


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a plot. It has one value for each of the plot's ``seconds``."""

    label: str
    values: Sequence[float]
    ink: str = "c1"


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of one or several lines over time.

    ``name`` identifies the plot on its page. ``description`` says what the plot shows, also for
    screen readers. ``seconds`` are counted from ``begun``. ``troubles`` are the intervals to shade,
    in the same seconds. The ``unit`` of the values is "s", or "" for counts.
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


Item = Line | Field | Table | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """Facts that belong together. A terminal does not show the title."""

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that a command found."""

    headline: Line  # The answer in one line. Its tone is the verdict.
    sections: tuple[Section, ...]
    subject: str = ""  # What the headline is about.
    details: tuple[Line, ...] = ()  # Lines that belong right below the headline.
    warnings: tuple[str, ...] = ()
    cause: DrainerError | None = None
    hints: tuple[str, ...] = ()
    # The commands that the user may continue with: what each does, the command, and a note.
    ways_on: tuple[Field, ...] = ()
    # When the drain began and ended, or when the facts were found, in the time zone to show.
    times: tuple[datetime, ...] = ()
    # The same facts for programs, as ``-o json`` prints them.
    data: Mapping[str, object] = field(default_factory=dict)
    # The name of this page in a log, where it is one event with ``data``. A page without a name is
    # logged line by line.
    event: str = ""

    @property
    def tables_last(self) -> list[Section]:
        """The sections in the order of a terminal, where those with a table come last."""
        return sorted(
            self.sections, key=lambda each: any(isinstance(item, Table) for item in each.items)
        )

    @property
    def next(self) -> str | None:
        """The command that the page names first: to continue, or to see more; None without one."""
        facts = (item for each in self.sections for item in each.items)
        named = [*self.ways_on, *(f for f in facts if getattr(f, "tone", "") is Tone.COMMAND)]
        commands = (f.value for f in named if isinstance(f, Field) and "…" not in f.value)
        return next((each for each in commands if each.startswith("drainer")), None)

    @property
    def message(self) -> str:
        """The headline and the details as one line without marks."""
        first = self.headline.text + self.headline.more
        if self.subject:
            first = f"{self.subject}: {first}"
        return "; ".join([first, *(line.text.strip() for line in self.details)])


def section(title: str, *items: Item | Iterable[Item | None] | None) -> Section:
    """Make a section of items and of iterables of items. A ``None`` among them is skipped."""
    found: list[Item] = []
    for each in items:
        if isinstance(each, Item):
            found.append(each)
        elif each is not None:
            found += [one for one in each if one is not None]
    return Section(title, tuple(found))


def bars(title: str, unit: str, rows: Sequence[tuple[str, float, str]]) -> Table:
    """Make a table with a bar for each (label, value, text).

    The largest value has a full bar. No value may be below 0.
    """
    largest = max((value for _, value, _ in rows), default=0.0) or 1.0
    drawn = tuple((label, Cell("", bar=value / largest), text) for label, value, text in rows)
    return Table((Column(title), "", Column(unit)), drawn, shown=len(rows))


def few(texts: Sequence[str], most: int = SHOWN, total: int | None = None) -> tuple[str, ...]:
    """Return the first texts, and a line with the number of the others.

    ``total`` is the number of all texts, if ``texts`` has only some of them.
    """
    first = tuple(texts[:most])
    more = (len(texts) if total is None else total) - len(first)
    return (*first, f"and {more:,} more") if more > 0 else first
