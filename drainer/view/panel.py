"""One frame of the live view: a status laid out for a screen.

It makes rich's segments itself: a grid of tables costs five times as much to measure and lay out,
and the frame is drawn by the thread that the drain runs on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest

from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from drainer.engine.status import PartitionStatus, Status
from drainer.escape import printable
from drainer.view import figures
from drainer.view.layout import STYLES
from drainer.view.page import OK, Field, Tone
from drainer.view.progress import facts, finished, share_finished, warnings

PARTITIONS_SHOWN = 8
FEW_PARTITIONS = 2  # beside tasks
_WIDEST = 110  # columns; lines longer than this tire the eye
_LABEL = 15

Piece = tuple[str, str]  # a text and its tone
Pieces = list[Piece]  # of a line


class StatusPanel:
    """A rich renderable of one status, made to fit the screen it is drawn on."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        for line in lay_out(self._status, width, options.size.height - 1):
            pieces = [Segment(text, STYLES[tone]) for text, tone in line]
            yield from Segment.adjust_line_length(pieces, width, pad=False)
            yield Segment.line()


def lay_out(status: Status, width: int, height: int) -> list[Pieces]:
    """The lines of a frame, at most ``height`` of them; what matters most comes first."""
    lines = [_title(status, width), _total(status, width)]
    lines += [[(f"! {text}", tone)] for _, text, tone in warnings(status)]
    age = f"written {figures.duration(status.plan_age_s)} ago"
    lines += [[], *map(_field, (*facts(status), Field("plan", status.plan_path, age)))]
    room = height - len(lines) - 3  # a blank, a heading and "and N more"
    if status.engine is not None and room > 0:
        # These tell more than partitions do, of which a few are enough then.
        few = min(len(status.partitions), FEW_PARTITIONS) + 2
        if rows := status.engine.rows(max(1, room - few)):
            lines += [[], *rows]
            room = height - len(lines) - 3
    if status.partitions and room > 0:
        lines += [[], *_partitions(status.partitions, width, min(room, PARTITIONS_SHOWN))]
    return [[(printable(text), tone) for text, tone in line] for line in lines[:height]]


def _title(status: Status, width: int) -> Pieces:
    left = f"Draining {status.topic} for group {status.group}"
    right = f"{figures.duration(status.elapsed_s)} so far"
    gap = max(2, width - len(right))
    return [(set_cell_size(left, gap - 2), Tone.STRONG), ("  ", Tone.PLAIN), (right, Tone.QUIET)]


def _total(status: Status, width: int) -> Pieces:
    share = share_finished(status.partitions)
    left = "no estimate yet" if status.eta_s is None else f"{figures.duration(status.eta_s)} left"
    text = f"  {figures.percent(share):>6}  {'finished' if share >= 1 else left:>15}"
    return [*_bar(share, width - len(text)), (text, Tone.STRONG)]


def _field(field: Field) -> Pieces:
    note = f"   {field.note}" if field.note else ""
    return [
        (field.label.ljust(_LABEL), Tone.QUIET),
        (field.value, field.tone),
        (note, Tone.QUIET),
    ]


def _partitions(partitions: Sequence[PartitionStatus], width: int, room: int) -> Iterator[Pieces]:
    shown: Sequence[PartitionStatus] = partitions
    if len(partitions) > room:
        worst = nlargest(room, partitions, key=lambda part: part.end - part.start - finished(part))
        shown = sorted(worst, key=lambda part: part.partition)  # rows that don't change places
    rows = [
        ("partition", "watermark", "committed", "end"),
        *(
            (
                str(part.partition),
                str(part.watermark),
                figures.offset(part.committed),
                str(part.end),
            )
            for part in shown
        ),
    ]
    heading, *cells = figures.aligned(rows)
    bar = width - sum(map(len, heading)) - 2 * len(heading) - 8
    yield [(heading[0] + " " * max(0, bar + 10) + "  ".join(heading[1:]), Tone.QUIET)]
    for part, row in zip(shown, cells, strict=True):
        share = share_finished((part,))
        done = (OK, Tone.GOOD) if share >= 1 else (figures.percent(share), Tone.PLAIN)
        yield [
            (row[0] + "  ", Tone.PLAIN),
            *_bar(share, bar - 2),
            (f"  {done[0]:>6}  ", done[1]),
            ("  ".join(row[1:]), Tone.PLAIN),
        ]
    more = len(partitions) - len(shown)
    if more:
        complete = sum(part.complete for part in partitions)
        yield [(f"and {more:,} more, {complete:,} of {len(partitions):,} complete", Tone.QUIET)]


def _bar(share: float, width: int) -> Pieces:
    if width < 4:
        return []
    halves = int(share * width * 2)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    # Light against heavy, so that it reads without colour.
    return [(full, Tone.GOOD), ("─" * (width - len(full)), Tone.QUIET)]
