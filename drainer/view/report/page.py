"""A page of facts as HTML. It is made from a template, which escapes all texts."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from functools import cache
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drainer import __version__
from drainer.text.escape import json_text, printable
from drainer.view import figures
from drainer.view.page import Item, Page, Section
from drainer.view.report.chart import draw


def html(page: Page, now: datetime, nonce: str | None = None) -> str:
    """Return a page of facts as HTML.

    ``now`` has the time zone in which times are shown. With a ``nonce``, the page also has a script
    that updates it. The headers of the server allow only the script with this nonce.
    """
    return (
        _templates()
        .get_template("page.html")
        .render(
            page=page,
            nonce=nonce,
            version=__version__,
            written=_moment(now),
            times=[_moment(time.astimezone(now.tzinfo)) for time in page.times],
            host=platform.node() or "unknown",
            # In a script element, only an end tag or a comment is markup. Both begin with "<".
            data=Markup(json_text(page.data).replace("<", "\\u003c")),
        )
    )


def _moment(time: datetime) -> dict[str, str]:
    """Return a time as text, in its own zone and in UTC."""
    utc = time.astimezone(UTC)
    return {
        "local": f"{time:%Y-%m-%d %H:%M:%S} {time.tzname() or ''}".rstrip(),
        "utc": f"{utc:%Y-%m-%d %H:%M:%S} UTC",
        "iso": utc.isoformat(timespec="seconds"),
    }


def _runs(section: Section) -> list[tuple[str, list[Item]]]:
    """Group the items of a section: items of one kind that follow each other form a group."""
    return [(kind, list(items)) for kind, items in groupby(section.items, lambda item: item.kind)]


def _visible(value: object) -> object:
    """Escape control characters in everything that the template prints, except in markup."""
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
    made.filters |= {"counted": figures.counted, "runs": _runs, "draw": draw}
    return made
