"""Prepares a new drain: everything that is checked before the first message is touched."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from drainer.engine.preview import PartitionAction, Preview
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import PlanRefused, Refused, UsageError
from drainer.kafka.backlog import OF_GROUPS, Backlog, DrainRange, parse_from, parse_until
from drainer.kafka.cluster import Cluster, TopicInfo, written_topic
from drainer.kafka.lock import lock_group
from drainer.loading.extensions import Extension
from drainer.loading.loader import LoadedHandler
from drainer.message import Message
from drainer.model.account import Account, Event, EventKind, PartitionPlan
from drainer.model.claims import ALL
from drainer.model.deadline import DeadlineWatch
from drainer.model.listed import counted, listed
from drainer.model.option import Concurrency
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.priority import NO_CLASSES, PriorityClasses
from drainer.model.progress import Progress
from drainer.model.ranges import count_offsets, intersect, join_ranges
from drainer.model.rate_cap import CapCurve
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.terms import RedriveSettings, Terms
from drainer.operations.engine import IN_PROCESS, Engine
from drainer.operations.group import check_inactive, committed_offsets, live_readers
from drainer.operations.look import NOTHING_SEEN, Look, look, sampled
from drainer.operations.policy import Policy, resolve_policy
from drainer.store.place import PlanPlace, absolute, is_in_topic, place_for, topic_and_name
from drainer.store.plan_file import plan_at
from drainer.store.saved_plan import LoadedPlan, SavedPlan
from drainer.text.escape import command

UNKNOWN_HERE = "what another drain did above the committed offset is not known here"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a new drain, all of which goes into the plan.

    If ``partitions`` is empty, all partitions are drained. A redrive ignores ``from_``: it begins
    at the committed offset, or else at the beginning of its topic.
    """

    topic: str
    group: str
    handler: LoadedHandler
    partitions: tuple[int, ...] = ()
    from_: str = "committed"
    until: str = "end"
    order: Order = Order.SUB_KEY
    plan_path: PlanPlace | None = None
    client_config: Path | None = None
    failures: FailureSettings = field(default_factory=FailureSettings)
    redrive: RedriveSettings | None = None
    limits: CapCurve | None = None  # The rates that the brokers tolerate.
    classes: PriorityClasses = NO_CLASSES
    commits: bool = True  # If it is False, a range is drained again and the group stays as it is.

    def configured(self, options: Mapping[str, str] | None) -> Request:
        """Return the request with its handler configured. Raises UsageError for wrong options."""
        handler = self.handler.within(self.range.times).configured(options or {})
        return replace(self, handler=handler)

    @property
    def place(self) -> PlanPlace:
        """The place of the plan, which may be a default."""
        return place_for(self.plan_path, self.topic, self.group, commits=self.commits)

    @property
    def range(self) -> DrainRange:
        """The range to drain. Raises UsageError if there is no such range."""
        from_ = self.from_ if self.redrive is None else "committed-or-earliest"
        return DrainRange(parse_from(from_), parse_until(self.until), self.commits)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A drain that passed all checks.

    Attributes:
        action: what the drain will do, with its plan.
        seen: the plan that was found at the plan's path: the one to resume, or an earlier one that
            a new drain sets aside; None if there was none.
        policy: what the drain needs for its dead letters.
        file: the place where the plan is kept.
    """

    action: Preview
    handler: LoadedHandler
    seen: LoadedPlan | None
    policy: Policy
    file: SavedPlan
    engine: Engine = IN_PROCESS

    @property
    def plan(self) -> OffsetPlan:
        return self.action.plan

    @property
    def is_empty(self) -> bool:
        """Whether a new drain has nothing to do."""
        return not (self.action.resumes or self.action.offsets or self.action.follows)


def prepare(
    cluster: Cluster,
    request: Request,
    running: LocalSettings,
    runtime: Runtime = THIS_PROCESS,
    *,
    new_group: bool = False,
) -> Prepared:
    """Check the cluster, the group and the disk, and change none of them.

    The handler must be configured already. With ``new_group``, there is no warning that the group
    has no committed offset. Raises Refused when the drain would not be safe.
    """
    _ensure_may_follow(running, {"--until": request.until != "end"})
    topic = cluster.topic(request.topic)
    path = request.place
    _ensure_apart(path, request.topic, request.failures.dead_letter_topic)
    kept = partial(plan_at, client=lambda: cluster.settings)
    file = kept(absolute(path))
    can_be_written = file.check_writable()
    seen = _check_plan(file, request, topic.topic_id)
    if seen is not None and not _did_nothing(seen):
        _check_committed(cluster, path, seen)
    readers, is_new = None, False
    if request.commits:
        is_new = check_inactive(cluster, request.group, request.topic) == "dead"
        alone = f"group {request.group} has no members: no consumer competes with the drain"
    else:
        readers = live_readers(cluster, request.group)
        is_new = cluster.group(request.group, right="DESCRIBE").state == "dead"
        alone = f"nothing moves the offsets of group {request.group}"
    names = request.topic, request.group
    backlog = request.range.freeze(cluster, *names, request.partitions or None, new_group=new_group)
    policy = resolve_policy(cluster, *names, request.failures, redrives=request.redrive is not None)
    checks = [
        f"topic {request.topic} exists, with id {topic.topic_id}",
        *([] if is_new else [alone]),
        "the whole backlog is still in the log",
        can_be_written,
        *backlog.checks,
    ]
    plan = _new_plan(cluster, request, topic, backlog, policy.failures, running, runtime)
    elsewhere = _known_elsewhere(request, plan, file.path)
    is_blind = request.range.from_ in OF_GROUPS and not (is_new or seen or elsewhere)
    found = Preview(
        *(plan, Concurrency.of(running.concurrency), running.buffer_bytes, path),
        tuple(
            PartitionAction(part.partition, part.start, part.end, part.committed)
            for part in backlog.partitions.values()
        ),
        checks=tuple(checks),
        warnings=(
            *filter(None, [readers]),
            *_warnings(cluster, request, backlog, seen),
            *elsewhere,
            *([cluster.missing(request.group)] if is_new and not request.commits else []),
            *policy.warnings,
        ),
        open_transactions=backlog.open_transactions,
        needs_yes=readers is not None,
        new_group=is_new and not new_group,
        notes=(UNKNOWN_HERE,) if is_blind else (),
        makes_plan_place=file.makes,
    )
    return build_prepared(cluster, found, request.handler, running, policy, kept(path), seen)


def _ensure_apart(place: PlanPlace, *topics: str | None) -> None:
    """Raise PlanRefused if the plan would be among the records that a drain reads or writes."""
    if is_in_topic(place) and (topic := topic_and_name(place)[0]) in topics:
        raise PlanRefused(
            f"a plan in topic {topic} would be among the records of this drain",
            hint="Name another topic with --plan, such as kafka://drainer-plans.",
        )


def _ensure_may_follow(running: LocalSettings, is_ended_by: Mapping[str, bool]) -> None:
    """Raise UsageError if a drain is to follow its topic, and something ends it before that."""
    ended_by = [what for what, is_given in is_ended_by.items() if is_given]
    if running.follows and ended_by:
        raise UsageError(
            f"{ended_by[0]} ends the drain where --follow and --until-lag would go on",
            hint="Leave out --follow and --until-lag, or what ends the drain.",
        )


def build_prepared(
    cluster: Cluster,
    found: Preview,
    handler: LoadedHandler,
    running: LocalSettings,
    policy: Policy,
    file: SavedPlan,
    seen: LoadedPlan | None,
) -> Prepared:
    """Complete the preview of a drain that passed all checks, and keep what the drain needs.

    ``found`` is the preview without what the handler, its settings and a few messages tell.
    """
    plan = found.plan
    if running.hand_over_s and not plan.terms.commits:
        raise UsageError("--no-commit leaves nothing to hand over", hint="Remove --hand-over.")
    ends = {"--only": plan.account.classes.only, "a redrive": plan.terms.redrive is not None}
    _ensure_may_follow(running, ends)
    messages = cache(partial(sampled, cluster, plan))
    checks, warnings = handler.check_before_preview(messages)
    earlier = {} if seen is None or _finished_nothing(seen) else seen.plan.terms.options
    on_target = look_at_target(cluster, handler, plan.terms.topic, earlier)
    examples, tried, is_unlikely = _looked(handler, found, seen, messages)
    options = handler.kept_options(plan.terms.options)
    action = replace(
        found,
        plan=replace(plan, terms=replace(plan.terms, options=options)),
        batching=handler.batching,
        follows=running.follows,
        plan_path=file.path,
        journal_interval_s=file.journal_interval_s,
        checks=(*found.checks, *checks, *on_target[0]),
        warnings=(*found.warnings, *warnings, *on_target[1], *tried),
        makes_topic=policy.makes,
        deadline=DeadlineWatch().judge(running.deadline, THIS_PROCESS.wall(), 0.0, None),
        needs_yes=found.needs_yes or is_unlikely,
        examples=examples,
    )
    prepared = Prepared(action, handler, seen, policy, file)
    if plan.terms.limits is None:
        return prepared
    capped: Prepared = Extension.LIMITS.load().within_limits(cluster, prepared, plan.terms.limits)
    return capped


def look_at_target(
    cluster: Cluster, handler: LoadedHandler, topic: str, earlier: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Let the handler of a drain of this topic look at the topic that it writes to.

    See ``LoadedHandler.look_at_target``.
    """

    def partitions_of(name: str) -> int:
        return len(written_topic(cluster, name).partitions)

    return handler.look_at_target(topic, partitions_of, earlier)


def _looked(
    handler: LoadedHandler,
    found: Preview,
    seen: LoadedPlan | None,
    messages: Callable[[], list[Message]],
) -> Look:
    """Try split and expressions on some messages. A resume only tries priority classes of its own.

    Raises Refused before a new drain. The split of a resume was accepted before.
    """
    if not found.resumes or seen is None:
        return look(handler, found.plan, messages)
    wheres = [{each.where for each in p.account.classes.each} for p in (found.plan, seen.plan)]
    if wheres[0] - wheres[1]:
        with suppress(Refused):
            return (), look(handler, found.plan, messages)[1], False
    return NOTHING_SEEN


def _warnings(
    cluster: Cluster, request: Request, backlog: Backlog, seen: LoadedPlan | None
) -> Iterator[str]:
    yield from backlog.remarks
    leaps = [
        f"{part.skipped_before:,} of partition {number}, before {part.start}"
        for number, part in backlog.partitions.items()
        if part.committed is not None and part.skipped_before
    ]
    if leaps:
        yield f"--from skips offsets: {listed(leaps)}"
    if cluster.group(lock_group(request.group, commits=request.commits)).members:
        yield "another drain of this group seems to run; if it does, this one is refused"
    if seen is not None and backlog.offsets:
        finished = "finished " if seen.plan.account.complete else ""
        drain = f"{finished}drain {seen.plan.terms.drain_id}"
        why = "nothing of it was handled" if _did_nothing(seen) else "it has the same path"
        yield f"drainer sets the plan of the {drain} aside, because {why}"


def _known_elsewhere(request: Request, plan: OffsetPlan, own: PlanPlace) -> list[str]:
    """Return a warning for each other plan of the group that has done some of what is to be done.

    ``own`` is the place of the new plan.

    Raises PlanRefused for the first of them, unless the request names the file of its plan.
    """
    from drainer.control.client import left_of  # noqa: PLC0415 - with http, half as long as --help

    found = []
    for path, other in left_of(plan.terms) if plan.terms.redrive is None else ():
        if path == (own.resolve() if isinstance(own, Path) else own):
            continue  # It was checked before, and will be set aside.
        if done := _done_in(other.account, plan.account.partitions):
            unfinished = f"{path} has an unfinished drain of this group with {done}"
            way = other.account.resuming.way(path)
            if request.plan_path is None:
                hint = f"To repeat what is done, name the new plan with --plan. {way}"
                raise PlanRefused(unfinished, hint=hint)
            found.append(f"{unfinished}. {way}")
    return found


def _done_in(account: Account, partitions: Mapping[int, PartitionPlan]) -> str:
    """Return what an account has as done in the offsets of these partitions; empty if nothing."""
    messages, subs, may_have_more = 0, 0, False
    for number in account.partitions.keys() & partitions.keys():
        own, new = account.partitions[number], partitions[number]
        start, end = max(new.start, own.start), min(new.end, own.end)
        for name, claim in account.claims.items():
            known = claim[number]
            partial = {n: part for n, part in known.partial.items() if start <= n < end}
            subs += sum(part.bits.bit_count() for part in partial.values())
            finished = join_ranges([(own.start, known.watermark), *known.finished])
            whole = count_offsets(intersect(finished, ((start, max(start, end)),)))
            messages += whole if name == ALL else 0
            may_have_more |= bool(whole or partial)
        may_have_more |= account.state is not None and start < end
    if not may_have_more:
        return ""
    each = (messages, "message"), (subs, "sub-message")
    done = " and ".join(counted(number, noun) for number, noun in each if number)
    return f"{done or 'work that only a resume counts'} done above the offset"


def _new_plan(
    cluster: Cluster,
    request: Request,
    topic: TopicInfo,
    backlog: Backlog,
    failures: FailureSettings,
    running: LocalSettings,
    runtime: Runtime,
) -> OffsetPlan:
    created = runtime.now()
    committed = {number: part.committed for number, part in backlog.partitions.items()}
    terms = Terms(
        drain_id=f"{runtime.wall():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created=created,
        cluster_id=backlog.cluster_id,
        bootstrap_servers=cluster.settings.bootstrap_servers,
        client_config=str(request.client_config.absolute()) if request.client_config else None,
        isolation=backlog.isolation,
        topic=request.topic,
        topic_id=backlog.topic_id,
        topic_partitions=len(topic.partitions),
        group=request.group,
        handler=request.handler.absolute_reference,
        handler_code=request.handler.code,
        payloads=request.handler.payloads,
        order=request.order.value,
        failures=failures,
        redrive=request.redrive,
        limits=request.limits,
        commits=request.commits,
        options=request.handler.kept_options(running.options or {}),
        partitions_chosen=bool(request.partitions),
    )
    skips = (f"skips: {', '.join(failures.skip)}",) if failures.skip else ()
    begun = Event(created, EventKind.BEGUN, runtime.user(), running.reason, skips, committed)
    account = Account(
        updated=created,
        generation=1,
        partitions={
            number: PartitionPlan(
                start=part.start,
                end=part.end,
                prior=part.committed,
                committed=part.committed,
                leader_epoch=part.leader_epoch,
            )
            for number, part in backlog.partitions.items()
        },
        claims={ALL: {n: Progress(part.start) for n, part in backlog.partitions.items()}},
        history=(begun,),
        classes=request.classes,
    )
    return OffsetPlan(terms, account.begun())


def _check_plan(file: SavedPlan, request: Request, topic_id: str) -> LoadedPlan | None:
    """Return the plan at the place of a new one, if it may be set aside; None if there is none.

    Raises PlanRefused if it belongs to another topic or group, or if its drain is unfinished and
    has handled something. A new redrive may set the plan of an unfinished redrive aside.
    """
    if not file.exists:
        return None
    path, seen = file.path, file.load()
    known = seen.plan
    ensure_of_drain(path, known.terms, request, topic_id)
    if not known.account.complete:
        file.ensure_free()
        redrives = None not in (request.redrive, known.terms.redrive)
        if known.account.state is not None or not (redrives or _did_nothing(seen)):
            repeats = ", and repeat what is done above it, name another file with --plan."
            if known.account.state is None and _finished_nothing(seen):
                repeats = f" before the drain: `{command('plan undo', path)}`, and run again."
            raise PlanRefused(
                f"{path} is the plan of an unfinished drain of this topic and group",
                hint=f"To begin again from the group's offset{repeats}"
                f" {known.account.resuming.way(path)}",
            )
    return seen


def ensure_of_drain(path: PlanPlace, known: Terms, request: Request, topic_id: str) -> None:
    """Ensure that the plan at a place is of the topic and the group that are to be drained.

    Raises PlanRefused if it is not.
    """
    requested = topic_id, request.group, request.commits
    if (known.topic_id, known.group, known.commits) != requested:
        kept = "" if known.commits else ", without commits"
        raise PlanRefused(
            f"{path} is the plan of another drain: topic {known.topic}"
            f" ({known.topic_id}), group {known.group}{kept}",
            hint="Name another file with --plan.",
        )


def _did_nothing(seen: LoadedPlan) -> bool:
    """Return whether the drain of an unfinished plan has finished nothing, and moved no offset.

    If it began past the group's offset, as with --from, its first commit moved the group there. A
    new drain from there would leave out what lies between.
    """
    partitions = seen.plan.account.partitions.values()
    stays = all(part.committed in (part.before, None) for part in partitions)
    return stays and _finished_nothing(seen)


def _finished_nothing(seen: LoadedPlan) -> bool:
    """Return whether the drain of an unfinished plan has ended, and finished nothing before.

    A drain that was killed may have finished what its plan does not have yet.
    """
    account = seen.plan.account
    unsure = account.complete or account.running or seen.torn
    return not (unsure or any(n.finished for n in account.counts()))


def _check_committed(cluster: Cluster, path: PlanPlace, seen: LoadedPlan) -> None:
    # If the group is not at the offsets that this plan has finished, a new drain would handle again
    # what lies between.
    plan = seen.plan
    if not plan.terms.commits:
        return
    # For an unfinished redrive, its commits count, because the next redrive reads its plan.
    done = plan.account.watermarks if plan.account.complete else plan.account.committed
    found = committed_offsets(cluster, plan)
    for number, offset in found.items():
        if (offset or 0) < (done[number] or 0):
            raise PlanRefused(
                f"{path} is the plan of a drain that is done with partition {number} up to offset"
                f" {done[number]}, but group {plan.terms.group} is at"
                f" {'no offset' if offset is None else offset}",
                hint="To handle it all again, name another file with --plan. To move the group"
                f" there: `{command('resume', path)}`",
            )
