"""``drainer inspect``: its options, and the page that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from drainer.cli.command import command, only
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.declared import next_command
from drainer.cli.options import InspectedOptions, Limits, PayloadOptions
from drainer.insight.inspection import (
    HOT_SHARE,
    SAMPLE_MESSAGES,
    SAMPLE_MOST,
    Inspection,
    InspectRequest,
    PartitionInspection,
    inspect_backlog,
)
from drainer.insight.retention import ARRIVALS_S, Expiry
from drainer.insight.survey import ItemShare
from drainer.loading.loader import LoadedHandler
from drainer.model.codec import builtins
from drainer.model.listed import listed
from drainer.model.option import number, option
from drainer.model.settings import FailureSettings
from drainer.text.escape import shorten
from drainer.view import caps, figures
from drainer.view.live import RunningLine
from drainer.view.page import (
    Cell,
    Column,
    Field,
    Item,
    Line,
    Page,
    Section,
    Table,
    Tone,
    bars,
    section,
)
from drainer.view.policy import skip_lines, undecided_lines
from drainer.view.terminal import Terminal

READING_S = 2.0  # The time between two lines of progress where nothing can be redrawn.
NAME_WIDTH = 40  # A key is cut to this many characters.
NEAR_S = 24 * 3600  # Unless a drain's time is known, a deletion within this time is a warning.
LEAST_SHOWN = 0.0005  # The lists of hot keys leave out keys with a smaller share than this.
CHANCE = 2  # They also leave out keys that were seen at most this often, which may be chance.


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options for how much of the backlog is read."""

    sample: int = option(
        "Messages to read, spread evenly over the backlog.",
        SAMPLE_MESSAGES,
        number(1, SAMPLE_MOST),
        basic=True,
    )
    full: bool = option(
        "Read the whole backlog instead of a sample. Ctrl-C ends it.", False, basic=True
    )
    seed: int = option("Seed that selects the places to read.", 0)


@command
def inspect(
    context: typer.Context,
    what: InspectedOptions,
    payload: PayloadOptions,
    kafka: ConnectionOptions,
    reading: ReadingOptions,
    failures: Annotated[FailureSettings, only("skip")],
    limits: Limits,
    terminal: Terminal,
) -> None:
    """Show how large a backlog is, why, and when records expire.

    This only reads: drainer handles and commits nothing, and the group may be active. If you name a
    handler, drainer calls its split and nothing else. It then shows the spread over sub-keys, a hot
    sub-key, and what --skip would skip.

    Examples:

    - `drainer inspect --topic orders --group indexer -b localhost:9092`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --full`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --skip "payload.kind == 'set_email'"`
    """  # noqa: E501 - an example has to be on one line to be copied
    settings = kafka.settings()
    request = InspectRequest(
        topic=what.topic,
        group=what.group,
        handler=_handler(what.handler, payload, settings.extras),
        partitions=what.partitions,
        from_=what.from_,
        until=what.until,
        commits=not what.no_commit,
        messages=None if reading.full else reading.sample,
        seed=reading.seed,
        skip=failures.skip,
    )
    with connect(settings) as cluster, RunningLine(terminal, READING_S) as line:

        def show(read: int, of: int) -> None:
            line.draw(f"reading: {figures.count(read)} of {figures.counted(of, 'offset')}")

        found = inspect_backlog(cluster, request, show)
    page, capped = inspection_page(found, failures.skip), {}
    if limits is not None and found.messages and found.bytes:
        cap = limits.reading.cap(found.bytes / found.messages)
        capped = {"cap": builtins(cap)}
        of_limits = section("Broker limits", caps.fields_before(cap, found.messages))
        page = replace(page, sections=(*page.sections, of_limits))
    way = next_command(context, "run", leave_out=("sample", "full", "seed"))
    terminal.answer({**found.as_json(), **capped, "next": f"{way} --dry-run"}, page)


def _handler(
    reference: str | None, payload: PayloadOptions, extras: Mapping[str, str]
) -> LoadedHandler | None:
    if reference is None and payload != PayloadOptions():
        reference = "count"  # This handler splits only as the options say.
    return payload.load(reference, extras) if reference else None


def inspection_page(found: Inspection, skip: Sequence[str] = ()) -> Page:
    """Make the page of an inspection: the size of the backlog, its contents, and its keys."""
    return Page(
        _headline(found),
        (
            section("In words", _fields(found)),
            section("Partitions", _partitions(found)),
            section("Contents", _made_of(found)),
            section("", _ages(found)),
            *_shares(found),
            section("Skipped by rules", _skips(found, skip)),
        ),
        subject=f"{found.topic}, for group {found.group.name}",
        details=tuple(_verdict(found)),
        warnings=tuple(inspection_warnings(found)),
        hints=(found.failures.hint,) if found.failures else (),
        times=(datetime.fromtimestamp(found.taken_ms / 1000, UTC),),
        data=found.as_json(),
    )


def _skips(found: Inspection, skip: Sequence[str]) -> Iterator[Item]:
    skew, subs = found.skew, found.sub_messages
    if skew is not None and subs is not None:
        seen = {rule.name: round(rule.share * subs) for rule in skew.rules}
        counts = dict.fromkeys(skip, 0) | seen  # A rule that skips nothing is to be seen.
        yield from skip_lines("would skip", counts, subs, _about(found))
    yield from undecided_lines(found.rule_status)


def inspection_warnings(found: Inspection) -> list[str]:
    """Return the warnings, the most urgent first."""
    lines: list[str] = []
    if (too_near := expiry_warning(found.expiry)) is not None:
        lines.append(too_near)
    lines += found.remarks
    if found.offline:
        lines.append(f"{_list(found.offline)}: no leader, so drainer did not count it")
    if found.under_replicated:
        lines.append(f"{_list(found.under_replicated)}: under-replicated")
    if found.failures is not None:
        many = figures.counted(found.failures.messages, "message")
        lines.append(f"split failed on {many}: {found.failures.first}")
    return lines


def expiry_warning(expiry: Expiry | None, drained_in_s: float | None = None) -> str | None:
    """Return a warning that retention may delete the head of a backlog before it is drained.

    The result is None if there is enough time. ``drained_in_s`` is how long a drain takes; None if
    that is unknown.
    """
    if expiry is None or expiry.in_s >= (NEAR_S if drained_in_s is None else drained_in_s):
        return None
    when = f"in {figures.duration(expiry.in_s)}" if expiry.in_s > 0 else "at any moment"
    words = f"retention may delete the head of the backlog {when}"
    if drained_in_s is not None:
        words += f", and draining it takes about {figures.duration(drained_in_s)}"
    return f"{words}: {expiry.by}, offset {expiry.offset} of partition {expiry.partition}"


def _verdict(found: Inspection) -> Iterator[Line]:
    """Yield a line that says whether many calls at once can do the work."""
    if (hot := hot_key_sentence(found)) is not None:
        yield Line(hot, Tone.WARN)
    elif found.skew and found.skew.hottest and (most := found.skew.hottest[0]).share < HOT_SHARE:
        share = figures.share(most.share).removeprefix("<")
        yield Line(f"the work splits well: no sub-key has more than {share} of it", Tone.GOOD)


def hot_key_sentence(found: Inspection) -> str | None:
    """Return a sentence on the hot sub-key, and how fast it lets a drain be; None without one."""
    hot, subs = found.hot, found.sub_messages
    if hot is None or subs is None:
        return None
    what = "work" if found.reading.full else "sample"
    return (
        f"one sub-key has {figures.share(hot.share)} of the {what}:"
        f" {_about(found)}{figures.about(hot.share * subs)} updates to {_short(hot.name)}."
        f" However many workers, at most {1 / hot.share:,.1f}× faster than one"
    )


def _headline(found: Inspection) -> Line:
    if not found.offsets:
        return Line("no backlog", Tone.STRONG)
    state = f"{_about(found)}{figures.counted(found.messages, 'message')} behind"
    if found.age_s is not None:
        state += f", the oldest {figures.duration(found.age_s)} old"
    return Line(state, Tone.STRONG)


def _fields(found: Inspection) -> Iterator[Field]:
    about, lately = _about(found), f"over the last {figures.duration(ARRIVALS_S)}"
    messages = figures.counted(found.messages, "message")
    yield Field("backlog", f"{about}{messages}", figures.counted(found.offsets, "offset"))
    yield Field("bytes", f"{about}{figures.size(found.bytes)}", "keys and values")
    yield Field("arrivals", f"{figures.rate(found.arrivals_per_s)} offsets/s", lately)
    yield Field("retention", *_retention(found))
    yield Field("group", *_group(found))
    yield Field("isolation", found.isolation)
    if found.handler:
        yield Field("handler", found.handler)
    yield Field("read", *_reading(found))
    yield Field("topic", found.topic, f"id {found.topic_id}")
    yield Field("cluster", found.cluster_id)


def _retention(found: Inspection) -> tuple[str, str]:
    kept = found.retention
    if not kept.policy:
        return figures.UNKNOWN, "this user may not read the topic's configuration"
    words = [kept.policy]
    if kept.deletes and kept.ms is not None:
        words.append(f"after {figures.duration(kept.ms / 1000)}")
    if kept.deletes and kept.bytes is not None:
        words.append(f"beyond {figures.size(kept.bytes)} per partition")
    if "compact" in kept.policy:
        return " ".join(words), "Kafka keeps the last record of each key"
    if not kept.deletes:
        return "nothing is deleted", ""
    left = found.retention_s
    if left is None:
        return " ".join(words), "drainer can't predict when it reaches the head of the backlog"
    note = "Kafka may delete the head of the backlog at any moment"
    if left:
        note = f"Kafka keeps the head of the backlog for at least {figures.duration(left)}"
    return " ".join(words), note


def _group(found: Inspection) -> tuple[str, str]:
    if found.group.state == "dead":
        return "none", "Kafka has no group of this name"
    if not found.group.active:
        return found.group.state, ""
    note = f"{found.group.readers}; stop them first, because a drain needs the group empty"
    return found.group.state, note


def _reading(found: Inspection) -> tuple[str, str]:
    reading, contents = found.reading, found.contents
    read = figures.counted(contents.messages, "message")
    took = f"in {figures.duration(reading.read_s)}"
    if reading.full:
        return f"all {read}" if found.offsets else "nothing", took if found.offsets else ""
    share = figures.share(reading.offsets / found.offsets)
    return f"{read}, {share} of the backlog", f"{took}; --full reads it all"


def _partitions(found: Inspection) -> Table:
    ranked = sorted(found.partitions, key=lambda p: (not p.offline, -p.messages, p.partition))
    return Table(
        (
            *("partition", Column("committed"), "[start, end)", "messages", "bytes", "oldest"),
            *("offsets/s", "kept for", "ISR"),
        ),
        tuple(map(_row, ranked)),
    )


def _row(part: PartitionInspection) -> tuple[str | Cell, ...]:
    in_sync = f"{len(part.replicas.in_sync)}/{len(part.replicas.all)}"
    if part.offline:
        return (str(part.partition), Cell("no leader", Tone.WARN), *[""] * 6, in_sync)
    return (
        str(part.partition),
        figures.offset(part.committed),
        f"[{part.start}, {part.end})",
        figures.count(part.messages),
        figures.size(part.bytes),
        "" if part.age_s is None else figures.duration(part.age_s),
        figures.rate(part.arrivals_per_s),
        "" if part.expiry is None else figures.duration(part.expiry.in_s),
        Cell(in_sync, Tone.WARN if part.under_replicated else Tone.PLAIN),
    )


def _made_of(found: Inspection) -> Iterator[Field]:
    contents, size = found.contents, figures.size
    if contents.messages:
        sizes = contents.sizes
        spread = f"p50 {size(sizes.p50)}, p99 {size(sizes.p99)}, max {size(sizes.max)}"
        yield Field("message size", spread, "keys and values")
    if contents.tombstones:
        yield Field("tombstones", figures.count(contents.tombstones), "messages without a value")
    skew, subs = found.skew, found.sub_messages
    if skew is None or subs is None or not skew.messages:
        return
    yield Field("sub-messages", f"{_about(found)}{figures.count(subs)}", "of the backlog")
    fan_out = skew.fan_out
    spread = f"p50 {fan_out.p50:,}, p99 {fan_out.p99:,}, max {fan_out.max:,}"
    yield Field("fan-out", f"{fan_out.mean:,.1f} per message", spread)
    if skew.empty:
        yield Field("empty", f"{figures.counted(skew.empty, 'message')} split into no sub-messages")
    if skew.barriers:
        yield Field("barriers", figures.count(skew.barriers), "each runs alone")


def _days_and_hours(seconds: float) -> str:
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days}d {hours:02}h" if days >= 2 else figures.duration(seconds)


def _ages(found: Inspection) -> Table | None:
    edges = {edge for each in found.ages for edge in (each.low, each.high)}
    text: Callable[[float], str] = figures.duration
    if len(set(map(text, edges))) < len(edges):
        text = _days_and_hours
    rows = [
        (f"{text(each.high)} to {text(each.low)}", each.share, figures.share(each.share))
        for each in found.ages[::-1]
        if each.share
    ]
    return bars("age", "of all offsets", rows) if rows else None


def _shares(found: Inspection) -> Iterator[Section]:
    if found.skew is not None:
        yield _bars("hottest sub-keys", found.skew.hottest, "of the sub-messages read")
    yield _bars("hottest message keys", found.contents.hottest_keys, "of the messages read")


def _bars(title: str, shares: Sequence[ItemShare], note: str) -> Section:
    shown = [each for each in shares if each.share >= LEAST_SHOWN and each.count > CHANCE]
    if not shown:
        return section("")
    rows = [
        (_short(each.name), each.share, f"{figures.share(each.share)}  {figures.count(each.count)}")
        for each in shown
    ]
    return section("", bars(title, note, rows))


def _about(found: Inspection) -> str:
    return "" if found.reading.full else "~"


def _short(name: str) -> str:
    return shorten(name, NAME_WIDTH)


def _list(partitions: Sequence[int]) -> str:
    return f"partition{'' if len(partitions) == 1 else 's'} {listed(partitions)}"
