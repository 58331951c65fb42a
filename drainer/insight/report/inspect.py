"""The report of a backlog that was looked at: how bad it is, why, and what is in it."""

from __future__ import annotations

from datetime import UTC, datetime

from drainer.insight.inspection import Inspection
from drainer.insight.report.spread import curve, histogram
from drainer.insight.statistics.contents import Spread
from drainer.insight.statistics.kind import UNKNOWN
from drainer.insight.statistics.skew import Skew
from drainer.insight.view.inspect import fields, hot_row, warnings
from drainer.view import figures
from drainer.view.layout import SHOWN
from drainer.view.report.chart import Chart, Line
from drainer.view.report.page import Moment, render

LEAST_SHOWN = 0.0005  # of a share in the tables


def inspection_page(found: Inspection, now: datetime, drained_in_s: float | None = None) -> str:
    """The page; ``now`` is in the zone that times are to be told in."""
    taken = datetime.fromtimestamp(found.taken_ms / 1000, UTC).astimezone(now.tzinfo)
    said = warnings(found, drained_in_s)
    parts = sorted(found.partitions, key=lambda p: (not p.offline, -p.messages, p.partition))
    most = max((part.messages for part in parts), default=0)
    return render(
        "inspect.html",
        now,
        found.as_json(),
        title=f"Backlog of {found.topic} for {found.group.name}",
        found=found,
        headline=_headline(found),
        about=_about(found),
        taken=Moment.of(taken),
        warnings=said,
        hot=hot_row(found),
        hint=found.failures.hint if found.failures else None,
        fields=fields(found),
        charts=_charts(found),
        shares=_shares(found),
        least=LEAST_SHOWN,
        partitions=parts,
        most=most,
        shown=SHOWN,
    )


def _about(found: Inspection) -> str:
    return "" if found.reading.full else "~"


def _headline(found: Inspection) -> str:
    if not found.offsets:
        return "No backlog"
    state = f"{_about(found)}{figures.counted(found.messages, 'message')} behind"
    if found.age_s is None:
        return state
    return f"{state}, the oldest {figures.duration(found.age_s)} old"


def _shares(found: Inspection) -> list[tuple[str, str, object]]:
    """Title, what it is a share of, and the shares, for each table of them."""
    skew = found.skew
    made: list[tuple[str, str, object]] = []
    if skew is not None:
        made.append(("Hottest sub-keys", "of all sub-messages", skew.hottest))
        if any(kind.name != UNKNOWN for kind in skew.kinds):
            made.append(("Kinds of sub-messages", "of all sub-messages", skew.kinds))
        made.append(("What rules would leave out", "of all sub-messages", skew.rules))
    made.append(("Hottest message keys", "of all messages", found.contents.hottest_keys))
    return made


def _charts(found: Inspection) -> list[Chart]:
    contents = found.contents
    made = []
    if len(found.ages) > 1:
        made.append(_ages(found))
    if found.skew is not None and len(found.skew.curve) > 1:
        made.append(_skew(found, found.skew))
    if contents.sizes is not None and len(contents.sizes.bins) > 1:
        made.append(_sizes(found, contents.sizes))
    return made


def _ages(found: Inspection) -> Chart:
    bins = found.ages[::-1]
    step = figures.plain_duration(bins[0].high - bins[0].low)
    # The youngest first, so up to where the half is reached.
    half, reached = bins[-1], 0.0
    for each in found.ages:
        half, reached = each, reached + each.share
        if reached >= 0.5:
            break
    return histogram(
        "ages",
        "Backlog by age",
        f"How old its messages are, in offsets for each {step}; half of them are younger than"
        f" {figures.plain_duration(half.high)}.",
        [figures.plain_duration(edge) for edge in (bins[0].high, *(part.low for part in bins))],
        [part.share * found.offsets for part in bins],
        "age",
    )


def _sizes(found: Inspection, sizes: Spread) -> Chart:
    bins = sizes.bins
    return histogram(
        "sizes",
        "Backlog by size of message",
        f"Keys and values, each step twice the one before: half of the messages up to"
        f" {_size(sizes.p50)}, 99% up to {_size(sizes.p99)}, the largest {_size(sizes.most)}.",
        [_size(bins[0].low), *(_size(part.high) for part in bins)],
        [part.share * found.messages for part in bins],
        "bytes of a message",
    )


def _skew(found: Inspection, skew: Skew) -> Chart:
    x = [count for count, _ in skew.curve]
    keys = max(1, skew.sub_keys.estimate)
    first = figures.share(skew.curve[0][1])
    return curve(
        "skew",
        "Skew of the work",
        f"The share of all sub-messages that the hottest sub-keys have together; the hottest alone"
        f" has {first}. Were all alike, it would be the dashed line.",
        x,
        [
            Line("hottest sub-keys together", [share for _, share in skew.curve], "c1"),
            Line("were all alike", [min(1.0, count / keys) for count in x], "c8", dashed=True),
        ],
        "number of hottest sub-keys, logarithmic",
        "share",
    )


def _size(number: float) -> str:
    return figures.size(round(number))
