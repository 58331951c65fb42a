"""Decides what a repeated ``drainer run`` does, by the plan that it finds at its place.

A scheduler starts the same command again after a pod or a machine was lost. The backlog is that of
the plan, even if the log has grown since. Everything else comes from the command: in a shared
place, another user may have written the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace

from drainer.engine.preview import PROCESS
from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, PlanRefused
from drainer.kafka.cluster import Cluster
from drainer.loading.importing import place_and_name
from drainer.loading.loader import LoadedHandler
from drainer.model.account import Account, Event
from drainer.model.listed import listed
from drainer.model.option import option_name
from drainer.model.plan import OffsetPlan
from drainer.model.priority import PriorityClasses
from drainer.model.settings import LocalSettings
from drainer.model.status import (
    CLASS_DONE,
    FailureStatus,
    LimitStatus,
    PartitionResult,
    ProgressStatus,
    Status,
    Summary,
)
from drainer.model.terms import PayloadSettings, Terms
from drainer.operations.passes import waiting
from drainer.operations.policy import resolve_policy
from drainer.operations.resume import AS_PLANNED, ResumeRequest, prepare_resume
from drainer.operations.start import (
    Prepared,
    Request,
    ensure_of_drain,
    look_at_target,
    prepare,
)
from drainer.store.plan_file import plan_at
from drainer.store.saved_plan import LoadedPlan, SavedPlan

Given = Mapping[str, str]


def prepare_run(
    cluster: Cluster,
    request: Request,
    running: LocalSettings,
    *,
    or_resume: bool = True,
    state: str | None = None,
    again: ResumeRequest = AS_PLANNED,
    wait: Callable[[], None] = lambda: None,
    hand_over: Callable[[SavedPlan, Terms, Summary], Summary] = lambda file, terms, summary: (
        summary
    ),
) -> Prepared | Summary:
    """Prepare a new drain. With ``or_resume``, prepare to resume the plan that is there already.

    If the drain of that plan is over, this returns how it ended. Nothing is touched.

    Args:
        state: the place that a person gave for the reports of Spark's tasks.
        again: the engine of a resume, and whether a person is asked. The rest is the request's.
        wait: called before any check of the group, unless the drain is over.
        hand_over: called with how a drain ended that is over, to watch its hand-over if need be.

    Raises PlanRefused if the plan is of another drain, if it names another handler or destination,
    or if the group was put back; and what ``prepare`` and ``prepare_resume`` raise.
    """
    file = None
    if or_resume:
        file = plan_at(request.place, state, lambda: cluster.settings)
    if file is None or not file.exists:
        wait()
        try:
            return prepare(cluster, request, running)
        except PlanRefused:
            if file is not None:  # Another process may have begun since then.
                file.ensure_unchanged(None)
            raise
    file.ensure_free()
    loaded = file.load()
    terms, account = loaded.plan.terms, loaded.plan.account
    topic = cluster.topic(request.topic)
    ensure_of_drain(file.path, terms, request, topic.topic_id)
    _ensure_same(cluster, loaded, request, running.options or {})
    classes = _classes(account.classes, request.classes)
    if (end := account.over) is not None and (account.complete or classes.stops):
        return hand_over(file, terms, _ended(loaded, end))
    wait()
    again = replace(
        again,
        failures=request.failures,
        classes=classes,
        client_config=request.client_config,
        limits=request.limits or False,
    )
    handler = request.handler
    return prepare_resume(
        *(cluster, file, loaded, running, again),
        load=lambda *_: handler.fresh(),
    )


def _classes(known: PriorityClasses, requested: PriorityClasses) -> PriorityClasses:
    """Return the classes of the plan for another run of the same command.

    A class that was drained already is not drained again.
    """
    wheres = [each.where for each in requested.each]
    if not wheres:
        return known.resumed()
    ended = {each.where for each in known.each if each.ended}
    left = [where for where in wheres if where not in ended]
    return known.requested(left, only=requested.only)


def _ensure_same(cluster: Cluster, loaded: LoadedPlan, request: Request, given: Given) -> None:
    """Ensure that a plan names the handler, the split and the destinations of the request.

    ``given`` has the options of the request's handler. Raises PlanRefused.
    """
    path, known, account = loaded.path, loaded.plan.terms, loaded.plan.account
    if (undone := account.undone) is not None:
        raise PlanRefused(
            f"{path} is the plan of a drain that was {undone}",
            hint="To drain again from the group's offset, name another plan with --plan."
            f" {account.resuming.way(path)}",
        )
    differs = [*_differences(cluster, known, account, request, given)]
    if differs:
        raise PlanRefused(
            f"{path} is the plan of a drain with {listed(differs)}",
            hint=f"Give what the plan has, or name another plan with --plan."
            f" {account.resuming.way(path)}",
        )


def _differences(
    cluster: Cluster, known: Terms, account: Account, request: Request, given: Given
) -> Iterator[str]:
    """Yield where a plan differs from the request, such as ``order none, not sub-key``."""
    handler, names = request.handler, (request.topic, request.group)
    if known.redrive is not None:
        yield "dead letters to redrive"
    numbers, chosen = account.partitions, set(request.partitions)
    takes_added = OffsetPlan(known, account).takes_added
    if takes_added == bool(chosen) or (chosen and chosen != set(numbers)):
        joining = " and any that are added" if takes_added else ""
        yield f"partitions {listed([*numbers])}{joining}"
    if not _is_same_handler(known, handler):
        yield f"handler {known.handler}, not {handler.absolute_reference}"
    # A handler finds some of its options itself, such as how many partitions its target has. The
    # plan's values stay, so that each sub-key keeps its place.
    look_at_target(cluster, handler, request.topic, known.options)
    options = handler.kept_options(given)
    typed = [*dict.fromkeys((*(known.options.keys() - (options.keys() - given.keys())), *given))]
    letters = known.failures.dead_letter_topic
    own = letters and resolve_policy(cluster, *names, request.failures, redrives=False).failures
    pairs: dict[str, tuple[object, object]] = {
        "order": (known.order, request.order.value),
        "isolation level": (known.isolation, cluster.settings.isolation),
        "dead-letter topic": (letters, own and own.dead_letter_topic),
    }
    for each in fields(PayloadSettings):
        ours = getattr(handler.payloads, each.name)
        pairs[option_name(each.name).replace("-", " ")] = getattr(known.payloads, each.name), ours
    # A resume drops options whose value is empty.
    values = ((n, known.options.get(n) or None, options.get(n) or None) for n in typed)
    pairs |= {f"option {name}": (theirs, ours) for name, theirs, ours in values}
    for what, (theirs, ours) in pairs.items():
        if theirs != ours:
            yield f"{what} {_shown(theirs)}, not {_shown(ours)}"


def _shown(value: object) -> str:
    return "none" if value in (None, ()) else str(value)


def _is_same_handler(known: Terms, handler: LoadedHandler) -> bool:
    """Return whether a plan has this handler, which may be at another path by now."""
    if known.handler == handler.absolute_reference:
        return True
    names = {place_and_name(each)[1] for each in (known.handler, handler.absolute_reference)}
    return len(names) == 1 and known.handler_code is not None and known.handler_code == handler.code


def _ended(loaded: LoadedPlan, end: Event) -> Summary:
    """Return the summary of a drain that is over, as far as its plan has it."""
    terms, account = loaded.plan.terms, loaded.plan.account
    messages, subs = account.counts()
    statuses = account.classes.statuses(account.claims)
    only = not account.complete
    progress = ProgressStatus(messages, subs, classes=statuses, only_classes=only)
    summary = Summary(
        Status(
            *(terms.topic, terms.group, str(loaded.path), progress, LimitStatus()),
            failures=FailureStatus.of(terms.failures),
        ),
        CLASS_DONE if only else "done",
        EXIT_DEAD_LETTERS if account.gave_up or account.lost else EXIT_DONE,
        partitions={
            n: PartitionResult(
                *(part.start, part.end, account.watermark(n), part.committed, part.lost),
                account.finished_above(n),
            )
            for n, part in account.partitions.items()
        },
        parked=account.parked_lanes,
        resuming=account.resuming,
        engine=account.resuming.engine or PROCESS,
        history=account.history,
        handler=terms.handler_words,
        connection=terms.connection_words,
        barrier=terms.payloads.barrier,
        commits=terms.commits,
        ended_before=end.at,
    )
    return waiting(summary, {}) if only and account.classes.left_over else summary
