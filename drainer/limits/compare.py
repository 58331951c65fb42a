"""Limits side by side: the same traffic on clusters of several sizes, or other traffic on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.view import between, ended, rate_of, traffic_words
from drainer.view import figures
from drainer.view.page import Cell, Column, Curve, Curves, Line, Page, Table, Tone, section

INKS = 6

Named = tuple[str, Limits]


def named_limits(found: Sequence[tuple[Path, Limits]]) -> list[Named]:
    """Each with what it differs in, as in ``3 brokers``; if in nothing, with its file."""
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


def curves(found: Sequence[Named]) -> list[Curves]:
    """The charts of Dropbox's kind: what is tolerated over the size of a message."""
    charts: tuple[tuple[str, str, Callable[[Limits, Boundary], float]], ...] = (
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
            tells = f"The boundary in {unit} over the size of a message, as producers send it."
            made.append(Curves(name, f"Boundary, {unit}", tells, lines))
    return made


def comparison_page(found: Sequence[tuple[Path, Limits]]) -> Page:
    """The boundaries of several files, by size, against those of the first."""
    named = named_limits(found)
    sizes = sorted({each.message_bytes for _, limits in named for each in limits.boundaries})
    rows = [
        (
            Cell(figures.size(size), Tone.STRONG),
            label,
            rate_of(each),
            f"{limits.mb_per_s_a_broker(each):,.1f}",
            f"{each.bytes_per_s / 1e6:,.1f}",
            between(each),
            _of_first(each, named[0][1].boundary(size)),
            Cell(ended(each), Tone.QUIET),
        )
        for size in sizes
        for label, limits in named
        if (each := limits.boundary(size)) is not None
    ]
    figured = ("messages/s", "MB/s per broker", "MB/s", "between", "of the first")
    columns = (Column(""), Column("limits"), *figured, Column("decided by", wide=True))
    return Page(
        Line(f"{figures.counted(len(named), 'file')} of limits, side by side", Tone.STRONG),
        (
            section(
                "Boundaries",
                curves(named),
                Table(columns, tuple(rows), shown=len(rows)) if rows else None,
            ),
        ),
        data={
            str(path): {"label": label, **limits.as_json()}
            for (path, limits), (label, _) in zip(found, named, strict=True)
        },
    )


def _of_first(boundary: Boundary, first: Boundary | None) -> str:
    if first is None or not first.messages_per_s:
        return ""
    return f"{boundary.messages_per_s / first.messages_per_s:.2f}"
