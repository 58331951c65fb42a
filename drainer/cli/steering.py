"""Commands for running drains: ``ps``, ``watch``, ``set``, ``pause``, ``unpause`` and ``stop``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any

from drainer.cli.command import changing, command
from drainer.cli.declared import meant
from drainer.cli.options import Reason, plan_argument
from drainer.cli.resume import resume
from drainer.cli.run import run
from drainer.control import client
from drainer.control.client import FoundDrain
from drainer.control.place import short
from drainer.control.wire import DrainReport
from drainer.engine.control import Change, ControlRequest, Pause, Stop, Unpause
from drainer.errors import UsageError, raised_as
from drainer.host.process import is_suspended
from drainer.model.codec import builtins, decode, encode
from drainer.model.listed import given_up_words, listed
from drainer.model.option import DURATION, Option, ValueType, options_of, parse_pairs
from drainer.model.progress import Counts
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import share_finished
from drainer.store.place import PlanPlace, parse_place
from drainer.text import escape
from drainer.view import figures
from drainer.view.live import progress_view
from drainer.view.page import Cell, Column, Field, Line, Page, Table, Tone, section
from drainer.view.status import obstacle, time_left
from drainer.view.summary import resume_by_plan
from drainer.view.terminal import Terminal

# A drain answers twice a second. It counts as silent if its last answer is older than this.
SILENT_S = 5.0

ENDED_SHOWN = 100  # `ps` shows this many characters of how a drain ended.
# If `ps` finds more drains than CROWDED, its page fits a small screen: only the DETAILED most
# urgent ones have more than a row, and the table has only this many ROWS.
CROWDED, DETAILED, ROWS = 4, 2, 9
URGENT = ("in trouble", "silent", "halted", "failed", "killed")
CALM = ("draining", "starting")

# The options that can change while a drain runs, by their names.
SETTABLE: Mapping[str, Option] = {
    each.label: each
    for settings in (LocalSettings, FailureSettings)
    for each in options_of(settings).values()
    if each.live
}
_KNOWN = {each.label for each in run.options.values()}  # type: ignore[attr-defined]
_OF_RESUME = {each.label: each for each in resume.options.values()}  # type: ignore[attr-defined]
_NAMES = listed(sorted(SETTABLE), most=len(SETTABLE))

RunningPlan = Annotated[
    PlanPlace,
    plan_argument("Plan of a drain that runs on this machine.", name="PLAN", proposes="running"),
]


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` texts as plain JSON values, by the field of the option.

    Raises UsageError.
    """
    values: dict[str, Any] = {}
    given = list(texts)
    bare = next((text for text in given if "=" not in text), "")
    near = meant(bare.replace("_", "-"), SETTABLE.values())
    hint = "Write it as concurrency=50." if near is None else f"Write it as {near.label}=…."
    with raised_as(UsageError, about="an option to set ", hint=hint):
        pairs = parse_pairs(given)
    if len(pairs) < len(given):
        raise UsageError("an option is set twice", hint="Set each option once.")
    for name, text in pairs.items():
        if (known := SETTABLE.get(name.replace("_", "-"))) is None:
            raise _not_settable(name)
        with raised_as(UsageError, about=f"{name}: "):
            word = text.strip().lower()
            if name == "dead-letter-topic" and word in ("", "none", "null"):
                hint = "To write no dead letters, set on-failure."
                raise UsageError(f"{text!r} is not a topic name", hint=hint)
            values[known.field] = known.parse(text)
    if not values:
        raise UsageError("no option is set", hint=f"Set one, such as concurrency=50: {_NAMES}.")
    return builtins(values)


def _not_settable(name: str) -> UsageError:
    reason, hint = f"{name} can't change while a drain runs", f"Set one of {_NAMES}."
    option_name = name.replace("_", "-")
    if option_name not in _KNOWN:
        reason = f"there is no option {name}"
        if near := meant(option_name, SETTABLE.values()):
            hint = f"Did you mean {near.label}?"
    elif (of_resume := _OF_RESUME.get(option_name)) is not None:
        typed = " ".join(of_resume.typed("…"))
        hint = f"Use `drainer stop PLAN`, then `drainer resume PLAN {typed}`."
    return UsageError(reason, hint=hint)


@command
def ps(terminal: Terminal) -> None:
    """List your drains that run on this machine.

    The list includes drains that have ended or were killed with something left to drain, if their
    plan is in this folder, or if they ran since the machine started. For the drains of another
    user, run it as that user.

    Examples:

    - `drainer ps`
    - `drainer ps -o json`
    """
    found = [*client.running(), *client.left_known()]
    page = running_page(found)
    terminal.answer({"drains": [found_as_json(each) for each in found]}, page)


@command
def watch(
    plan: Annotated[
        PlanPlace | None,
        plan_argument(
            "Plan of a drain on this machine.",
            None,
            unset="the only one",
            name="[PLAN]",
            proposes="running",
        ),
    ],
    terminal: Terminal,
) -> None:
    """Show the live view of a drain in another process.

    Several people may watch. Ctrl-C ends the view, not the drain.

    Examples:

    - `drainer watch orders.indexer.plan.json`
    """
    with suppress(KeyboardInterrupt):
        _show(terminal, client.watch(_only_one() if plan is None else plan))


@changing
def set_(
    plan: RunningPlan,
    settings: Annotated[
        dict[str, Any],
        Option(
            "Options of `drainer resume`, such as concurrency=50.",
            name="NAME=VALUE...",
            kind=ValueType("NAME=VALUE", parse_settings, repeats=True),
            is_argument=True,
        ),
    ],
    reason: Reason,
    terminal: Terminal,
) -> None:
    """Change options of a running drain.

    A change takes effect within a second, on Spark within three. If any value is wrong, drainer
    changes nothing.

    Examples:

    - `drainer set orders.indexer.plan.json concurrency=50 rate=200/s --reason "DB is slow"`
    - `drainer set orders.indexer.plan.json deadline=08:00 retries=5 max-failures=2%`
    - `drainer set orders.indexer.plan.json on-failure=park breaker=off rate=none`
    """
    _request(terminal, plan, Change(settings, reason=reason))


@changing
def pause(
    plan: RunningPlan,
    for_: Annotated[float | None, Option("Unpause after this time.", None, DURATION, envvar=None)],
    reason: Reason,
    terminal: Terminal,
) -> None:
    """Pause a running drain; `drainer unpause` ends it.

    Calls in flight finish, and no new ones start. The drain keeps its lock, writes its plan and
    commits.

    Examples:

    - `drainer pause orders.indexer.plan.json`
    - `drainer pause orders.indexer.plan.json --for 10m --reason "failover of the database"`
    """
    _request(terminal, plan, Pause(for_, reason=reason))


@changing
def unpause(plan: RunningPlan, reason: Reason, terminal: Terminal) -> None:
    """End the pause of a drain.

    Example: `drainer unpause orders.indexer.plan.json`
    """
    _request(terminal, plan, Unpause(reason=reason))


@changing
def stop(
    plan: RunningPlan,
    now: Annotated[bool, Option("Don't wait for calls in flight.", False, envvar=None)],
    reason: Reason,
    terminal: Terminal,
) -> None:
    """Stop a running drain safely, and print how to resume it.

    This does what Ctrl-C does in the drain's terminal. With `--now`, it does what the second Ctrl-C
    does. Ctrl-C in this terminal only ends the wait.

    Examples:

    - `drainer stop orders.indexer.plan.json`
    - `drainer stop orders.indexer.plan.json --now --reason "wrong handler"`
    """
    reports = client.watch(plan)
    next(reports)  # After the first report, the end of the drain can't be missed.
    for done in client.request(plan, Stop(now, reason=reason)):
        terminal.print_line(f"{plan}: {done}")
    *_, last = reports
    _print_end(terminal, "stopped", last)


def _request(terminal: Terminal, plan: PlanPlace, request: ControlRequest) -> None:
    done = client.request(plan, request)
    terminal.print_line(f"{plan}: {', '.join(done)}")
    terminal.data({"status": "done", "told": done})


def _print_end(terminal: Terminal, status: str, last: DrainReport) -> None:
    ended = last.ended or {}
    subs = decode(encode(ended.get("sub_messages", {})), Counts)
    how = ended.get("error") or ", ".join(filter(None, (ended.get("status"), given_up_words(subs))))
    head = Line(f"the drain has ended: {how}" if how else "the drain has ended")
    ways = []
    if resume := ended.get("resume"):
        folder = last.about.plan.removesuffix(ended["plan"])  # Empty if its full path was given.
        is_here = folder in ("", f"{Path.cwd()}/")
        ways.append(Field("resume", resume, "" if is_here else f"in the folder {folder}"))
    elif hint := ended.get("hint"):
        ways.append(Field("hint", hint))
    page = Page(head, (), ways_on=tuple(ways))
    terminal.answer({"status": status, "hint": ended.get("hint"), "ended": ended}, page)


def _show(terminal: Terminal, reports: Iterable[DrainReport]) -> None:
    with progress_view(terminal, below="Ctrl-C leaves; the drain goes on") as view:
        for report in reports:
            if report.status is not None:
                view.update(replace(report.status, plan=short(report.about.plan)))
    _print_end(terminal, "ended", report)


def _only_one() -> PlanPlace:
    found = client.running()
    if len(found) != 1:
        plans = ", ".join(each.about.plan for each in found)
        hint = f"Name one by its plan: {plans}" if found else "Start one with `drainer run`."
        raise UsageError(f"{len(found) or 'no'} drains are running on this machine", hint=hint)
    return parse_place(found[0].about.plan)


def state_of(found: FoundDrain) -> str:
    """Return the state of a drain in one or two words, such as ``in trouble``."""
    status = found.status
    if found.left is not None:
        return found.left.account.how_ended
    if status is None:
        # The age is infinite if the drain does not answer.
        return "silent" if found.age_s == inf else "starting"
    signs = (
        (status.control.stopping is not None, "stopping"),
        (found.age_s > SILENT_S, "silent"),
        (status.control.paused is not None, "paused"),
        (status.health.in_trouble, "in trouble"),
    )
    return next((state for shows, state in signs if shows), "draining")


def running_page(found: Sequence[FoundDrain], now: datetime | None = None) -> Page:
    """Make a page with a row for each drain, the most urgent first, and the undone last.

    It says how to resume those that do not run, except the undone, whose resume commits again. If
    there are many, it says so only of the first.
    """
    now, crowded = now or datetime.now(UTC), len(found) > CROWDED
    found = sorted(found, key=_calmness)
    detailed = DETAILED if crowded else CROWDED
    columns: tuple[str | Column, ...] = (
        *(Column("plan"), Column("state"), "done", "pid"),
        *(Column(name, spare=True) for name in ("topic", "group", "since", "engine")),
        Column("ends", wide=True),
    )
    table = Table(columns, tuple(_row(each, now, crowded=crowded) for each in found), shown=ROWS)
    running = sum(each.left is None for each in found)
    undone = sum(map(_is_undone, found))
    resumable = len(found) - running - undone
    verb = "is" if running == 1 else "are"
    head = f"{figures.counted(running, 'drain')} {verb} running on this machine"
    if resumable:
        head += f"; {resumable} can be resumed"
    if undone:
        head += f"; {undone} {'was' if undone == 1 else 'were'} undone"
    wrong = [field for each in found[:detailed] if (field := _obstacle(each, now))]
    others = [each for each in found[detailed:] if _obstacle(each, now)]
    more = None
    if others:
        ran = any(each.left is not None for each in others)
        hows = ["`drainer plan show PLAN` has the way to resume one"] if ran else []
        if any(each.left is None for each in others):
            hows.append("`drainer watch PLAN` shows one that runs")
        how = "; ".join([*hows, "`drainer ps -o table` lists all"])
        more = Line(f"  and {figures.counted(len(others), 'other')}: {how}", Tone.QUIET)
    sections = section("", wrong, more), section("", table if found else None)
    offered = (each for each in found[:detailed] if not _is_undone(each))
    first = (field for each in offered if (field := _resume_field(each)))
    return Page(Line(head), sections, ways_on=tuple(first))


def _calmness(found: FoundDrain) -> int:
    if _is_undone(found):
        return 3
    state = state_of(found)
    return 0 if state in URGENT else 2 if state in CALM else 1


def _is_undone(found: FoundDrain) -> bool:
    return found.left is not None and found.left.account.undone is not None


def found_as_json(found: FoundDrain) -> dict[str, Any]:
    """Return a drain as JSON of bounded size.

    ``done`` is a share from 0 to 1. The fields that come from the drain's status are None until it
    has sent one.
    """
    status = {} if found.status is None else found.status.as_json()
    end = None if found.left is None else found.left.account.last_end
    resume = _resume_field(found)
    return found.about.as_json() | {
        "pid": found.pid or None,
        "state": state_of(found),
        "done": _share(found),
        "resume": None if resume is None else resume.value,
        "ended": None if end is None else end.as_json(),
        "age_s": found.age_s,
        **{name: status.get(name) for name in _OF_STATUS},
    }


_OF_STATUS = (
    *("eta_s", "rate_now", "in_flight", "concurrency", "paused", "trouble", "outage", "silent_s"),
    "held_back",
)


def _row(found: FoundDrain, now: datetime, *, crowded: bool) -> tuple[str | Cell, ...]:
    about, state, ends = found.about, state_of(found), "-"
    if found.status is not None:
        eta_s = found.status.progress.eta_s
        brief = crowded and eta_s is not None
        ends = f"{figures.duration(eta_s)} left" if brief else time_left(found.status, now)
    return (
        short(about.plan),
        Cell(state, Tone.PLAIN if state in CALM else Tone.WARN),
        _done(found),
        str(found.pid or "-"),
        about.topic,
        about.group,
        f"{datetime.fromisoformat(about.since).astimezone():%d %b %H:%M}",
        about.engine,
        ends,
    )


def _obstacle(found: FoundDrain, now: datetime) -> Field | None:
    """Say how a drain that does not run ended, or what is in the way of one that runs."""
    words = None if found.status is None else obstacle(found.status)
    if found.left is not None:
        words = escape.shorten(found.left.account.last_run(now), ENDED_SHOWN)
    elif is_suspended(found.pid):
        words = f"process {found.pid} is suspended; to continue it: `kill -CONT {found.pid}`"
    return Field(short(found.about.plan), words) if words else None


def _done(found: FoundDrain) -> str:
    share = _share(found)
    return "-" if share is None else figures.percent(share)


def _share(found: FoundDrain) -> float | None:
    if found.left is not None:
        return found.left.account.share_done
    return None if found.status is None else share_finished(found.status.progress.partitions)


def _resume_field(found: FoundDrain) -> Field | None:
    return None if found.left is None else resume_by_plan(found.left, short(found.about.plan))
