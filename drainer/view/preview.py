"""The page of a drain that is about to begin, shown before it is confirmed."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.core.batches import Batching, BatchOf
from drainer.engine.preview import PROCESS, PartitionAction, Preview
from drainer.model.option import Concurrency
from drainer.text.escape import command
from drainer.view import caps, figures
from drainer.view.page import OK, Cell, Field, Item, Line, Page, Table, Tone, section
from drainer.view.policy import task_fields
from drainer.view.verdict import deadline_field


def preview_page(action: Preview) -> Page:
    """Make the page of a drain that is about to begin: its backlog, settings and checks."""
    parts = figures.counted(len(action.partitions), "partition")
    details, undo = [], command("plan undo", action.plan_path)
    if finished := sum(part.finished for part in action.partitions):
        already = figures.counted(finished, "message")
        details.append(Line(f"  {already} already done, which drainer does not handle again"))
    return Page(
        Line(f"{figures.counted(action.offsets, 'offset')} in {parts}", Tone.STRONG),
        (
            section("Partitions", _partitions(action)),
            section("Settings", settings(action)),
            section(
                "Checks",
                (Line(check, mark=OK) for check in action.checks),
                (Line(note, mark="-") for note in action.notes),
            ),
            section(
                "Plan",
                deadline_field(action.deadline),
                *_plan(action),
                Field("undo", undo, tone=Tone.COMMAND) if action.plan.terms.commits else None,
            ),
        ),
        subject=f"{_verb(action)} {action.plan.terms.topic} for group {action.plan.terms.group}",
        details=tuple(details),
        warnings=action.warnings,
        data=action.as_json(),
        event="plan_of_action",
    )


def _plan(action: Preview) -> Iterator[Item]:
    """Yield where the plan is, what is created for it, and what a kill repeats."""
    yield Field("plan", str(action.plan_path), "drainer saves progress here")
    if action.makes_plan_place is not None:
        yield Field("creates", action.makes_plan_place, "for the plan")
    if action.engine.name == PROCESS:  # On Spark, the state of the tasks decides that.
        seconds = figures.duration(action.journal_interval_s)
        repeats = f"repeats what was in flight, or finished in the last {seconds}"
        yield Field("after a kill", repeats)


def _verb(action: Preview) -> str:
    if action.plan.terms.redrive is None:
        return "Resume the drain of" if action.resumes else "Drain"
    return "Resume the redrive of dead letters of" if action.resumes else "Redrive dead letters of"


def settings(action: Preview) -> Iterator[Item]:
    """Yield what was requested of a drain, and the settings of this run."""
    yield from task_fields(action.plan, action.examples)
    if action.makes_topic is not None:
        yield Field("creates", f"topic {action.makes_topic}", "for dead letters")
    if action.batching is not None and (together := _together(action.batching)):
        yield Field("calls", together)
    yield Field("concurrency", *_concurrency(action.concurrency, action.batching))
    yield Field("engine", action.engine.title)
    if action.follows:
        yield Field("follows", "the topic", "what is added meanwhile is drained, too")
    yield from (Field(name, text) for name, text in action.engine.settings.items())
    yield Field("buffer", figures.size(action.buffer_bytes), "maximum that drainer reads ahead")
    yield from caps.fields_before(action.cap)


def _together(batching: Batching) -> str:
    words = ["coalesces neighbours of a sub-key"] if batching.coalesce is not None else []
    if batching.most > 1:
        what = "sub-keys" if batching.of is BatchOf.LANES else "sub-messages of one sub-key"
        words.append(f"up to {figures.count(batching.most)} {what} per call")
    return ", ".join(words)


def _concurrency(concurrency: Concurrency, batching: Batching | None) -> tuple[str, str]:
    most = figures.count(concurrency.most)
    if not concurrency.is_auto:
        what = "sub-messages in the handler" if batching is None else "calls of the handler"
        return most, f"{what} at once"
    first = figures.count(concurrency.first)
    return "auto", f"starts at {first} and grows while throughput grows, to {most} at most"


def _partitions(action: Preview) -> Table:
    parts = sorted(action.partitions, key=lambda part: (-part.offsets, part.partition))
    columns = ("partition", "backlog [start, end)", "offsets", "group is at", "commits up to")
    total = "total", "", figures.count(action.offsets), "", ""
    shown = len(columns) if action.plan.terms.commits else 3
    return Table(
        columns[:shown],
        tuple(_row(part)[:shown] for part in parts),
        total=total[:shown] if len(parts) > 1 else (),
    )


def _row(part: PartitionAction) -> tuple[str | Cell, ...]:
    commits = part.offsets or (part.finished and part.committed != part.end)  # as after an undo
    return (
        str(part.partition),
        f"[{part.start}, {part.end})",
        figures.count(part.offsets),
        Cell("no offset", Tone.WARN) if part.committed is None else str(part.committed),
        str(part.end) if commits else Cell("nothing to do", Tone.QUIET),
    )
