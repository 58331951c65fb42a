"""One frame of the live view: a status laid out for a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest

from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from drainer.engine.status import PartitionStatus, Status
from drainer.escape import printable
from drainer.view import figures
from drainer.view.layout import STYLES, Pieces, pieces
from drainer.view.page import Field, Tone
from drainer.view.progress import facts, finished, share_finished, warnings

PARTITIONS_SHOWN = 8
FEW_PARTITIONS = 2  # beside tasks, which say more
_WIDEST = 110  # columns; lines longer than this tire the eye


class StatusPanel:
    """A rich renderable of one status, made to fit the screen it is drawn on."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        for line in lay_out(self._status, width, options.size.height - 1):
            # Texts of rich's would be measured and wrapped, by the thread that the drain runs on.
            segments = [Segment(printable(text), STYLES[tone]) for text, tone in line]
            yield from Segment.adjust_line_length(segments, width, pad=False)
            yield Segment.line()


def lay_out(status: Status, width: int, height: int) -> list[Pieces]:
    """The lines of a frame, at most ``height`` of them; what matters most comes first."""
    lines = [_title(status, width), _total(status, width)]
    lines += [[(f"! {text}", tone)] for _, text, tone in warnings(status)]
    plan = Field("plan", status.plan_path, f"written {figures.duration(status.plan_age_s)} ago")
    lines += [[], *map(pieces, (*facts(status), plan))]
    if status.engine is not None:
        room = height - len(lines) - FEW_PARTITIONS - 5  # two blanks and headings, "and N more"
        if room > 0 and (rows := status.engine.rows(room)):
            lines += [[], *rows]
    room = height - len(lines) - 3  # a blank, a heading and "and N more"
    if status.partitions and room > 0:
        lines += [[], *_partitions(status.partitions, width, min(room, PARTITIONS_SHOWN))]
    return lines[:height]


def _title(status: Status, width: int) -> Pieces:
    left = f"Draining {status.topic} for group {status.group}"
    right = f"{figures.duration(status.elapsed_s)} so far"
    gap = max(2, width - len(right))
    return [(set_cell_size(left, gap), Tone.STRONG), (right, Tone.QUIET)]


def _total(status: Status, width: int) -> Pieces:
    share = share_finished(status.partitions)
    left = "no estimate yet" if status.eta_s is None else f"{figures.duration(status.eta_s)} left"
    text = f"  {figures.percent(share):>6}  {'finished' if share >= 1 else left:>15}"
    return [*_bar(share, width - len(text)), (text, Tone.STRONG)]


def _partitions(partitions: Sequence[PartitionStatus], width: int, room: int) -> Iterator[Pieces]:
    shown: Sequence[PartitionStatus] = partitions
    if len(partitions) > room:
        worst = nlargest(room, partitions, key=lambda part: part.end - part.start - finished(part))
        shown = sorted(worst, key=lambda part: part.partition)  # rows that don't change places
    shares = [share_finished((part,)) for part in shown]
    rows = [
        (
            str(part.partition),
            str(part.watermark),
            figures.offset(part.committed),
            str(part.end),
            figures.percent(share),
        )
        for part, share in zip(shown, shares, strict=True)
    ]
    heading, *lines = map("  ".join, figures.aligned([_HEADING, *rows]))
    yield [(heading, Tone.QUIET)]
    for line, share in zip(lines, shares, strict=True):
        yield [(f"{line}  ", Tone.PLAIN), *_bar(share, width - len(line) - 2)]
    more = len(partitions) - len(shown)
    if more:
        complete = sum(part.complete for part in partitions)
        text = f"and {more:,} more, {complete:,} of {len(partitions):,} complete"
        yield [(text, Tone.QUIET)]


_HEADING = ("partition", "watermark", "committed", "end", "done")


def _bar(share: float, width: int) -> Pieces:
    if width < 4:
        return []
    halves = int(share * width * 2)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    # Light against heavy, so that it reads without colour.
    return [(full, Tone.GOOD), ("─" * (width - len(full)), Tone.QUIET)]
