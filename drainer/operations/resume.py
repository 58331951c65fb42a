"""Prepares a resume: everything that is checked before a drain continues from its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from drainer.engine.control import Settings, typed
from drainer.engine.preview import PROCESS, SPARK, PartitionAction, Preview
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import PlanRefused, UsageError
from drainer.kafka.backlog import open_transactions
from drainer.kafka.cluster import Cluster
from drainer.loading.extensions import Extension
from drainer.loading.loader import LoadedHandler, foreign_code, load_handler
from drainer.model.account import Account, Event, EventKind, PartitionPlan
from drainer.model.claims import class_of
from drainer.model.destinations import with_own_destinations
from drainer.model.listed import listed, name_lost
from drainer.model.option import Concurrency, Option, options_of
from drainer.model.plan import OffsetPlan, OpenTransaction, describe_open_transactions
from drainer.model.priority import PriorityClasses
from drainer.model.ranges import Range
from drainer.model.rate_cap import CapCurve
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.terms import PayloadSettings, Terms
from drainer.operations.examine import changes, ensure_all, examine, group_offsets
from drainer.operations.group import live_readers
from drainer.operations.policy import Policy, resolve_policy
from drainer.operations.start import Prepared, build_prepared
from drainer.policy.rules import Selection
from drainer.store.place import PlanPlace, is_in_topic
from drainer.store.saved_plan import LoadedPlan, SavedPlan
from drainer.text.mask import mask_text

LoadHandler = Callable[[str, PayloadSettings, Mapping[str, str]], LoadedHandler]


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A request to resume a plan. If a field is None, the plan's own value is used.

    Attributes:
        client_config: the file of the client's properties, which the plan names from now on.
        accept_gap: whether to continue although records were deleted before they were handled.
        same_split: whether to continue although the handler's code has changed, and the progress of
            a priority class depends on that code.
        handler: the reference of the handler.
        limits: the broker limits, in place of those of the plan; False for none.
        engine: the name of the engine that will drain.
        asks: whether a person reads the warnings, and has to confirm the drain after that.
    """

    failures: FailureSettings | None = None
    classes: PriorityClasses | None = None
    client_config: Path | None = None
    accept_gap: bool = False
    same_split: bool = False
    handler: str | None = None
    limits: CapCurve | Literal[False] | None = None
    engine: str = PROCESS
    asks: bool = False

    def over(self, known: Terms) -> Terms:
        """Return the terms of a plan, overridden by what is requested."""
        file = self.client_config
        return replace(
            known,
            handler=self.handler or known.handler,
            failures=self.failures or known.failures,
            limits=known.limits if self.limits is None else self.limits or None,
            client_config=known.client_config if file is None else str(file.absolute()),
        )


_OF_RUN = options_of(LocalSettings)
AS_PLANNED = ResumeRequest()


def prepare_resume(
    cluster: Cluster,
    file: SavedPlan,
    loaded: LoadedPlan,
    running: LocalSettings,
    request: ResumeRequest = AS_PLANNED,
    *,
    runtime: Runtime = THIS_PROCESS,
    load: LoadHandler = load_handler,
) -> Prepared:
    """Check that a drain can be resumed, and touch nothing.

    Raises PlanRefused or GroupActive when it can't be resumed.
    """
    terms, known = request.over(loaded.plan.terms), loaded.plan.account
    ensure_all(checks := examine(cluster, loaded, gap_accepted=request.accept_gap))
    logs = cluster.log_bounds(terms.topic, tuple(known.partitions), terms.isolation)
    gaps = known.gaps({n: log.start for n, log in logs.items()}) if request.accept_gap else {}
    known = known.past(gaps)
    open_ = open_transactions(terms.topic, logs, {n: p.end for n, p in known.partitions.items()})
    classes = known.classes.resumed() if request.classes is None else request.classes
    extras = cluster.settings.extras
    terms, replaced = with_own_destinations(terms, running.options or (), extras)
    options = terms.options_with(running.options)
    handler = load(terms.handler, terms.payloads, extras).configured(options)
    if not request.same_split:
        _ensure_same_split(loaded.plan, handler)
    if terms.redrive is not None:
        handler = Extension.REDRIVING.load().redriving(handler, terms.redrive, cluster.settings)
    names, redrives = (terms.topic, terms.group), terms.redrive is not None
    policy = resolve_policy(cluster, *names, terms.failures, redrives=redrives)
    committed = group_offsets(cluster, loaded)
    terms = replace(
        terms,
        failures=policy.failures,
        bootstrap_servers=cluster.settings.bootstrap_servers,
        handler=handler.absolute_reference,
        handler_code=handler.code,
        options=handler.kept_options(options),
    )
    # In the new plan, the group's offsets are those that it has now.
    partitions = {n: replace(p, committed=committed.get(n)) for n, p in known.partitions.items()}
    last = _last_settings(loaded.plan, running)
    differs = tuple(_changes(loaded.plan, terms, last, running, request.engine))
    event = Event(
        *(runtime.now(), EventKind.RESUMED, runtime.user(), running.reason, differs, committed)
    )
    plan = _resumed(terms, loaded, partitions, classes, event)
    readers = None if terms.commits else live_readers(cluster, terms.group)
    found = Preview(
        *(plan, Concurrency.of(running.concurrency), running.buffer_bytes, file.path),
        _actions(known, committed),
        resumes=True,
        checks=tuple(text for text, _ in checks),
        warnings=(
            *filter(None, [readers]),
            *_warnings(cluster, loaded, plan, policy, gaps, open_),
            *_lacking(loaded.plan, running.options or {}, asks=request.asks),
            *(*_more_calls(last, running, handler), *replaced),
        ),
        open_transactions=open_,
        needs_yes=readers is not None,
        notes=tuple(_notes(known, differs, runtime.wall())),
    )
    return build_prepared(cluster, found, handler, running, policy, file, loaded)


def _actions(account: Account, committed: Mapping[int, int | None]) -> tuple[PartitionAction, ...]:
    return tuple(
        PartitionAction(
            partition=number,
            start=account.watermark(number),
            end=part.end,
            committed=committed.get(number),
            finished=sum(claim[number].messages.finished for claim in account.claims.values()),
        )
        for number, part in account.partitions.items()
    )


def resumed(prepared: Prepared, loaded: LoadedPlan) -> Prepared:
    """Return a prepared resume with the account that was loaded again after its preview."""
    if prepared.seen is not None and loaded.plan == prepared.seen.plan:
        return prepared
    terms, known = prepared.plan.terms, prepared.plan.account
    next_ = [each.where for each in known.classes.each if each.ended is None]
    classes = loaded.plan.account.classes.requested(next_, only=known.classes.only)
    plan = _resumed(terms, loaded, known.partitions, classes, known.history[-1])
    return replace(prepared, action=replace(prepared.action, plan=plan), seen=loaded)


def _resumed(
    terms: Terms,
    loaded: LoadedPlan,
    partitions: Mapping[int, PartitionPlan],
    classes: PriorityClasses,
    event: Event,
) -> OffsetPlan:
    """Make the plan of a resume from new terms and the account that was loaded."""
    parks = terms.failures.stops_behind_dead
    account = replace(
        loaded.plan.account,
        partitions=partitions,
        classes=classes,
        # One generation is left out. If the process of the last run is suspended, and not dead, it
        # may still begin the journal that follows its last plan (store/plan_bucket.py).
        generation=loaded.last_generation + 1,
        parked=loaded.plan.account.parked if parks else (),
        state=None,  # No tasks run yet, and the account has everything that former tasks reported.
    )
    account = account.past(account.lost).next_generation(event.at)
    return OffsetPlan(terms, account.with_event(event))


def _ensure_same_split(plan: OffsetPlan, handler: LoadedHandler) -> None:
    """Raise PlanRefused if the code has changed, and progress of a class depends on the old code.

    If the expression of a class uses the sub-message, then which sub-messages are finished depends
    on how ``split`` made them. A redrive does not split, because each letter holds a sub-message.
    """
    if plan.terms.redrive is not None or plan.terms.handler_code in (None, handler.code):
        return
    for where in filter(None, map(class_of, plan.account.others)):
        if not Selection(where).of_message:
            raise PlanRefused(
                f"the code of {plan.terms.handler} has changed, but the class {where} is done in"
                " part, as the old split selected it",
                hint="If split gives the same as before, add --same-split. If not, start again"
                " from the committed offset with `drainer run` and another --plan: that handles the"
                " class again.",
            )


def _notes(account: Account, differs: Sequence[str], now: datetime) -> Iterator[str]:
    if account.undone:
        yield f"the drain {account.last_run(now)}"
    if differs:
        yield f"this run differs from the last one: {', '.join(differs)}"


def _as_kept(running: LocalSettings) -> LocalSettings:
    """Return settings as a resume reads them again from the texts that a plan keeps.

    The texts leave out the seconds of a deadline, and the last digits of a duration. Settings that
    have no such text stay as they are.
    """
    texts: dict[str, Any] = {
        name: typed(option, getattr(running, name))
        for name, option in _OF_RUN.items()
        if option.resumes and not option.pairs
    }
    try:
        return replace(running, **texts)
    except (UsageError, ValueError):
        return running


def _last_settings(plan: OffsetPlan, running: LocalSettings) -> LocalSettings | None:
    """Return the settings of the last run, as far as a drain can change them.

    These are the new ones if there was no such run, or if it left nothing to handle. Return None if
    the plan's texts can't be understood: they are only shown, and must not stop a resume.
    """
    last = plan.account.resuming
    if not last.engine or plan.account.complete:
        return _as_kept(running)
    given = {n: last.given(each) for n, each in _OF_RUN.items()}
    known: dict[str, Any] = {name: texts[-1] for name, texts in given.items() if texts}
    known |= {"concurrency": last.concurrency, "options": running.options, "reason": running.reason}
    try:
        return LocalSettings(**known)
    except (UsageError, ValueError):
        return None


def _changes(
    plan: OffsetPlan, terms: Terms, last: LocalSettings | None, running: LocalSettings, engine: str
) -> Iterator[str]:
    """Name what a resume of a plan changes, such as ``concurrency 5 → 100``.

    If the last run left nothing to handle, a resume has nothing to change.
    """
    if plan.account.complete:
        return
    if (known := plan.account.resuming.engine) not in ("", engine):
        yield f"engine {known} → {engine}"
    for name in ("handler", "limits", "client_config"):
        if (old := getattr(plan.terms, name)) != (new := getattr(terms, name)):
            new = f"another curve of {new}" if str(new) == str(old) else (new or "none")
            yield f"{name.replace('_', ' ')} {old or 'none'} → {new}"
    running = _as_kept(running)
    if last is None:
        yield "settings that can't be read again → those of this run"
    before = Settings(last or running, plan.terms.failures)
    yield from before.changes_to(Settings(running, terms.failures))


def _lacking(plan: OffsetPlan, options: Mapping[str, str], *, asks: bool) -> Iterator[str]:
    """Warn of options of the handler that the last run had, and that this run lacks.

    Without them the handler may do something else, such as write to another place. So if nobody is
    asked, this raises PlanRefused.
    """
    known = {**plan.terms.options, **options}
    last = plan.account.resuming.handler_options
    if lacking := {name: text for name, text in last.items() if name not in known}:
        found = f"the last run had {listed([*lacking.values()])}, which this run lacks"
        if not asks:
            raise PlanRefused(
                found,
                hint="Add that, or other values: without it, the handler may write to another"
                f" place. An empty value drops an option: --set {next(iter(lacking))}=",
            )
        yield found


def _more_calls(
    last: LocalSettings | None, running: LocalSettings, handler: LoadedHandler
) -> Iterator[str]:
    """Warn of more calls at once than the last run had."""
    if last is None:
        return
    both = (Concurrency.of(each.concurrency) for each in (last, running))
    before, now = (each.most_for(threads=not handler.is_async) for each in both)
    if now > before:
        more = f"up to {now:,} calls at once, where the last run had up to {before:,}"
        yield f"{more}; to keep that, add --concurrency {last.concurrency}"


def _warnings(
    cluster: Cluster,
    loaded: LoadedPlan,
    plan: OffsetPlan,
    policy: Policy,
    gaps: Mapping[int, Sequence[Range]],
    open_: Sequence[OpenTransaction],
) -> Iterator[str]:
    yield from loaded.warnings
    if gaps:
        lost = name_lost(gaps)
        yield f"retention deleted records before the drain handled them, so they are lost: {lost}"
    if open_:
        yield describe_open_transactions(open_)
    yield from policy.warnings
    if parked := [*map(mask_text, plan.account.parked[:1])]:
        lanes = f"lane {parked[0]} stays parked behind a dead letter"
        if (many := len(plan.account.parked)) > 1:
            lanes = f"{many:,} lanes stay parked behind dead letters, {parked[0]} among them"
        yield f"{lanes}; to continue them, add --tune after-dead=continue"
    yield from changes(cluster, loaded.plan, plan.account.committed)
    if loaded.plan.terms.handler_code not in (None, plan.terms.handler_code):
        changed = f"the code of {plan.terms.handler} has changed since the last run"
        if loaded.plan.terms.handler != plan.terms.handler:
            changed = f"the last run had another handler, {loaded.plan.terms.handler}"
        yield (f"{changed}: the new code handles the pending sub-messages")


def resuming_by(running: LocalSettings, prepared: Prepared) -> Resuming:
    """Return the options that a resume has to repeat for these settings of a program's drain."""
    given: list[tuple[Option, Sequence[str]]] = []
    for name, option in _OF_RUN.items():
        value = getattr(running, name)
        if isinstance(value, Mapping):
            given.append((option, [f"{key}={text}" for key, text in value.items()]))
        elif option.resumes and value != option.default:
            given.append((option, [str(typed(option, value))]))
    found = resuming_of(given, prepared.plan, prepared.file.path)
    code = dict(foreign_code(prepared.plan.terms))
    handler = ("--handler", code["handler"]) if "handler" in code else ()
    engine = ("--engine", "spark") if prepared.action.engine.name == SPARK else ()
    return replace(found, options=(*handler, *engine, *found.options))


def resuming_of(
    given: Iterable[tuple[Option, Sequence[str]]], plan: OffsetPlan, place: PlanPlace
) -> Resuming:
    """Return what a resume has to repeat of options that come with the texts of their values.

    ``place`` is where the plan is. If that is a topic, a resume must connect before it can read it.
    """
    shown: list[str] = []
    hidden: list[str] = []
    for option, texts in given:
        connects = is_in_topic(place) and option.field in ("bootstrap_server", "client_config")
        for text in texts if connects else _missing_in_plan(option.field, texts, plan):
            if (safe := option.without_secret(text)) == text:
                shown += option.typed(text)
            else:
                hidden.append(" ".join(option.typed(safe)))
    return Resuming(tuple(shown), tuple(hidden))


def _missing_in_plan(field: str, texts: Sequence[str], plan: OffsetPlan) -> Sequence[str]:
    # A resume has to name code again, because --yes does not confirm code that only the plan names.
    code = dict(foreign_code(plan.terms))
    match field:
        case "handler" | "value_format" | "key_format":
            known = [] if field in code else texts
        case "bootstrap_server":
            known = [plan.terms.bootstrap_servers]
        case "client_config":
            known = [
                text for text in texts if str(Path(text).absolute()) == plan.terms.client_config
            ]
        case "options":
            options = plan.terms.options.items()
            # A resume has to name a URL again: a URL that only the plan names gets no login.
            kept = (f"{option}={value}" for option, value in options if "://" not in value)
            known = [text for text in kept if text != code.get("options")]
        case _:
            known = []
    return [text for text in texts if text not in known]
