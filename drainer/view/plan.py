"""The page of an offset plan, and the result of checks on a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from drainer.errors import DrainerError
from drainer.model.account import Account, clock
from drainer.model.destinations import destinations
from drainer.model.finding import Finding, Level
from drainer.model.listed import given_up_words, name_lost
from drainer.model.plan import OffsetPlan
from drainer.text.escape import command
from drainer.view import figures
from drainer.view.findings import findings_page
from drainer.view.page import OK, WARN, Cell, Field, Item, Line, Page, Table, Tone, section
from drainer.view.policy import task_fields, unhandled_lines
from drainer.view.summary import account, events, parked_field, resume_by_plan


def plan_page(
    plan: OffsetPlan,
    path: Path | str | None = None,
    options: Sequence[str] = (),
    now: datetime | None = None,
    runs: bool = False,
) -> Page:
    """Make the page of a plan: how far the drain has come, and what was requested of it.

    With a ``path``, the page also has the commands to resume and undo the drain, with ``options``.
    ``runs`` says whether a process works on the plan at the time ``now``.
    """
    subject = f"{plan.terms.topic}, for group {plan.terms.group}"
    left = sum(map(plan.account.to_go, plan.account.partitions))
    last_run = Line(f"  its last run {plan.account.last_run(now or datetime.now(UTC))}", Tone.QUIET)
    ways = []
    if path is not None:
        undone = plan.account.undone is not None
        if plan.account.conserved and (undone or not plan.account.complete):
            ways.append(resume_by_plan(plan, path, options))
        if plan.terms.commits and not undone:
            ways.append(Field("undo", command("plan undo", path, options=options)))
    return Page(
        _headline(plan.account, left, runs=runs),
        (
            section("Partitions", _partitions(plan)),
            account(*plan.account.counts()),
            section("Details", _fields(plan)),
        ),
        subject=subject,
        details=(last_run,) if plan.account.history and not runs else (),
        ways_on=tuple(ways),
    )


def _headline(account: Account, left: int, *, runs: bool) -> Line:
    if not account.complete:
        left_words = f"at most {figures.counted(left, 'offset')} left"
        return Line(f"{'running' if runs else account.how_ended}, {left_words}", Tone.WARN)
    if account.undone is not None:
        return Line("undone, with nothing left to handle", Tone.WARN)
    short = [given_up_words(account.counts()[1])]
    short += [f"with {name_lost(account.lost)} lost"] if account.lost else []
    words = ", ".join(filter(None, ("drained", *short)))
    return Line(words, Tone.GOOD, OK) if words == "drained" else Line(words, Tone.WARN, WARN)


def history_page(plan: OffsetPlan) -> Page:
    """Make the page of a drain's events, in the order in which they happened."""
    subject = f"{plan.terms.topic}, for group {plan.terms.group}"
    count = figures.counted(len(plan.account.history), "event")
    return Page(Line(count), (section("History", events(plan.account.history)),), subject=subject)


def fields_before_connecting(
    plan: OffsetPlan,
    path: Path | str,
    brokers: tuple[str, str] | None,
    client_config: Path | None,
    extras: Mapping[str, str] | None,
    state: str | None,
) -> Iterator[Field]:
    """Yield what a plan makes this machine do, before any of it is done.

    ``brokers`` are the addresses, and who names them. ``extras`` are the properties that the plan's
    handler gets; None if the handler is not loaded.
    ``state`` is the place of state that only the plan names, and that has to be confirmed.
    """
    yield Field("plan", str(path), f"begun {plan.terms.created}")
    yield Field("topic", plan.terms.topic, f"for group {plan.terms.group}")
    if brokers:
        yield Field("connects to", *brokers)
        yield Field("with", str(client_config) if client_config else "no client properties")
    if extras is not None:
        yield Field("loads", plan.terms.handler, "this runs its code")
        for each in destinations(plan.terms):
            note = f"gets {each.login(extras) or 'no login'}"
            yield Field(each.kind, each.place, note if each.prefix else "")
    if state:
        yield Field("reads", state, "with this environment's login")
    elif plan.account.state is not None:
        yield Field("reads", plan.account.state.uri, "the state of its tasks")


def checks_page(
    checks: Sequence[tuple[str, DrainerError | None]], warnings: Sequence[str] = ()
) -> Page:
    """Make the page of the verdict, and of each check; failed ones have the reason."""
    findings = [
        Finding("plan", Level.OK, name)
        if error is None
        else Finding("plan", Level.BAD, f"{name}: {error}", error.hint)
        for name, error in checks
    ]
    return replace(findings_page(findings), warnings=tuple(warnings))


def _fields(plan: OffsetPlan) -> Iterator[Item | None]:
    yield Field("drain", plan.terms.drain_id, f"begun {plan.terms.created}")
    yield Field("written", plan.account.updated, figures.counted(plan.account.generation, "time"))
    yield Field("properties", plan.terms.client_config or "none")
    yield from task_fields(plan)
    if plan.terms.limits is not None:
        yield Field("limits", str(plan.terms.limits), "maximum that drainer reads")
    yield from (Field("option", f"{name}={text}") for name, text in plan.terms.options.items())
    yield from unhandled_lines(plan.account.unhandled)
    drains = "behind dead letters; --tune after-dead=continue drains them"
    behind = drains if plan.account.parked else ""
    parked = plan.account.parked_lanes
    yield parked_field(replace(parked, total=max(parked.total, len(plan.account.parked))), behind)
    if plan.account.lost:
        yield Field("lost", name_lost(plan.account.lost), "retention deleted them unread")


def _partitions(plan: OffsetPlan) -> Table:
    account = plan.account
    to_go = {number: account.to_go(number) for number in account.partitions}
    rows = tuple(
        (
            str(number),
            f"[{part.start}, {part.end})",
            *map(figures.offset, (part.prior, part.committed, account.watermark(number))),
            "some" if account.shared(number) else figures.count(account.finished_above(number)),
            figures.count(to_go[number]) if to_go[number] else Cell(OK, Tone.GOOD),
        )
        for number, part in sorted(
            account.partitions.items(), key=lambda item: (-to_go[item[0]], item[0])
        )
    )
    columns = "[start, end)", "was at", "committed", "watermark", "done above", "left"
    # No broker is asked here, and a drain that runs or was killed may have committed more since.
    saved = f"committed: when last saved, at {clock(account.updated)}" if account.running else ""
    return Table(("partition", *columns), rows, caption=saved)
