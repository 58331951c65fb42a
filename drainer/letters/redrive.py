"""The preparation of a redrive, which is a drain of a topic of dead letters.

The group's offset and the receipts in the topic tell which letters earlier redrives have finished.
Letters that do not match the filters stay pending, so that another redrive finds them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

from drainer.errors import NotADeadLetter, Refused, RightMissing
from drainer.kafka.cluster import Cluster
from drainer.letters.foreign import reader
from drainer.letters.reading import SubMessageCount, read_letters
from drainer.letters.receipts import ONLY_HERE, finished_in, redrive_progress, taking_in
from drainer.letters.redriving import redriving
from drainer.letters.resend import ensure_no_loop, groups_of, no_way_back
from drainer.loading.loader import LoadedHandler
from drainer.model.claims import ALL
from drainer.model.listed import counted, name_lost
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import RangeSet
from drainer.model.settings import LocalSettings
from drainer.model.terms import RedriveSettings
from drainer.operations.examine import ensure_same_records
from drainer.operations.start import Prepared, Request, prepare
from drainer.policy.dead_letter import From, default_dead_letter_topic
from drainer.policy.exact_json import Encoding
from drainer.policy.redrive import SOURCE, why_left_alone
from drainer.store.place import default_path

SHOWN = 3  # An error names this many origins.
ORIGINS_MOST = 100  # At most this many origins are counted apart. All others count as MANY.
MANY: From = ("…", "…", "…")


def default_group(topic: str) -> str:
    """Return the group that keeps track of the redrives of a dead-letter topic."""
    return f"drainer.redrive.{topic}"


def prepare_redrive(
    cluster: Cluster,
    request: Request,
    redrive: RedriveSettings,
    running: LocalSettings,
    *,
    mixed: bool = False,
    accept_repeats: bool = False,
    parking: str | None = None,
) -> Prepared:
    """Check that the current letters can be redriven, without touching anything.

    Letters that earlier redrives of the group finished are left out. Letters that fail again go to
    the topic ``parking``, by default to the one that they came from. If that topic is the default
    dead-letter topic of a drain with this handler, the letters of other drains are left alone.

    Raises Refused if the redrive is not safe. It also raises Refused if an earlier redrive has not
    ended, unless its plan is here or ``accept_repeats`` is set; and if the letters come from
    several topics, groups or handlers, unless ``mixed`` is set.
    """
    if redrive.to is not None or parking is not None:
        ensure_no_loop(redrive.to or "", request.topic, parking)
    given, handler = request, request.handler
    request = replace(
        given,
        handler=redriving(handler, redrive, cluster.settings),
        plan_path=request.plan_path or default_path(request.topic, "redrive"),
        failures=replace(request.failures, dead_letter_topic=parking),
        redrive=redrive,
    )
    own_group = request.group == default_group(request.topic)
    prepared = prepare(cluster, request, running, new_group=own_group)
    plan, known, warnings = _known(cluster, prepared, accept_repeats=accept_repeats)
    chosen, reference = redrive.letters.sources, handler.absolute_reference
    origins, raw, notes = _origins(cluster, redrive, plan, reference, parking, mixed=mixed)
    own = next((each for each in origins if _is_own(each, plan.terms.topic, reference)), None)
    if own is None:
        if not mixed:
            _ensure_one_origin(origins, plan.terms.topic)
        warnings += _warnings_of(cluster, redrive, origins, reference)
    elif len(origins) > 1 and not set(own) <= set(chosen):
        letters = replace(redrive.letters, sources=(*chosen, *own))
        narrowed = replace(redrive, letters=letters)
        prepared = prepare_redrive(
            *(cluster, given, narrowed, running), accept_repeats=accept_repeats, parking=parking
        )
        others = f"left alone: {counted(origins.total() - origins[own], 'letter')} of other drains"
        action = prepared.action
        return replace(prepared, action=replace(action, warnings=(*action.warnings, others)))
    if parking in {topic for topic, _, _ in origins}:
        raise no_way_back(parking)
    if redrive.to is None and not prepared.is_empty:
        warnings += _warnings_of_handling(handler, raw)
    checks = [f"all letters come from {_named(each)}" for each in origins if len(origins) == 1]
    try:
        cluster.topic(plan.terms.topic, "WRITE")
    except RightMissing:
        warnings.append(ONLY_HERE.format(plan.terms.topic))
    action = replace(
        prepared.action,
        plan=plan,
        partitions=tuple(
            replace(each, start=plan.account.watermark(each.partition))
            for each in prepared.action.partitions
        ),
        checks=(*prepared.action.checks, *known, *checks),
        warnings=(*prepared.action.warnings, *warnings),
        notes=(*prepared.action.notes, *notes),
    )
    return replace(prepared, action=action)


def _known(
    cluster: Cluster, prepared: Prepared, *, accept_repeats: bool
) -> tuple[OffsetPlan, list[str], list[str]]:
    """Return the plan in which the letters that earlier redrives finished count as finished.

    The other two results are checks that passed, and warnings. Raises PlanRefused if it is not
    known what earlier redrives finished.
    """
    plan, seen, warnings = prepared.plan, prepared.seen, list[str]()
    here = None if seen is None or seen.plan.account.complete else seen.plan
    found = redrive_progress(cluster, plan.terms.topic, plan.terms.group)
    if not accept_repeats:
        found.ensure_ended("" if here is None else here.terms.drain_id)
    plan = taking_in(plan, found.finished)
    if seen is not None and here is not None:
        ensure_same_records(cluster, seen)
        plan = taking_in(plan, finished_in(cluster, here, prepared.handler))
        starts = cluster.log_starts(here.terms.topic, here.account.partitions)
        # If the group has an offset, prepare() has looked for gaps.
        gone = {n: 0 if plan.account.committed[n] else start for n, start in starts.items()}
        if gaps := here.account.gaps(gone):
            lost = name_lost(gaps)
            warnings.append(f"retention deleted letters before their redrive: {lost}")
    known = sum(map(plan.account.finished_above, plan.account.partitions))
    offsets = f"{counted(known, 'offset')} above the group's"
    left_out = f"letters that were redriven before, and receipts, are left out: {offsets}"
    return plan, [left_out] if known else [], warnings


def _origins(
    cluster: Cluster,
    redrive: RedriveSettings,
    plan: OffsetPlan,
    reference: str,
    parking: str | None,
    *,
    mixed: bool,
) -> tuple[Counter[From], int, list[str]]:
    """Count the letters that are left: by origin, and those whose payload has to be decoded.

    The last result is a note if some are about the same sub-message.

    This reads all of these letters. If every origin is allowed, it reads and counts nothing.
    """
    if mixed and redrive.to is None and parking is None:
        return Counter(), 0, []
    finished = {n: RangeSet(each.finished) for n, each in plan.account.claims[ALL].items()}
    read = reader(redrive.headers)
    origins, raw, given_up = Counter[From](), 0, SubMessageCount()
    for message in read_letters(cluster, plan.terms.topic, since=plan.account.watermarks):
        if message.partition not in finished or message.offset in finished[message.partition]:
            continue
        with suppress(NotADeadLetter):
            letter = read(message)
            if why_left_alone(redrive, letter, message.topic) is None:
                given_up.add(letter)
                raw += letter.payload_encoding is Encoding.RAW
                origin = letter.from_
                few = origin in origins or len(origins) < ORIGINS_MOST
                own = _is_own(origin, plan.terms.topic, reference)
                origins[origin if few or own or origin[0] == parking else MANY] += 1
    letters = f"{counted(given_up.letters, 'letter')}{given_up.words}"
    return origins, raw, [f"{letters}: a kill left some twice"] if given_up.words else []


def _warnings_of(
    cluster: Cluster, redrive: RedriveSettings, origins: Counter[From], reference: str
) -> list[str]:
    if redrive.to is None:
        return [
            f"the handler {other} gave these letters up; now {reference} gets them"
            for _, _, other in origins
            if other not in ("", reference)
        ]
    sources = sorted({topic for topic, _, _ in origins if topic != MANY[0]})
    topics = sources if redrive.to == SOURCE else [redrive.to]
    named, groups = ", ".join(topics) or "the source", groups_of(cluster, topics)
    return [
        f"records appended to {named} reach every group that reads it: {groups}",
        "newer records of these keys may already be there: letters go behind them",
    ]


def _warnings_of_handling(handler: LoadedHandler, raw: int) -> list[str]:
    warnings = ["newer state of these sub-keys may exist: letters are handled after it"]
    if raw and handler.payloads.value_format is None:
        letters = counted(raw, "letter")
        warnings.append(f"without --value-format the handler gets bytes for {letters}")
    return warnings


def _is_own(origin: From, topic: str, reference: str) -> bool:
    source, group, handler = origin
    return handler == reference and default_dead_letter_topic(source, group) == topic


def _ensure_one_origin(origins: Counter[From], topic: str) -> None:
    if len(origins) > 1:
        named = [f"{count:,} of {_named(origin)}" for origin, count in origins.most_common(SHOWN)]
        more = ["others"] if len(origins) > SHOWN else []
        raise Refused(
            f"the letters of {topic} come from different drains: {'; '.join([*named, *more])}",
            hint="Name a topic, group or handler with --source, or add --mixed.",
        )


def _named(origin: From) -> str:
    named = zip(("topic", "group", "handler"), origin, strict=True)
    # A letter of another tool has no handler, and perhaps no group.
    return ", ".join(f"{what} {name}" for what, name in named if name)
