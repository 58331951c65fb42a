"""A backlog as it was found: what is urgent first, then figures, then bars."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from drainer.core.listed import listed
from drainer.engine.status import RuleStatus
from drainer.insight.inspection import Inspection, PartitionInspection
from drainer.insight.retention import ARRIVALS_S
from drainer.insight.statistics.contents import Bin
from drainer.insight.statistics.kind import UNKNOWN
from drainer.insight.statistics.sketch import Share
from drainer.insight.statistics.skew import Skew
from drainer.insight.view.bars import show_bars
from drainer.insight.view.retention import doomed_warning
from drainer.policy.rules.settings import LIMIT, RuleSettings
from drainer.view import figures
from drainer.view.layout import HEAD_STYLE, QUIET_STYLE, SHOWN, WARN_STYLE, field, table
from drainer.view.rules import undecided_lines
from drainer.view.terminal import Terminal

_DAY_S = 24 * 3600
NAME_WIDTH = 40
FEWEST_BARS = 2  # one bar compares nothing
LEAST_SHOWN = 0.0005  # of a share in the lists


def show_inspection(
    terminal: Terminal, found: Inspection, drained_in_s: float | None = None
) -> None:
    """All of it; what is urgent also when quiet. ``drained_in_s`` is how long a drain takes."""
    for warning in warnings(found, drained_in_s):
        terminal.warn(warning)
    terminal.show(_headline(found))
    if (hot := hot_row(found)) is not None:
        terminal.show(Text(hot, WARN_STYLE))
    terminal.say("")
    for label, value, note in fields(found):
        terminal.show(field(label, value, note))
    terminal.say("")
    _show_partitions(terminal, found)
    _show_contents(terminal, found)
    if found.skew is not None and found.skew.messages:
        _show_skew(terminal, found, found.skew)
    if found.failures is not None and found.failures.hint:
        terminal.hint(found.failures.hint)


def show_rules_asked(
    terminal: Terminal, rules: RuleSettings, found: Inspection, status: RuleStatus
) -> None:
    """What each rule would leave out of the backlog."""
    skew, subs = found.skew, found.sub_messages
    if skew is None or subs is None:
        return
    terminal.say("")
    shares = {share.name: share for share in skew.rules}
    names = [rule.name for rule in rules.skip] + ([LIMIT] if rules.limit_per_key else [])
    of = f"{_about(found)}{figures.about(subs.value)} sub-messages"
    for name in names:
        share = shares.get(name)
        if share is None:
            read = "the backlog" if found.reading.full else "what was read"
            text, note = f"nothing of {read}", ""
        else:
            text = f"{_about(found)}{figures.about(share.share * subs.value)} of {of}"
            note = figures.share(share.share) + ("" if found.reading.full else f", {_off(share)}")
        line = field("would skip", text, note)
        line.append(f"  {_short(name)}", QUIET_STYLE)
        terminal.show(line)
    for line in undecided_lines(status):
        terminal.show(line)


def warnings(found: Inspection, drained_in_s: float | None = None) -> list[str]:
    """What can't wait, the most urgent first.

    Retention is too near when it is sooner than the drain would end, where that is known.
    """
    said: list[str] = []
    if (too_near := doomed_warning(found.head_doomed, drained_in_s)) is not None:
        said.append(too_near)
    said += found.remarks
    if found.offline:
        said.append(f"{_list(found.offline)}: no leader, and so not counted here")
    if found.under_min_in_sync:
        said.append(
            f"{_list(found.under_min_in_sync)}: fewer replicas in sync than min.insync.replicas"
            f" ({found.min_in_sync}): no write with acks=all is taken"
        )
    if found.under_replicated:
        said.append(f"{_list(found.under_replicated)}: under-replicated")
    if found.failures is not None:
        many = figures.counted(found.failures.messages, "message")
        said.append(f"split did not take {many}: {found.failures.first}")
    return said


def hot_row(found: Inspection) -> str | None:
    """``one sub-key holds 38% (±2%) of the work: ~4.8M updates to 'app-admin'``, if one is hot."""
    hot, subs = found.hot, found.sub_messages
    if hot is None or subs is None:
        return None
    exact = found.reading.full and hot.low == hot.high
    share = figures.share(hot.share) + ("" if exact else f" ({_off(hot)})")
    updates = figures.about(hot.share * subs.value)
    return (
        f"one sub-key holds {share} of the work: {'' if exact else '~'}{updates} updates to"
        f" {_short(hot.name)}; so no concurrency drains more than {1 / hot.share:,.1f} times faster"
        " than one at a time"
    )


def _headline(found: Inspection) -> Text:
    title = f"{found.topic}, for group {found.group.name}: "
    if not found.offsets:
        return Text.assemble((title, HEAD_STYLE), "no backlog")
    state = f"{_about(found)}{figures.counted(found.messages, 'message')} behind"
    if found.age_s is not None:
        state += f", the oldest {figures.duration(found.age_s)} old"
    return Text.assemble((title, HEAD_STYLE), (state, HEAD_STYLE))


def fields(found: Inspection) -> list[tuple[str, str, str]]:
    """A label, a value and a note for each thing that is known of the whole backlog."""
    return [
        (
            "backlog",
            f"{_about(found)}{figures.counted(found.messages, 'message')}",
            f"{figures.counted(found.offsets, 'offset')}" + _holes(found),
        ),
        ("bytes", *_bytes(found)),
        ("arrivals", *_arrivals(found)),
        ("retention", *_retention(found)),
        ("group", *_group(found)),
        ("replication", _replication(found), ""),
        ("isolation", found.isolation, ""),
        *([("handler", found.handler, "")] if found.handler else []),
        ("read", *_reading(found)),
    ]


def _holes(found: Inspection) -> str:
    if found.reading.full or not found.offsets:
        return ""
    if found.messages == found.offsets:
        return ", no holes in the sample"
    return ", holes estimated from the sample"


def _bytes(found: Inspection) -> tuple[str, str]:
    text = f"{_about(found)}{figures.size(found.bytes)}"
    if found.reading.full:
        return text, "keys and values"
    error = found.bytes_error
    known = "" if error is None else f", ±{figures.size(round(error))}"
    return text, f"keys and values, from sampled sizes{known}"


def _arrivals(found: Inspection) -> tuple[str, str]:
    lately = f"over the last {figures.duration(ARRIVALS_S)}"
    text = f"{figures.rate(found.arrivals_per_s)} offsets/s {lately}"
    if found.arrivals_s is None:
        return text, ""
    return text, f"at that rate the backlog is {figures.duration(found.arrivals_s)} of arrivals"


def _retention(found: Inspection) -> tuple[str, str]:
    kept = found.retention
    if not kept.known:
        return figures.UNKNOWN, "this user may not see the topic's configuration"
    words = [kept.policy]
    if kept.deletes and kept.ms is not None:
        words.append(f"after {figures.duration(kept.ms / 1000)}")
    if kept.deletes and kept.bytes is not None:
        words.append(f"beyond {figures.size(kept.bytes)} a partition")
    if kept.compacts:
        return " ".join(words), "a record goes when a later one has its key"
    if not kept.deletes:
        return "nothing is deleted", ""
    left = found.retention_s
    if left is None:
        return " ".join(words), "when it reaches the head of the backlog can't be told"
    note = f"the head of the backlog goes in {figures.duration(left)} at the earliest"
    return " ".join(words), note if left else "the head of the backlog may go at any moment"


def _group(found: Inspection) -> tuple[str, str]:
    state, members = found.group.state, found.group.members
    if state == "dead":
        return "none", "no group of this name is known"
    if not found.group.active:
        return state, ""
    names = listed(members) or "members on their way"
    return state, f"{names}; a drain needs it empty: stop them first"


def _replication(found: Inspection) -> str:
    troubled = [*found.offline, *found.under_min_in_sync, *found.under_replicated]
    if not troubled:
        return "all replicas in sync"
    return f"{figures.counted(len(troubled), 'partition')} in trouble"


def _reading(found: Inspection) -> tuple[str, str]:
    reading, contents = found.reading, found.contents
    read = figures.counted(contents.messages, "message")
    took = f"in {figures.duration(reading.read_s)}"
    if reading.tasks is not None:
        took += f" by {figures.counted(reading.tasks, 'task')} on Spark"
    if found.skew is not None:
        of = "" if reading.tasks is None else " of theirs"
        took += f", split in {figures.duration(reading.split_s)}{of}"
    if reading.full:
        return f"all {read}" if found.offsets else "nothing", took if found.offsets else ""
    share = figures.share(reading.offsets / found.offsets)
    windows = figures.counted(reading.windows, "window")
    return f"{read} in {windows}, {share} of the backlog", f"{took}; --full reads it all"


def _show_partitions(terminal: Terminal, found: Inspection) -> None:
    if len(found.partitions) == 1 and not found.partitions[0].offline:
        part = found.partitions[0]
        place = f"[{part.start}, {part.end})"
        terminal.show(field("partition", f"{part.partition}, offsets {place}", _committed(part)))
        return
    ranked = sorted(found.partitions, key=lambda p: (not p.offline, -p.messages, p.partition))
    rows = table(
        "partition", "committed", "[start, end)", "messages", "bytes", "oldest", "offsets/s",
        "kept for", "in sync",
    )  # fmt: skip
    for part in ranked[:SHOWN]:
        in_sync = f"{len(part.replicas.in_sync)}/{len(part.replicas.all)}"
        if part.offline:
            rows.add_row(str(part.partition), Text("no leader", WARN_STYLE), *[""] * 6, in_sync)
            continue
        rows.add_row(
            str(part.partition),
            "none" if part.committed is None else str(part.committed),
            f"[{part.start}, {part.end})",
            figures.count(part.messages),
            figures.size(part.bytes),
            "" if part.age_s is None else figures.duration(part.age_s),
            figures.rate(part.arrivals_per_s),
            "" if part.doom is None else figures.duration(part.doom.in_s),
            Text(in_sync, WARN_STYLE if part.under_replicated else ""),
        )
    terminal.show(rows)
    if rest := ranked[SHOWN:]:
        left = f"{_about(found)}{figures.counted(sum(p.messages for p in rest), 'message')}"
        more = figures.counted(len(rest), "more partition")
        terminal.show(Text(f"and {more}, with {left}", QUIET_STYLE))


def _committed(part: PartitionInspection) -> str:
    return "no committed offset" if part.committed is None else f"committed {part.committed}"


def _show_contents(terminal: Terminal, found: Inspection) -> None:
    contents = found.contents
    if contents.sizes is not None:
        sizes = contents.sizes
        terminal.say("")
        beside = [f"p50 {_size(sizes.p50)}", f"p99 {_size(sizes.p99)}", f"max {_size(sizes.most)}"]
        if contents.tombstones:
            beside.append(figures.counted(contents.tombstones, "tombstone"))
        rows = [(f"{_size(b.low)} to {_size(b.high)}", b) for b in sizes.bins]
        _show_bins(terminal, "message size", rows, ", ".join(beside))
    if found.ages:
        terminal.say("")
        note = "of all offsets"
        if contents.undated:
            note += f"; {figures.counted(contents.undated, 'message')} read without a timestamp"
        rows = [(_age_label(number, found.ages), b) for number, b in enumerate(found.ages)]
        _show_bins(terminal, "message age", rows, note)
    _show_shares(
        terminal,
        "hottest message keys",
        contents.hottest_keys,
        f"{figures.counted(contents.message_keys.estimate, 'key')} in what was read",
    )


def _age_label(number: int, bins: Sequence[Bin]) -> str:
    low, high = (_age(age_s) for age_s in (bins[number].low, bins[number].high))
    if not number:
        return f"up to {high}"
    return f"{low} and more" if number == len(bins) - 1 else f"{low} to {high}"


def _age(seconds: float) -> str:
    # The edges of bins are round: in whole days two of them would be called the same.
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:g} days"
    return figures.duration(seconds).removesuffix(" 00m").removesuffix(" 00s")


def _show_skew(terminal: Terminal, found: Inspection, skew: Skew) -> None:
    fan_out, subs = skew.fan_out, found.sub_messages
    terminal.say("")
    if subs is not None:
        known = "" if not subs.error else f" ±{figures.about(subs.error)}"
        count = figures.count(round(subs.value))
        terminal.show(field("sub-messages", f"{_about(found)}{count}{known}", "of the backlog"))
    error = fan_out.mean.error
    mean = f"{fan_out.mean.value:,.1f}{f' ±{error:,.1f}' if error else ''} a message"
    spread = f"p50 {fan_out.p50:,}, p99 {fan_out.p99:,}, max {fan_out.most:,}"
    terminal.show(field("fan-out", mean, spread))
    if skew.empty:
        none = figures.counted(skew.empty, "message")
        terminal.show(field("empty", f"{none} split into nothing"))
    if skew.barriers:
        terminal.show(field("barriers", figures.count(skew.barriers), "each runs alone"))
    keys = skew.sub_keys
    differ = "" if keys.low == keys.high else f", {keys.low:,} to {keys.high:,}"
    about = "~" if differ else ""
    where = "in the backlog" if found.reading.full else "in the sample"
    more = "" if found.reading.full else "; the backlog may have more"
    terminal.show(field("sub-keys", f"{about}{keys.estimate:,}", f"{where}{differ}{more}"))
    if found.reading.split_s and skew.messages:
        each_us = found.reading.split_s / skew.messages * 1e6
        terminal.show(field("split takes", f"{each_us:,.0f} µs a message", "with the counting"))
    _show_shares(terminal, "hottest sub-keys", skew.hottest, "of all sub-messages")
    known_kinds = [kind for kind in skew.kinds if kind.name != UNKNOWN]
    if known_kinds:
        _show_shares(terminal, "kinds of sub-messages", skew.kinds, "of all sub-messages")


def _show_bins(terminal: Terminal, title: str, rows: Sequence[tuple[str, Bin]], note: str) -> None:
    bars = [(label, part.share, figures.share(part.share)) for label, part in rows]
    told_apart = FEWEST_BARS <= len(bars) == len({label for label, _, _ in bars})
    show_bars(terminal, title, bars if told_apart else (), note=note)


def _show_shares(terminal: Terminal, title: str, shares: Sequence[Share], note: str) -> None:
    # What came once or twice in a sample is no hot one.
    shown = [s for s in shares if s.share >= LEAST_SHOWN and s.low > 0]
    if not shown:
        return
    terminal.say("")
    rows = [(_short(s.name), s.share, f"{figures.share(s.share)}  {_interval(s)}") for s in shown]
    show_bars(terminal, title, rows, note=note, longest=1.0 if shown[0].share > 0.2 else None)


def _interval(share: Share) -> str:
    if share.low == share.high:
        return figures.count(share.count)
    return _off(share)


def _off(share: Share) -> str:
    # The wider side of it: near nothing and near all of it the other one is cut off.
    off = max(share.high - share.share, share.share - share.low)
    return f"±{off * 100:.1f}%" if off >= 0.0005 else "±<0.1%"


def _about(found: Inspection) -> str:
    return "" if found.reading.full else "~"


def _size(number: float) -> str:
    return figures.size(round(number))


def _short(name: str) -> str:
    return figures.shorten(name, NAME_WIDTH)


def _list(parts: Sequence[PartitionInspection]) -> str:
    names = listed([part.partition for part in parts])
    return f"partition {names}" if len(parts) == 1 else f"partitions {names}"
