"""The command ``drainer lag``, and the page that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import typer

from drainer.cli.command import command
from drainer.cli.connecting import ConnectionOptions
from drainer.cli.declared import typed_words
from drainer.errors import EXIT_DONE, EXIT_FOUND
from drainer.lags.survey import OVER_S, Lags, survey_groups
from drainer.lags.verdict import GroupLag, PartitionLag, Verdict
from drainer.model.codec import builtins
from drainer.model.listed import clock_time, listed
from drainer.model.option import DURATION, LAG, Lag, option, options_of
from drainer.text.escape import command as command_text
from drainer.view import figures
from drainer.view.page import Cell, Column, Field, Line, Page, Table, Tone, section
from drainer.view.terminal import Terminal

SENTENCES = 5  # This many groups have a sentence of their own.
_TONES = {Verdict.KEEPING_UP: Tone.GOOD, Verdict.CATCHING_UP: Tone.PLAIN, Verdict.LOSING: Tone.BAD}


@dataclass(frozen=True, kw_only=True)
class LagOptions:
    """The groups, and how they are judged."""

    group: str = option(
        "Group, or a pattern such as 'index*'.",
        "*",
        unset="all groups",
        short="-g",
        basic=True,
        metavar="GROUP|PATTERN",
        proposes="group",
    )
    max_behind: Lag | None = option(
        "Fail if a partition is further behind: offsets, or the age of a record, such as 10m.",
        None,
        LAG,
        basic=True,
        envvar=None,
    )
    for_: float = option(
        "Time between the two looks. Give more if consumers commit less often than every 5 s.",
        OVER_S,
        DURATION,
        envvar=None,
    )


@command
def lag(
    context: typer.Context, what: LagOptions, kafka: ConnectionOptions, terminal: Terminal
) -> int:
    """Show how far groups are behind, and whether they catch up before records expire.

    drainer looks twice at all partitions of the topics on which a group has committed or that its
    members read. This includes partitions without a committed offset and without a reader. It joins
    no group and commits nothing. With --max-behind, the exit code is 7 if a partition is further
    behind, or if its lag can't be read.

    Examples:

    - `drainer lag -b localhost:9092`
    - `drainer lag -g indexer -b localhost:9092`
    - `drainer lag -g 'index*' -b localhost:9092 --max-behind 10m -o json`
    """
    found = survey_groups(kafka.settings(), what.group, what.for_, terminal.print_line)
    most = what.max_behind
    failing = [each.group for each in found.groups if most is not None and not each.is_within(most)]
    code = EXIT_FOUND if failing else EXIT_DONE
    page = lag_page(found, typed_words(context, options_of(ConnectionOptions).values()), failing)
    status = {"status": "failed" if code else "ok", "exit_code": code}
    terminal.answer({**status, **builtins(found)}, page)
    return code


def _next_command(found: GroupLag, connection: tuple[str, ...]) -> str | None:
    """Return the command that finds out why a group does not keep up; None if it keeps up."""
    late = next((each for each in found.partitions if each.behind), None)
    if found.verdict is Verdict.KEEPING_UP or late is None:
        return None
    what = ("--topic", late.topic, "--group", found.group)
    return command_text("inspect", options=(*what, *connection))


def lag_page(found: Lags, connection: tuple[str, ...] = (), failing: Sequence[str] = ()) -> Page:
    """Make a page of the groups: a sentence for each of the worst, and a table."""
    now, groups = datetime.fromtimestamp(found.taken_ms / 1000, UTC), found.groups
    late = [each for each in groups if each.verdict is not Verdict.KEEPING_UP]
    counts = [(sum(g.verdict is v for g in groups), v.value) for v in Verdict]
    words = f"{len(groups):,} groups: {figures.tally(*counts)}"
    worst, *_ = groups
    way = _next_command(worst, connection)
    columns = ("offsets behind", "time behind", "change/s", "outlook", Column("note", wide=True))
    if len(groups) > 1:
        rows = [_row(each.group, each, ", ".join(_notes(each)), now) for each in groups]
        if way is not None:
            way = command_text("lag", options=("--group", worst.group, *connection))
        details = [Line(f"  {g.group}: {_sentence(g, now)}", _tone(g)) for g in late[:SENTENCES]]
    else:
        words, details = _sentence(worst, now), []
        rows = [_row(f"{p.topic}/{p.partition}", p, _note(p, worst), now) for p in worst.partitions]
    first = Column("group" if len(groups) > 1 else "partition")
    warnings = list(found.remarks)
    if failing:
        warnings.append(f"further behind than --max-behind allows, or unknown: {listed(failing)}")
    return Page(
        Line(words, Tone.BAD if failing else _tone(worst)),
        (section("Lag", Table((first, *columns), tuple(rows))),),
        subject=worst.group if len(groups) == 1 else "",
        details=tuple(details),
        warnings=tuple(warnings),
        ways_on=(Field("next", way),) if way and connection else (),
        times=(now,),
    )


def _sentence(group: GroupLag, now: datetime) -> str:
    """Return a sentence on a group, such as ``1,200 offsets (4m 10s) behind; done at 14:20``."""
    age = "" if group.age_s is None else f" ({figures.duration(group.age_s)})"
    words = f"{figures.counted(group.behind, 'offset')}{age} behind; {_becomes(group, now)}"
    return "; ".join([words, *_notes(group)])


def _becomes(found: GroupLag | PartitionLag, now: datetime) -> str:
    match found.verdict:
        case Verdict.KEEPING_UP:
            return "keeps up"
        case Verdict.LOSING:
            return f"loses records from {_clock(found.lost_in_s, now)}"
        case Verdict.CATCHING_UP:
            return f"done at {_clock(found.done_in_s, now)}"
        case Verdict.NEVER if not found.commits_per_s:
            return "stands still"
        case Verdict.NEVER:
            return "never catches up"
    return found.verdict.value


def _clock(in_s: float | None, now: datetime) -> str:
    try:
        return clock_time(now + timedelta(seconds=in_s or 0.0), now)
    except OverflowError:
        return "no date"


def _notes(group: GroupLag) -> Iterator[str]:
    """Yield what a reader of the figures could miss."""
    partitions = figures.counted
    if group.problem:
        yield group.problem
    if group.state == "unknown":
        yield "its members are unknown: it is a streams group or a share group"
    elif not group.members and group.verdict is not Verdict.KEEPING_UP:
        yield f"no members ({group.state})"
    if group.hot is not None:
        yield f"{group.hot.name} has {figures.share(group.hot.share)} of the backlog"
    if group.untouched:
        yield f"no committed offset on {partitions(group.untouched, 'partition')} with records"
    if group.unread and group.members:
        yield f"no member reads {partitions(group.unread, 'partition')}"
    if group.unknown:
        yield f"{partitions(group.unknown, 'partition')} unknown"
    if group.lost:
        yield f"{partitions(group.lost, 'offset')} deleted unread"


def _note(part: PartitionLag, group: GroupLag) -> str:
    notes = [part.problem or part.reader or ("no member reads it" if group.members else "")]
    if part.committed is None and not part.problem:
        notes.append("no committed offset")
    if part.lost:
        notes.append(f"{figures.count(part.lost)} deleted unread")
    return ", ".join(filter(None, notes))


def _row(
    name: str, found: GroupLag | PartitionLag, note: str, now: datetime
) -> tuple[str | Cell, ...]:
    trend = (found.arrivals_per_s or 0.0) - (found.commits_per_s or 0.0)
    return (
        name,
        figures.UNKNOWN if found.behind is None else figures.count(found.behind),
        "" if found.age_s is None else figures.duration(found.age_s),
        "" if found.behind is None else f"{'-' if trend < 0 else '+'}{figures.rate(abs(trend))}",
        Cell(_becomes(found, now), _tone(found)),
        note,
    )


def _tone(found: GroupLag | PartitionLag) -> Tone:
    return _TONES.get(found.verdict, Tone.WARN)
