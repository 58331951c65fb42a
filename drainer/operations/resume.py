"""Resuming a drain: everything that is looked at before it goes on from its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drainer.engine.preview import PartitionAction
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import PlanRefused
from drainer.kafka.backlog import open_transactions
from drainer.kafka.cluster import Cluster
from drainer.loader import LoadedHandler, load_handler
from drainer.mask import mask_text
from drainer.model.claims import class_of
from drainer.model.classes import PriorityClasses
from drainer.model.event import Event, EventKind
from drainer.model.failures import AfterDead, FailureSettings
from drainer.model.listed import name_lost
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range
from drainer.model.rules import RuleSettings
from drainer.model.settings import LocalSettings
from drainer.model.transaction import describe_open_transactions
from drainer.operations.examine import changes, examine, group_offsets, insist
from drainer.operations.policy import settle_policy
from drainer.operations.start import Prepared, resumed, safe
from drainer.policy.rules.selection import Selection
from drainer.store.plan_file import LoadedPlan, SavedPlan


def prepare_resume(
    cluster: Cluster,
    file: SavedPlan,
    loaded: LoadedPlan,
    running: LocalSettings,
    failures: FailureSettings | None = None,
    plan: OffsetPlan | None = None,
    rules: RuleSettings | None = None,
    classes: PriorityClasses | None = None,
    *,
    accept_gap: bool = False,
    same_split: bool = False,
    runtime: Runtime = THIS_PROCESS,
    load: Callable[[str], LoadedHandler] = load_handler,
) -> Prepared:
    """Looks whether the drain can go on; touches nothing.

    With ``accept_gap`` it goes on behind records that were deleted before they were handled, with
    ``same_split`` after the handler's code has changed, though what a class finished depends on it.

    ``plan`` is what to go on with, when that isn't quite what was loaded, ``failures``, ``rules``
    and ``classes`` when they aren't what that says. ``load`` finds the handler.

    Raises PlanRefused or GroupActive when it can't.
    """
    plan = plan or loaded.plan
    looked_at = replace(loaded, plan=plan)
    checks = examine(cluster, looked_at, gap_accepted=accept_gap)
    insist(checks)
    logs = cluster.log_bounds(plan.topic, tuple(plan.partitions), plan.isolation)
    gaps = plan.gaps({n: log.start for n, log in logs.items()}) if accept_gap else {}
    plan = plan.past(gaps)
    ends = {number: part.end for number, part in plan.partitions.items()}
    held = open_transactions(plan.topic, logs, ends)
    failures = failures or plan.failures
    rules = plan.rules if rules is None else rules
    classes = plan.classes.resumed() if classes is None else classes
    handler = load(plan.handler)
    if not same_split:
        _insist_on_same_split(plan, handler)
    if plan.redrive is not None:
        handler = handler.redriving(plan.redrive)
        failures = replace(failures, dead_letter_topic=failures.dead_letter_topic or plan.topic)
    terms = replace(plan, failures=failures, rules=rules, classes=classes)
    policy = settle_policy(cluster, terms)
    parked = plan.parked if failures.after_dead is AfterDead.PARK else ()
    committed = group_offsets(cluster, looked_at)
    # What the group was found at is what the drain goes on from.
    partitions = {
        n: replace(part, committed=committed.get(n)) for n, part in plan.partitions.items()
    }
    begun = replace(
        terms,
        partitions=partitions,
        bootstrap_servers=cluster.settings.bootstrap_servers,
        generation=loaded.last_generation,
        handler_code=handler.code,
        failures=policy.failures,
        parked=parked,
        state=None,  # this process has no tasks, and the plan has what others reported
    )
    who, words = runtime.user(), rules.in_words
    event = Event(runtime.now(), EventKind.RESUMED, who, running.reason, words, begun.committed)
    return safe(
        resumed(begun, event),
        handler,
        running,
        policy,
        file,
        loaded,
        partitions=tuple(
            PartitionAction(
                partition=number,
                start=plan.watermark(number),
                end=part.end,
                committed=part.committed,
                finished=sum(claim[number].messages.finished for claim in plan.claims.values()),
            )
            for number, part in partitions.items()
        ),
        checks=tuple(text for text, _ in checks),
        warnings=(
            *loaded.repeats,
            *_gap_warning(gaps),
            *([describe_open_transactions(held)] if held else []),
            *policy.warnings,
            *_parked_warning(parked),
            *changes(cluster, plan, committed),
            *_code_warning(plan, handler.code),
        ),
        held=held,
        resumes=True,
    )


def going_on(prepared: Prepared, loaded: LoadedPlan) -> Prepared:
    """The drain that was prepared, with what the plan has gained since it was looked at."""
    plan = prepared.plan
    if prepared.seen is not None and loaded.plan == prepared.seen.plan:
        return prepared
    park = plan.failures.after_dead is AfterDead.PARK
    begun = replace(
        loaded.plan,
        partitions=plan.partitions,
        handler=plan.handler,
        redrive=plan.redrive,
        bootstrap_servers=plan.bootstrap_servers,
        client_config=plan.client_config,
        generation=loaded.last_generation,
        failures=plan.failures,
        handler_code=plan.handler_code,
        parked=loaded.plan.parked if park else (),
        rules=plan.rules,
        limits=plan.limits,
        classes=plan.classes,
        state=None,
    )
    event = plan.history[-1]
    return replace(prepared.with_plan(resumed(begun.past(plan.lost), event)), seen=loaded)


def _insist_on_same_split(plan: OffsetPlan, handler: LoadedHandler) -> None:
    """A class says that all it selects of a message is finished: by what ``split`` gave then."""
    if plan.redrive is not None or plan.handler_code in (None, handler.code):
        return  # a letter holds its own sub-message
    for where in filter(None, map(class_of, plan.others)):
        if not Selection(where).of_message:
            raise PlanRefused(
                f"the code of {plan.handler} has changed, but the class {where} is done in part by"
                " what the old split gave",
                hint="If split gives the same as before, add --same-split. If not, start again"
                " from the committed offset with `drainer run` and another --plan: that handles the"
                " class again.",
            )


def _gap_warning(gaps: Mapping[int, Sequence[Range]]) -> list[str]:
    if not gaps:
        return []
    return [f"retention deleted records before the drain handled them: {name_lost(gaps)}, are lost"]


def _code_warning(plan: OffsetPlan, code: str | None) -> list[str]:
    if plan.handler_code in (None, code):
        return []
    return [
        f"the code of {plan.handler} has changed since the last run: the new code handles what is"
        " pending"
    ]


def _parked_warning(parked: Sequence[str]) -> list[str]:
    if not parked:
        return []
    if len(parked) == 1:
        lanes = f"lane {mask_text(parked[0])} stays parked behind a dead letter"
    else:
        among = mask_text(parked[0])
        lanes = f"{len(parked):,} lanes stay parked behind dead letters, {among} among them"
    return [f"{lanes}; to continue them, add --after-dead continue"]
