"""Running a prepared drain: hold the plan, take the lock, look once more, and let the engine go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from drainer.core.dispatch import Dispatcher
from drainer.core.plan import OffsetPlan
from drainer.core.transaction import HeldBack
from drainer.engine.local import LocalDrain
from drainer.engine.ports import Ports, Source
from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status, Summary
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    DrainerError,
    PlanNotWritten,
    PlanRefused,
    Refused,
)
from drainer.insight.first_messages import FirstMessages
from drainer.kafka.cluster import Cluster
from drainer.kafka.commit import Committer
from drainer.kafka.fetch import FetchThread
from drainer.kafka.lock import GroupLock
from drainer.kafka.transactions import held_back
from drainer.kafka.writer import Writers
from drainer.message import Origin
from drainer.operations.examine import added_partitions
from drainer.operations.expiry import stands_until
from drainer.operations.group import check_inactive
from drainer.operations.hold import holding
from drainer.operations.policy import LetterWriter
from drainer.operations.resume import going_on
from drainer.operations.start import Prepared
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.settings import SparkSettings
from drainer.spark.state import State
from drainer.spark.takeover import leave, take_over
from drainer.store.plan_file import PlanFile


def drain(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    observe: Callable[[Status], None],
    say: Callable[[str], None],
    give_up: Callable[[], None] = lambda: None,
    first: int | None = None,
) -> Summary:
    """Drains and gives the summary; of the ``first`` messages only, when that is said.

    ``give_up`` is called as ``LocalDrain`` says: from another thread, to end the process.

    Raises Refused when something changed since the preview was made.
    """
    if first is not None and prepared.spark is not None:
        raise Refused(
            "a canary runs in this process: the first messages are no work for Spark",
            hint="the rest of it can be resumed on Spark",
        )
    file = PlanFile(prepared.action.plan_path)
    with holding(cluster, file, prepared.seen, prepared.plan, say) as lock:
        _look_again(cluster, prepared)
        prepared, state = _taken_over(file, prepared, say)
        prepared.policy.make(cluster)
        if prepared.action.resumes:
            file.write(prepared.plan)
            leave(state, file.path, say)
            return _drain(cluster, prepared, running, observe, say, give_up, file, lock, first)
        aside = file.set_aside(prepared.seen.plan) if prepared.seen else None
        leave(state, file.path, say)
        try:
            _write_first(file, prepared.plan)
            if aside is not None:
                say(f"the finished plan is kept as {aside}")
            return _drain(cluster, prepared, running, observe, say, give_up, file, lock, first)
        except DrainerError:  # by the handler's open() at the latest: nothing was handled yet
            file.take_back(prepared.plan, aside)
            if aside is not None:
                say(f"the finished plan is {file.path} again")
            raise


def _taken_over(
    file: PlanFile, prepared: Prepared, say: Callable[[str], None]
) -> tuple[Prepared, State | None]:
    """Without tasks of a former driver, and with what they told to the last."""
    if prepared.seen is None:
        return prepared, None
    state = take_over(prepared.seen.written, say, stop="the drain goes on without tasks")
    if state is None:
        return prepared, None
    loaded = file.load()
    if prepared.action.resumes:
        return going_on(prepared, loaded), state
    return replace(prepared, seen=replace(loaded, plan=replace(loaded.plan, state=None))), state


def _write_first(file: PlanFile, plan: OffsetPlan) -> None:
    try:
        file.write(plan)
    except PlanNotWritten as error:
        raise PlanRefused(
            str(error), hint="make room there, or name another folder with --plan"
        ) from error


def _look_again(cluster: Cluster, prepared: Prepared) -> None:
    # A person may have taken an hour to say yes.
    plan = prepared.plan
    check_inactive(cluster, plan.group)
    found = cluster.committed(plan.group, plan.topic, tuple(plan.partitions))
    for number, part in plan.partitions.items():
        # What expired meanwhile is written again with the first commit.
        if found[number] not in (part.committed, None):
            raise PlanRefused(
                f"partition {number}: group {plan.group} was moved from {part.committed} to"
                f" {found[number]} since the preview was made",
                hint="start again, to see the preview for what is there now",
            )


def _drain(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    observe: Callable[[Status], None],
    say: Callable[[str], None],
    give_up: Callable[[], None],
    file: PlanFile,
    lock: GroupLock,
    first: int | None,
) -> Summary:
    begun = datetime.now(UTC)
    plan, spark = prepared.plan, prepared.spark
    committer = Committer(cluster, plan.group, plan.topic, say=say)
    if spark is not None:
        summary = _drain_on_spark(
            cluster, prepared, running, spark, observe, give_up, file, committer, lock
        )
    else:
        summary = _drain_here(
            cluster, prepared, running, observe, give_up, file, committer, lock, first
        )
    notes: list[str] = []
    with suppress(DrainerError):  # the drain has ended, whatever becomes of this
        notes += added_partitions(cluster, plan)
        if summary.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS):
            summary = replace(summary, held=_held_behind(cluster, plan))
            notes += stands_until(cluster, plan.group, begun)
    return replace(summary, notes=tuple(notes))


def _drain_here(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    observe: Callable[[Status], None],
    give_up: Callable[[], None],
    file: PlanFile,
    committer: Committer,
    lock: GroupLock,
    first: int | None,
) -> Summary:
    plan = prepared.plan
    cap = prepared.action.cap
    pace = None
    if plan.limits is not None:
        pace = RateLimiter(plan.limits, message_bytes=1.0 if cap is None else cap.message_bytes)
    writers = Writers(cluster.settings, plan.limits)

    def open_source(dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:
        unfetched = {n: ledger for n, ledger in dispatcher.ledgers.items() if not ledger.complete}
        thread = FetchThread(
            cluster.settings,
            group=plan.group,
            origins={n: Origin(plan.topic, plan.topic_id, n) for n in unfetched},
            starts={n: ledger.watermark for n, ledger in unfetched.items()},
            ends={n: ledger.end for n, ledger in unfetched.items()},
            queue_bytes=running.buffer_bytes // 4,
            prefetch_bytes=running.buffer_bytes // 4,
            partition_load=lambda number: unfetched[number].pending_bytes,
            load_bytes=running.buffer_bytes // 2,
            notify=notify,
            pace=pace,
        )
        return thread if first is None else FirstMessages(thread, first, dispatcher)

    topic = prepared.policy.topic
    letters = None if topic is None else LetterWriter(cluster.settings, plan, topic.name)
    try:
        summary = LocalDrain(
            plan,
            file,
            prepared.handler,
            running,
            Ports(
                open_source=open_source,
                committer=committer,
                lock=lock,
                read_committed=lambda: cluster.committed(
                    plan.group, plan.topic, list(plan.partitions)
                ),
                dead_letters=letters,
                write_to=writers,
                read_pace=pace,
                write_pace=writers.pace,
            ),
            observe,
            give_up,
        ).run()
        return replace(summary, left_alone=prepared.handler.left_alone)
    finally:
        if letters is not None:
            letters.close(0)


def _held_behind(cluster: Cluster, plan: OffsetPlan) -> tuple[HeldBack, ...]:
    ends = {number: part.end for number, part in plan.partitions.items()}
    try:
        logs = cluster.log_bounds(plan.topic, ends, plan.isolation)
        return held_back(cluster, plan.topic, plan.topic_id, logs, ends)
    except Refused:
        return ()  # all is done and committed


def _drain_on_spark(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    spark: SparkSettings,
    observe: Callable[[Status], None],
    give_up: Callable[[], None],
    file: PlanFile,
    committer: Committer,
    lock: GroupLock,
) -> Summary:
    # PySpark takes half a second to import, and other drains do without.
    from drainer.spark.drain import SparkDrain  # noqa: PLC0415

    plan, topic = prepared.plan, prepared.policy.topic
    summary: Summary = SparkDrain(
        plan=plan,
        file=file,
        handler=prepared.handler,
        running=running,
        spark=spark,
        ports=Ports(
            open_source=_read_by_tasks,
            committer=committer,
            lock=lock,
            read_committed=lambda: cluster.committed(plan.group, plan.topic, list(plan.partitions)),
        ),
        client_settings=cluster.settings,
        letters_topic=None if topic is None else topic.name,
        observe=observe,
        give_up=give_up,
        cap=prepared.action.cap,
    ).run()
    return summary


def _read_by_tasks(dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:
    raise NotImplementedError("on Spark the tasks read, and write dead letters")
