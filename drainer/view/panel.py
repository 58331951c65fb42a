"""One frame of the live view: a status laid out for a screen.

It makes rich's segments itself: a grid of tables costs five times as much to measure and lay out,
and the frame is drawn by the thread that the drain runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from drainer.engine.status import FailureStatus, PartitionStatus, RuleStatus, Status
from drainer.escape import printable
from drainer.view import figures
from drainer.view.deadline import deadline_warning, deadline_words
from drainer.view.layout import STYLES
from drainer.view.page import OK, Tone

PARTITIONS_SHOWN = 8
FEW_PARTITIONS = 2  # beside tasks
_WIDEST = 110  # columns; lines longer than this tire the eye
_LABEL = 15
_HOTTEST_SHOWN = 3

Piece = tuple[str, str]  # a text and its tone
Pieces = list[Piece]  # of a line


def share_finished(partitions: Iterable[PartitionStatus]) -> float:
    """How much of a backlog is finished, 0 to 1: 1 only when it is complete.

    Offsets have holes, so messages alone would never get there; the watermark alone would stand
    still behind one slow lane. Each is a lower bound, and the better one of each partition counts.
    """
    offsets, finished, complete = 0, 0, True
    for part in partitions:
        offsets += part.end - part.start
        finished += _finished(part)
        complete = complete and part.complete
    if complete:
        return 1.0
    return min(finished / offsets, 0.9999) if offsets > 0 else 0.0


def limit(status: Status) -> str:
    """What keeps the drain from going faster, in a few words."""
    if status.engine is not None:
        return status.engine.limit(status)
    if status.running >= 0.95 * status.concurrency:
        return writing_capped_by(status) or "the handler: every worker is busy"
    if status.lanes_ready > status.concurrency:
        return "this machine: workers can't be fed fast enough"
    if all(part.position >= part.end for part in status.partitions):
        return "the tail: all is read, the last lanes are finishing"
    if status.buffered_bytes >= 0.9 * status.buffer_bytes:
        return "order: the buffer is full, its few sub-keys go one at a time"
    return reading_capped_by(status) or "reading: workers wait for messages"


def writing_capped_by(status: Status) -> str | None:
    """The cap that holds the drain back now."""
    if status.write_cap is None or not status.write_cap.binds:
        return None
    return f"the brokers' limits: {figures.cap(status.write_cap)} written at most"


def reading_capped_by(status: Status) -> str | None:
    """The cap that reading waits for; it is the drain's limit when nothing else is."""
    if status.read_cap is None or not status.read_cap.binds:
        return None
    return f"the brokers' limits: {figures.cap(status.read_cap)} read at most"


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
    share = share_finished(status.partitions)
    lines = [_title(status, width), _total(share, status, width), *_alarms(status)]
    lines += [[], *_figures(status, share)]
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


def _total(share: float, status: Status, width: int) -> Pieces:
    left = "no estimate yet" if status.eta_s is None else f"{figures.duration(status.eta_s)} left"
    text = f"  {figures.percent(share):>6}  {'finished' if share >= 1 else left:>15}"
    return [*_bar(share, width - len(text)), (text, Tone.STRONG)]


def blocking_warning(place: str) -> str:
    return (
        f"the handler blocks the event loop at {place}: nothing else runs meanwhile. Declare"
        " `handle` as a plain `def`, which runs on threads, or await an async client there"
    )


def _alarms(status: Status) -> Iterator[Pieces]:
    if status.trouble is not None:
        yield [(f"! {status.trouble}", Tone.WARN)]
    if status.blocked_by is not None:
        yield [(f"! {blocking_warning(status.blocked_by)}", Tone.WARN)]
    late = status.deadline is not None and status.deadline.outlook.late
    if late and (warning := deadline_warning(status)) is not None:
        yield [(f"! {warning}", Tone.BAD)]
    if status.stopping is not None:
        yield [(f"■ stopping: {status.stopping}", Tone.WARN)]


def _figures(status: Status, share: float) -> Iterator[Pieces]:
    count = figures.count
    messages = sum(part.messages_finished for part in status.partitions)
    total = sum(part.end - part.start for part in status.partitions)
    yield _field("messages", f"{count(messages)} of ~{count(total)} finished")
    subs = status.sub_messages
    line = _field("sub-messages", f"{count(subs.finished)} finished")
    for number, what, tone in (
        (subs.skipped, "skipped", Tone.PLAIN),
        (subs.failed, "failed", Tone.BAD),
        (subs.dead, "dead", Tone.BAD),
    ):
        if number:
            line += [(", ", Tone.PLAIN), (f"{count(number)} {what}", tone)]
    yield line
    if left_out := _left_out(status.rules):
        yield _field("left out", left_out)
    if failing := list(_failing(status.failures)):
        yield [("failures".ljust(_LABEL), Tone.QUIET), *failing]
    now, average = figures.rate(status.rate_now), figures.rate(status.rate_average)
    yield _field("speed", f"{now} sub-messages/s", f"average {average}")
    if status.engine is not None:
        yield _field(*status.engine.field)
    yield _field(
        "workers",
        f"{count(status.running)} of {count(status.concurrency)} busy",
        f"{count(status.lanes_ready)} of {count(status.lanes)} lanes wait for one",
    )
    if status.auto is not None:
        yield _field("concurrency", f"{count(status.auto.limit)} (auto, {status.auto.why})")
    if status.latency_recent is not None:
        yield _field("latency", figures.latency(status.latency_recent), "of the last seconds")
    if status.deadline is not None:
        late = status.deadline.outlook.late
        words = deadline_words(status.deadline)
        yield [("deadline".ljust(_LABEL), Tone.QUIET), (words, Tone.BAD if late else Tone.PLAIN)]
    ending = share >= 1 or status.stopping is not None
    if not ending:
        yield _field("limited by", limit(status))
    hottest = "   ".join(
        f"{figures.sub_key(key, 18)} {count(waiting)}"
        for key, waiting in status.hottest[:_HOTTEST_SHOWN]
    )
    if hottest or not ending:
        yield _field("hottest lanes", hottest or "-")
    buffered, buffer = figures.size(status.buffered_bytes), figures.size(status.buffer_bytes)
    yield _field("buffer", f"{buffered} of {buffer}")
    age = f"written {figures.duration(status.plan_age_s)} ago"
    yield _field("plan", status.plan_path, age)


def _failing(failures: FailureStatus) -> Iterator[Piece]:
    count = figures.count
    if not (failures.failures or failures.retries or failures.parked_lanes):
        return
    yield (count(failures.failures), Tone.WARN if failures.failures else Tone.PLAIN)
    for number, words in (
        (failures.retries, f"{count(failures.retries)} retried"),
        (failures.waiting, f"{count(failures.waiting)} waiting for it"),
        (failures.timeouts, f"{count(failures.timeouts)} timed out"),
        (failures.late, f"{count(failures.late)} still in their threads"),
        (failures.parked_lanes, f"{figures.counted(failures.parked_lanes, 'lane')} parked"),
    ):
        if number:
            yield (f", {words}", Tone.PLAIN)
    if failures.errors:
        kind, times = failures.errors[0]
        yield (f"   {count(times)} x {kind}", Tone.QUIET)


def _left_out(rules: RuleStatus) -> str:
    """The rules that skipped the most, in a few words."""
    most = sorted(rules.skipped_by.items(), key=lambda item: -item[1])[:2]
    words = [f"{figures.count(n)} by {figures.shorten(name, 30)}" for name, n in most if n]
    if (unsure := sum(rules.undecided.values())) > 0:
        words.append(f"{figures.count(unsure)} can't be told")
    return ", ".join(words)


def _field(label: str, value: str, note: str = "") -> Pieces:
    line: Pieces = [(label.ljust(_LABEL), Tone.QUIET), (value, Tone.PLAIN)]
    if note:
        line.append((f"   {note}", Tone.QUIET))
    return line


def _partitions(partitions: Sequence[PartitionStatus], width: int, room: int) -> Iterator[Pieces]:
    shown: Sequence[PartitionStatus] = partitions
    if len(partitions) > room:
        worst = nlargest(room, partitions, key=lambda part: part.end - part.start - _finished(part))
        shown = sorted(worst, key=lambda part: part.partition)  # rows that don't change places
    rows = [
        ("partition", "watermark", "committed", "end"),
        *(
            (
                str(part.partition),
                str(part.watermark),
                "none" if part.committed is None else str(part.committed),
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


def _finished(part: PartitionStatus) -> int:
    offsets = part.end - part.start
    return min(offsets, max(part.messages_finished, part.watermark - part.start))


def _bar(share: float, width: int) -> Pieces:
    if width < 4:
        return []
    halves = int(share * width * 2)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    # Light against heavy, so that it reads without colour.
    return [(full, Tone.GOOD), ("─" * (width - len(full)), Tone.QUIET)]
