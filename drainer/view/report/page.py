"""The page: templates filled in, with everything from outside escaped."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drainer import __version__
from drainer.escape import json_text, printable
from drainer.view import figures


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
    }
    return made
