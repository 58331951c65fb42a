"""The page: templates filled in, with everything from outside escaped."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drainer import __version__
from drainer.escape import json_text, printable
from drainer.view import figures
from drainer.view.page import Column, Item, Page, Section
from drainer.view.report.plots import draw


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as it is shown: where the command ran, and in UTC."""

    local: str
    utc: str
    iso: str

    @classmethod
    def of(cls, time: datetime) -> Moment:
        """``time`` has its zone."""
        utc = time.astimezone(UTC)
        name = time.tzname() or ""
        return cls(
            f"{time:%Y-%m-%d %H:%M:%S} {name}".rstrip(),
            f"{utc:%Y-%m-%d %H:%M:%S} UTC",
            utc.isoformat(timespec="seconds"),
        )


def html(page: Page, now: datetime) -> str:
    """A page of facts as HTML; ``now`` has the zone that times are told in."""
    return render(
        "sections.html",
        now,
        page.data,
        title=page.title,
        page=page,
        times=[Moment.of(time.astimezone(now.tzinfo)) for time in page.times],
    )


def _runs(section: Section) -> list[tuple[str, list[Item]]]:
    """The items, those of one kind that follow each other together."""
    return [(kind, list(items)) for kind, items in groupby(section.items, lambda item: item.kind)]


def _column_class(column: str | Column) -> str:
    if isinstance(column, str):
        return "" if column else "text"
    return "long" if column.wide else "text"


def _column_title(column: str | Column) -> str:
    return column if isinstance(column, str) else column.title


def render(template: str, now: datetime, data: Mapping[str, object], **values: object) -> str:
    """A page. All text is escaped; only a ``Markup`` is not, as the charts are.

    ``data`` is what the command's ``--json`` prints: it goes along, for programs.
    """
    page = _templates().get_template(template)
    return page.render(
        version=__version__,
        written=Moment.of(now),
        host=platform.node() or "unknown",
        data=_data(data),
        **values,
    )


def _data(data: Mapping[str, object]) -> Markup:
    # In such an element nothing is markup but its own end, and a comment.
    return Markup(json_text(data).replace("<", "\\u003c"))


def _visible(value: object) -> object:
    """What a template puts out: all but the charts as one line of what can be seen."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("drainer.view.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": figures.count,
        "counted": figures.counted,
        "duration": figures.duration,
        "rate": figures.rate,
        "percent": figures.percent,
        "share": figures.share,
        "shorten": figures.shorten,
        "size": figures.size,
        "runs": _runs,
        "draw": draw,
        "column_class": _column_class,
        "column_title": _column_title,
    }
    return made
