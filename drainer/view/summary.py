"""The page of a drain that has ended: how it ended, how to continue, and the account."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from drainer.engine.history import History
from drainer.engine.preview import Preview
from drainer.errors import DrainerError, Signalled, Unresumable
from drainer.model.account import Event, EventKind, ParkedLanes, clock, last_end
from drainer.model.listed import given_up_words, name_lost
from drainer.model.plan import OffsetPlan
from drainer.model.progress import DONE, OTHERWISE, Counts
from drainer.model.ranges import count_offsets
from drainer.model.resuming import Resuming, local_class
from drainer.model.status import PartitionResult, Summary
from drainer.policy.redrive import NOT_MATCHED, not_redriven
from drainer.store.place import PlanPlace, absolute, parse_place
from drainer.text.escape import command, shorten
from drainer.view import caps, figures, priority
from drainer.view.course import deepest_lanes, plots, troubles
from drainer.view.page import (
    BAD,
    OK,
    STOPPED,
    WARN,
    Cell,
    Column,
    Field,
    Item,
    Line,
    Page,
    Section,
    Table,
    Tone,
    few,
    section,
)
from drainer.view.policy import undecided_lines, unhandled_lines
from drainer.view.preview import settings
from drainer.view.status import blocking_warnings, failure_words, watermark_fields
from drainer.view.terminal import Terminal
from drainer.view.verdict import ending

ERRORS_SHOWN = 5
OFFSETS_SHOWN = 4  # An event shows the committed offsets of at most this many partitions.
PARKED_WIDTH = 60  # The characters of a parked lane's key that are shown.
_ACCOUNT = ("read", *(each.value for each in (DONE, *reversed(OTHERWISE))), "pending")
_UNHAPPY = ("dead", "failed", "pending")
_LEFT = {NOT_MATCHED: "did not match the filter"}


def show_summary(terminal: Terminal, summary: Summary) -> None:
    """Print how a drain ended and how to continue, then the account and the details."""
    page = summary_page(summary)
    terminal.answer(summary.as_json(), page)


def show_cut_short(
    terminal: Terminal, error: DrainerError, plan: PlanPlace, resuming: Resuming, also: str = ""
) -> None:
    """Print the end of a drain that stopped before it had an account, and how to resume it.

    ``also`` is a note on the command to resume it.
    """
    way = resume_field(resuming.command(plan), resuming)
    way = replace(way, note="; ".join(filter(None, (also, way.note))))
    # The text of a signal is the headline itself. Any other error is printed below a short one.
    cause = None if isinstance(error, Signalled) else error
    headline = Line("Interrupted" if cause else str(error), Tone.WARN, STOPPED)
    page = Page(headline, (), cause=cause, ways_on=(way,))
    found = {"error": str(error), "hint": error.hint, "plan": str(plan)}
    terminal.answer({"status": "interrupted", "exit_code": error.exit_code, **found}, page)


def drain_page(action: Preview, summary: Summary, history: History, ended: datetime) -> Page:
    """Make the page of a report, which also has the charts and the history of the drain.

    The report names the plan by its full path, because it may be read in another folder. ``ended``
    has the time zone in which times are shown.
    """
    if summary.plan is not None:
        path = str(absolute(parse_place(summary.plan)))
        summary = replace(summary, last=replace(summary.last, plan=path))
    begun = ended - timedelta(seconds=summary.last.timing.elapsed_s)
    page = summary_page(summary)
    what = "Drain" if action.plan.terms.redrive is None else "Redrive"
    drawn = plots(history, begun, summary.last.timing.latency)
    run = section(
        "Settings",
        (Line(warning, Tone.WARN, WARN) for warning in action.warnings),
        settings(action),
        Field("exit code", str(summary.exit_code)),
    )
    return replace(
        page,
        subject=f"{what} of {action.plan.terms.topic} for group {action.plan.terms.group}",
        sections=(
            *page.sections,
            section("Charts", drawn),
            section("Outages and pauses", troubles(history, begun, ended)),
            section("History", events(summary.history)),
            section("Deepest lanes", deepest_lanes(history)),
            run,
        ),
        times=(begun, ended) if summary.last.timing.elapsed_s else (ended,),
    )


def summary_page(summary: Summary) -> Page:
    """Make the page of a drain that has ended."""
    head, last = _headline(summary), summary.last
    stands = section("Committed offsets", _partitions(summary))
    happened = section(
        "Details",
        priority.fields_after(last.progress, whole=summary.status == "done"),
        _engine(summary),
        unhandled_lines(last.rules),
        undecided_lines(last.rules),
        _barriers(summary),
        _failures(summary),
        watermark_fields(last.limits),
        _undelivered(summary),
        (Line(text, Tone.WARN, WARN) for text in blocking_warnings(last.health)),
    )
    if summary.status == "empty":
        return Page(head, (happened, stands), data=summary.as_json(), event="summary")
    # The account covers all runs of the drain. Time and speed are those of the last run.
    ways = [] if summary.resume is None else [resume_field(summary.resume, summary.resuming)]
    if summary.undo is not None and isinstance(summary.cause, Unresumable):
        ways.append(Field("undo", summary.undo))
    return Page(
        head,
        (
            account(summary.messages, summary.sub_messages),
            section("", priority.pending_after(last.progress)),
            happened,
            stands,
            section("Plan", _plan(summary)),
        ),
        details=(_run(summary),),
        cause=summary.cause,
        ways_on=tuple(ways),
        data=summary.as_json(),
        event="summary",
    )


def _run(summary: Summary) -> Line:
    """Return how long the run took, when it ended, and how long before or after its deadline."""
    last, end, found = summary.last, last_end(summary.history), summary.last.progress.deadline
    if summary.ended_before is not None:
        done = f"the drain of this plan was done at {clock(summary.ended_before)}"
        return Line(f"  this command did nothing, because {done}", Tone.QUIET)
    words, tone = f"this run: {figures.duration(last.timing.elapsed_s)}", Tone.QUIET
    if end is not None:
        at = datetime.fromisoformat(end.at)
        if found is not None:
            found = replace(found, left_s=(found.at - at).total_seconds())
            tone = Tone.BAD if found.left_s < 0 else Tone.QUIET
        verb = "done at" if last.progress.complete else "ended at"
        words = ending(words, 0.0, found, at, end=verb)
    return Line(f"  {words}; {figures.rate(last.progress.rate_average)} sub-messages/s", tone)


def _plan(summary: Summary) -> Iterator[Field]:
    """Yield the plan's path, the commands that check and undo a drain that is done, and latency."""
    last, hand_over = summary.last, summary.hand_over
    if hand_over is not None:
        tone = Tone.GOOD if hand_over.is_good else Tone.WARN
        lines = few(hand_over.wrong, ERRORS_SHOWN)
        yield Field("hand-over", str(hand_over), hand_over.readers, tone, lines=lines)
    elif summary.begin_words:
        yield Field("next", summary.begin_words)
    yield Field("plan", last.plan)
    if summary.status == "done":
        yield Field("verify", command("plan verify", last.plan), tone=Tone.COMMAND)
        if summary.undo is not None:
            yield Field("undo", summary.undo, tone=Tone.COMMAND)
    if last.timing.latency is not None:
        yield Field("latency", figures.latency(last.timing.latency), "of handle, in this run")


def account(messages: Counts, sub_messages: Counts) -> Section:
    """Show that read = done + dead + failed + skipped + pending, or that it does not add up."""
    rows: list[tuple[str | Cell, ...]] = []
    of_classes = sub_messages.read and not messages.read
    table = {"sub-messages": sub_messages}
    for label, counts in (table if of_classes else {"messages": messages, **table}).items():
        numbers = [(name, getattr(counts, name)) for name in _ACCOUNT]
        adds_up = Cell(f"{OK} adds up", Tone.GOOD)
        rows.append(
            (
                f"  {label}",
                *(
                    Cell(figures.count(n), Tone.WARN if n and name in _UNHAPPY else Tone.PLAIN)
                    for name, n in numbers
                ),
                adds_up if counts.conserved else Cell(f"{BAD} DOES NOT ADD UP", Tone.BAD),
            )
        )
    wrong = None
    if not (messages.conserved and sub_messages.conserved):
        wrong = Line("This is a bug in drainer: keep the plan, and do not resume.", Tone.BAD, BAD)
    unsplit = None
    if number := sub_messages.unsplit:
        what = "split failed; each counts as one sub-message, dead or failed"
        unsplit = Field("not split", figures.counted(number, "message"), what)
    later = Field("messages", "counted when the rest is drained") if of_classes else None
    return section("Account", Table(("", *_ACCOUNT, ""), tuple(rows)), later, unsplit, wrong)


def _engine(summary: Summary) -> Iterator[Field]:
    """Yield the engine's counts, the concurrency, and the speed compared with broker limits."""
    if summary.engine_counts:
        counts = (f"{name} {figures.count(n)}" for name, n in summary.engine_counts.items())
        yield Field("engine", summary.engine.capitalize(), ", ".join(counts))
    if (auto := summary.last.limits.auto) is not None:
        found = figures.count(auto.limit if auto.settled is None else auto.settled)
        yield Field("concurrency", f"auto, {found} at the end", auto.why)
    ahead = summary.messages.pending / (summary.last.timing.elapsed_s or 1.0)
    yield from caps.fields_after(summary.last.caps, ahead)


def _barriers(summary: Summary) -> Item | None:
    """Count the barriers of this run. None is a warning once the drain has handled all messages."""
    if number := summary.last.rules.barriers:
        what = "each waited for all before it, in this run"
        return Field("barriers", figures.counted(number, "sub-message"), what)
    if summary.barrier is None:
        return None
    resumed = any(event.what is EventKind.RESUMED for event in summary.history)
    if resumed or summary.status != "done" or summary.last.rules.skipped_by:
        return Field("barriers", "none", "in this run")
    seen = figures.counted(summary.sub_messages.read, "sub-message")
    text = f"--barrier {summary.barrier} matched none of {seen}, so nothing waited for one"
    return Line(text, Tone.WARN, WARN)


def _failures(summary: Summary) -> Iterator[Item | None]:
    failures = summary.last.failures
    errors = [f"{figures.count(times)} × {kind}" for kind, times in failures.errors]
    if words := failure_words(failures):
        yield Field("failures", words, "in this run", lines=few(errors, ERRORS_SHOWN))
    if failures.given_up_by:
        reasons = [f"{figures.count(times)} × {reason}" for reason, times in failures.given_up_by]
        yield Field("given up", ", ".join(reasons), "why, in this run")
    yield parked_field(summary.parked)
    topic = failures.dead_letter_topic
    if topic is not None and summary.sub_messages.dead:
        where = shlex.join(["--dead-letter-topic", topic, *summary.connection])
        if doubled := failures.doubled_letters:
            lines = few(failures.doubled_first, ERRORS_SHOWN, doubled)
            why = "in this run: drainer may not read the topic"
            yield Field("maybe twice", figures.counted(doubled, "letter"), why, lines=lines)
        if left_out := failures.left_out_letters:
            why = f"too large for {topic}: a redrive reads their messages again"
            kept = (summary.originals_kept,) if summary.originals_kept else ()
            yield Field("no payload", figures.counted(left_out, "letter"), why, lines=kept)
        yield Field("dead letters", f"drainer dead list {where}", tone=Tone.COMMAND)
        if summary.left_alone is None:
            named, notes = [*summary.handler], []
            if named and (name := local_class(named[1])):
                named[1], notes = f"FILE.py:{name}", [f"put the class {name} into a file"]
            known = {word.partition("=")[0] for word in summary.handler}
            handler, hidden = [shlex.join(named) or "--handler …"], list[str]()
            for name, text in summary.resuming.handler_options.items():
                if name in known:
                    continue
                if text in summary.resuming.needs:
                    hidden.append(text)
                else:
                    handler.append(shlex.join(text.split(" ", 1)))
            if hidden:
                notes.append(f"add {', '.join(hidden)} as before")
            line = f"drainer redrive {where} {' '.join(handler)}"
            yield Field("redrive", line, " and ".join(notes), Tone.COMMAND)


def parked_field(parked: ParkedLanes, note: str = "") -> Field | None:
    """Name the first parked lanes, with the place at which each waits and the error there."""
    if not parked.total:
        return None
    lines = tuple(
        f"{shorten(lane['key'], PARKED_WIDTH)} at {lane['place']}: {lane['error']}"
        for lane in parked.shown()
    )
    note = note or "each with its place and its error"
    lines = few(lines, len(lines), len(lines) + parked.more)
    return Field("parked lanes", figures.count(parked.total), note, lines=lines)


def _undelivered(summary: Summary) -> Iterator[Field]:
    """Yield the records that the account leaves out, because the drain did not handle them."""
    if alone := summary.left_alone:
        ranked = sorted(alone.items(), key=lambda item: (-item[1], item[0]))
        lines = tuple(f"{figures.count(n)} {_LEFT.get(why, f'× {why}')}" for why, n in ranked)
        records = figures.counted(sum(alone.values()), "record")
        yield Field("left alone", records, "another redrive can take them", lines=lines)
    if summary.lost:
        yield Field("lost", name_lost(summary.lost), "retention deleted them unread")
    if summary.open_transactions:
        offsets = figures.counted(sum(each.offsets for each in summary.open_transactions), "offset")
        lines = few([str(each) for each in summary.open_transactions], ERRORS_SHOWN)
        behind = f"{offsets} behind an open transaction"
        yield Field("excluded", behind, "not part of this drain", lines=lines)


def events(history: Sequence[Event]) -> Table | None:
    """Make a table of the events of a drain, in the order in which they happened."""
    columns = (Column("when"), Column("what"), Column("by"), Column("details", wide=True))
    rows = tuple(map(_event_row, history))
    return Table(columns, rows, shown=len(rows)) if rows else None


def _event_row(event: Event) -> tuple[str, ...]:
    when = datetime.fromisoformat(event.at).astimezone()
    details = [*event.details]
    if event.offsets:
        stands = (f"{number}:{figures.offset(at)}" for number, at in event.offsets.items())
        details.append(f"group at {' '.join(few(tuple(stands), OFFSETS_SHOWN))}")
    if event.reason is not None:
        details.append(f"reason: {event.reason}")
    return f"{when:%Y-%m-%d %H:%M:%S}", event.what, event.by, "; ".join(details)


def _headline(summary: Summary) -> Line:
    match summary.status:
        case "empty":
            return Line("Nothing to drain", Tone.GOOD, OK, ": the backlog is empty")
        case "done":
            verb = "Drained" if summary.left_alone is None else "Redriven"
            messages = figures.counted(summary.messages.finished, "message")
            subs = figures.counted(summary.sub_messages.finished, "sub-message")
            done = f": {messages}, {subs}"
            if summary.sub_messages.skipped:
                done += f", {figures.count(summary.sub_messages.skipped)} of them skipped"
            text, tone, mark = verb, Tone.GOOD, OK
            if summary.exit_code or summary.accepted:
                text, tone, mark = f"{verb}, {_shortcomings(summary)}", Tone.WARN, WARN
            elif NOT_MATCHED in (summary.left_alone or ()) and not summary.messages.finished:
                text, tone, mark = "No letter matched the filter", Tone.WARN, WARN
            return Line(text, tone, mark, done)
        case "class-done" | "class-waits":
            finished = priority.finished(summary.last.progress)
            done = f": {figures.counted(finished, 'sub-message')}{_to_go(summary)} for a resume"
            text, tone, mark = "Drained the selected sub-messages", Tone.GOOD, OK
            if summary.cause is not None:
                text, tone, mark = "Drained part of the selected sub-messages", Tone.WARN, WARN
            elif not finished:
                text, tone, mark = "No sub-message is selected", Tone.WARN, WARN
            return Line(text, tone, mark, done)
        case "interrupted":
            how = "Stopped on request" if isinstance(summary.cause, Signalled) else "Interrupted"
            left = _to_go(summary, "message", summary.last.progress.eta_s)
            if (turn := summary.last.progress.turn) is not None:
                left = priority.to_go(turn) + _to_go(summary, "message")
            began = summary.sub_messages.read or summary.engine_counts.get("slices")
            outcome = "no data lost" if began else "nothing was handled"
            return Line(how, Tone.WARN, STOPPED, f"{'' if summary.lost else f'; {outcome}'}{left}")
        case other:
            return Line(f"{other.capitalize()}{_to_go(summary)}", Tone.BAD, BAD)


def _shortcomings(summary: Summary) -> str:
    """Return what a drain did not handle: ``with 3 dead letters, at most 100 records lost``."""
    lost = sum(map(count_offsets, summary.lost.values()))
    records = f"at most {figures.counted(lost, 'record')} lost" if lost else ""
    left_out = summary.last.failures.left_out_letters
    bare = f"{figures.count(left_out)} without payload" if left_out else ""
    left = not_redriven(summary.left_alone)
    rest = f"but {figures.counted(left, 'letter')} left alone" if left else ""
    bad = summary.hand_over is not None and not summary.hand_over.is_good
    over = "but not handed over" if bad else ""
    given_up = given_up_words(summary.sub_messages)
    return ", ".join(filter(None, (given_up, bare, records, rest, over)))


def _to_go(summary: Summary, what: str = "offset", seconds: float | None = None) -> str:
    """Return ``. At most 6,695 messages left (about 19s)``, or nothing if none is left."""
    left = summary.to_go  # Offsets include holes, so there may be fewer messages.
    about = "" if seconds is None else f" (about {figures.duration(seconds)})"
    return f". At most {figures.counted(left, what)} left{about}" if left else ""


def resume_field(
    line: str, resuming: Resuming, why: str = "drainer does not print what may be secret"
) -> Field:
    """Show how to resume a drain, and say ``why`` options are missing in it, if some are."""
    return Field("resume", line, resuming.note(f": {why}"))


def resume_by_plan(plan: OffsetPlan, path: Path | str, options: Sequence[str] = ()) -> Field:
    """Show the command of a resume as the plan has it, with more options."""
    resuming = plan.account.resuming
    why = "drainer repeats no option that may be secret, run code or connect elsewhere"
    return resume_field(resuming.command(path, options), resuming, why)


def _partitions(summary: Summary) -> Table | None:
    if not summary.partitions:
        return None
    # Partitions with a problem come first, because a long table is cut.
    commits, is_empty = summary.commits, summary.status == "empty"  # Then nothing was committed.
    resumes = summary.resume is not None
    verdicts = {
        n: _verdict(part, commits=commits and not is_empty, resumes=resumes)
        for n, part in summary.partitions.items()
    }
    ranked = sorted(summary.partitions.items(), key=lambda item: (verdicts[item[0]][0], item[0]))
    return Table(
        ("partition", "start", "end", "watermark", "committed", Column("")),
        tuple(
            (
                str(number),
                str(part.start),
                str(part.end),
                str(part.watermark),
                figures.offset(part.committed) if commits else "unchanged",
                verdicts[number][1],
            )
            for number, part in ranked
        ),
    )


def _verdict(part: PartitionResult, *, commits: bool, resumes: bool) -> tuple[int, Cell]:
    """Return the rank of a partition, and its state in words.

    The rank is 0 if its committed offset is wrong, 1 if it is not finished, and otherwise 2. A
    drain that was stopped at once has not committed all that is done, and a resume, if the drain
    ``resumes``, makes up for that.
    """
    if commits and part.committed != part.watermark and part.watermark > part.start:
        past = part.committed is not None and part.committed > part.watermark
        way = ": a resume commits it" if resumes else ""
        text = "committed past the watermark" if past else f"committed is not the watermark{way}"
        return 0, Cell(f"{BAD} {text}", Tone.BAD)
    if part.watermark < part.end:
        return 1, Cell(f"{figures.counted(part.to_go, 'offset')} left", Tone.WARN)
    return 2, Cell(OK, Tone.GOOD)
