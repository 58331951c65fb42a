"""Facts of a page, for tests to look into."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drainer.view.page import Cell, Field, Item, Page, Plot, Table
from drainer.view.terminal import Terminal

from . import samples


def shown(page: Page, *, quiet: bool = False) -> str:
    """The page on a screen of 120 columns, without its colours."""
    screen = samples.Screen()
    Terminal(quiet=quiet, stdout=screen, stderr=screen, width=120).present(page)
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())


def items(page: Page) -> Iterator[Item]:
    for section in page.sections:
        yield from section.items


def fields(page: Page) -> dict[str, str]:
    """The fields of a page by their labels: value, note and lines; of several alike the first."""
    found: dict[str, str] = {}
    for item in items(page):
        if isinstance(item, Field):
            note = f" ({item.note})" if item.note else ""
            found.setdefault(item.label, "\n".join([item.value + note, *item.lines]))
    return found


def ways(page: Page) -> list[str]:
    """The commands to go on with, by their labels."""
    return [way.label for way in page.ways_on]


def tables(page: Page) -> list[Table]:
    return [item for item in items(page) if isinstance(item, Table)]


def plots(page: Page) -> dict[str, Plot]:
    return {item.name: item for item in items(page) if isinstance(item, Plot)}


def named(page: Page) -> dict[str, Table]:
    """The tables by the title of their first column."""
    return {table.headings[0][0]: table for table in tables(page)}


def row(table: Table, number: int) -> list[str]:
    return [cell.text if isinstance(cell, Cell) else cell for cell in table.rows[number]]
