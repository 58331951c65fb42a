"""The page of ``drainer limits``: one measurement, or several of them side by side.

Several measurements may be of clusters of different sizes, or of different traffic on one cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from drainer.limits.search.boundary import Boundary, MeasuredLimits, as_json
from drainer.limits.search.trial import End
from drainer.limits.view import between, decided_by, ended, traffic_words
from drainer.model.listed import listed
from drainer.view import figures
from drainer.view.page import Cell, Column, Curve, Curves, Field, Line, Page, Table, Tone, section

INKS = 6

NamedLimits = tuple[str, MeasuredLimits]


def named_limits(found: Sequence[tuple[Path, MeasuredLimits]]) -> list[NamedLimits]:
    """Name each measurement by what it differs in, such as ``3 brokers``.

    If that does not tell them apart, the file is added. A single measurement has an empty name.
    """
    if len(found) == 1:
        return [("", found[0][1])]
    words = [
        (figures.counted(limits.brokers, "broker"), *traffic_words(limits.settings))
        for _, limits in found
    ]
    differ = [number for number, each in enumerate(zip(*words, strict=True)) if len(set(each)) > 1]
    labels = [", ".join(each[number] for number in differ) for each in words]
    return [
        (label if label and labels.count(label) == 1 else f"{label} ({path})".strip(), limits)
        for label, (path, limits) in zip(labels, found, strict=True)
    ]


def curves(found: Sequence[NamedLimits]) -> list[Curves]:
    """Return charts like Dropbox's: the boundary over the message size, in MB/s and messages/s."""
    charts: tuple[tuple[str, str, Callable[[MeasuredLimits, Boundary], float]], ...] = (
        ("mb-per-s", "MB/s a broker", lambda limits, each: limits.mb_per_s_a_broker(each)),
        ("messages-per-s", "messages/s", lambda _, each: each.messages_per_s),
    )
    made = []
    for name, unit, value in charts:
        lines = []
        for number, (label, limits) in enumerate(found):
            points = [(e.message_bytes, value(limits, e)) for e in limits.boundaries]
            if known := sorted((size, y) for size, y in points if y > 0):
                lines.append(Curve(label, known, f"c{number % INKS + 1}"))
        if lines:
            title = f"The boundary in {unit} over the size of a message, as producers send it."
            made.append(Curves(name, f"Boundary, {unit}", title, lines))
    return made


def limits_page(found: Sequence[tuple[Path, MeasuredLimits]]) -> Page:
    """Return the page with the boundaries, what decided them, and what a drain may use of them.

    The page's data, for programs, have every trial.
    """
    named = named_limits(found)
    measured = [limits for _, limits in named]
    warnings = [f"{label}: {each}".strip(": ") for label, one in named for each in _warnings(one)]
    settings = [limits.settings for limits in measured]
    first, ways_on = measured[0], list[Field]()
    if len(found) == 1 and not first.missing:
        use = f"drainer run … --broker-limits {shlex.quote(str(found[0][0]))}"
        ways_on.append(Field("use them", use))
    data: Mapping[str, object] = as_json(first)
    if len(found) > 1:
        pairs = zip(found, named, strict=True)
        data = {label: {"file": str(path), **as_json(one)} for (path, _), (label, one) in pairs}
    subject = f"{figures.counted(first.brokers, 'broker')} of cluster {first.cluster_id}"
    return Page(
        _headline(measured),
        (
            section("Boundaries", curves(named), _boundaries(named)),
            section(
                "Basis",
                Field("safe", f"{figures.share(settings[0].safe_share)} of the boundary"),
                *(Field("traffic", ", ".join(traffic_words(each))) for each in settings),
                *(Field("decided by", each) for each in dict.fromkeys(map(decided_by, settings))),
                Field("limits", listed(sorted({str(path) for path, _ in found}))),
            ),
        ),
        subject=subject if len(named) == 1 else figures.counted(len(named), "measurement"),
        warnings=tuple(warnings),
        ways_on=tuple(ways_on),
        times=(datetime.fromtimestamp(first.at, UTC),),
        data=data,
    )


def _headline(measured: Sequence[MeasuredLimits]) -> Line:
    rates = {
        limits.mb_per_s_a_broker(each): each for limits in measured for each in limits.boundaries
    }
    if not (rate := max(rates, default=0.0)):
        return Line("no boundary is known yet", Tone.STRONG)
    prefix = "at least" if rates[rate].is_open else "up to"
    size = figures.size(rates[rate].message_bytes)
    return Line(f"{prefix} {rate:,.1f} MB/s per broker, at {size}", Tone.STRONG)


def _boundaries(named: Sequence[NamedLimits]) -> Table | None:
    several = len(named) > 1
    names, shares = ((Column("limits"),), ("of the first",)) if several else ((), ())
    sizes = sorted({each.message_bytes for _, limits in named for each in limits.boundaries})
    rows = tuple(
        (
            Cell(figures.size(size), Tone.STRONG),
            *((label,) if several else ()),
            ("≥ " if each.is_open else "") + figures.rate(each.messages_per_s),
            f"{limits.mb_per_s_a_broker(each):,.1f}",
            between(each),
            figures.rate(limits.settings.safe_share * each.messages_per_s),
            figures.rate(limits.settings.safe_share * each.read_per_s),
            *((_of_first(each, named[0][1].boundary(size)),) if several else ()),
            figures.count(each.trials),
            Cell(ended(each), Tone.QUIET if each.end is End.NARROW else Tone.WARN),
        )
        for size in sizes
        for label, limits in named
        if (each := limits.boundary(size)) is not None
    )
    figured = ("messages/s", "MB/s per broker", "between", "safe to write", "safe to read")
    columns = (Column(""), *names, *figured, *shares, "trials", Column("decided by", wide=True))
    return Table(columns, rows, shown=len(rows)) if rows else None


def _warnings(limits: MeasuredLimits) -> list[str]:
    """Return warnings on boundaries that are not known well enough, and how to get them."""
    found = [] if not limits.missing else ["The search is not complete: repeat the command."]
    for each in limits.boundaries:
        if each.end is End.WIDE:
            more = each.trials >= limits.settings.trials
            found.append(
                f"{figures.size(each.message_bytes)}: the boundary is {between(each)} messages/s,"
                f" wider than {figures.share(limits.settings.precision)} on either side. "
                + ("Add --trials, and repeat the command." if more else "Lower --max-rate.")
            )
    return found


def _of_first(boundary: Boundary, first: Boundary | None) -> str:
    if first is None or not first.messages_per_s:
        return ""
    return f"{boundary.messages_per_s / first.messages_per_s:.2f}"
