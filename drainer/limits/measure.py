"""``drainer limits``: what it will do, whether that is safe, and doing it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

from drainer.engine.signals import signals_to
from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Interrupted,
    LimitsRefused,
    Refused,
    RightMissing,
    both,
)
from drainer.kafka.cluster import Cluster
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import (
    LiveTraffic,
    Own,
    brokers_of,
    create_test_topic,
    delete_own,
    group_names,
    insist_on_reading,
    insist_on_removal,
    insist_on_use,
    live_traffic,
    new_topic_name,
    own_things,
)
from drainer.limits.request import LimitsRequest, differences
from drainer.limits.search.boundary import Limits
from drainer.limits.search.settings import Axis
from drainer.limits.trials import LimitsStatus, Traffic, Trials

SHOWN = 5  # topics and groups of others, in a refusal


@dataclass(frozen=True, slots=True)
class PreparedLimits:
    """What will be done, looked at and found safe; nothing was touched yet.

    Attributes:
        limits: what is known already, with the settings of this request.
        on_disk: the file as it was found.
        topic: the name that the test topic will have.
        groups: those that will read it.
        live: others that use the cluster; nothing unless it is shared.
        left_behind: topics and groups of earlier runs, or of one that goes on.
    """

    request: LimitsRequest
    limits: Limits
    on_disk: Limits | None
    bootstrap_servers: str
    topic: str
    groups: tuple[str, ...]
    live: LiveTraffic
    left_behind: Own


def keep_limits(prepared: PreparedLimits) -> None:
    """Writes limits that were complete already, if they have other settings now.

    Raises LimitsNotWritten.
    """
    if _as_read(prepared.limits) != _as_read(prepared.on_disk):
        LimitsFile(prepared.request.out).write(prepared.limits)


class Host(AbstractContextManager["Host"], Protocol):
    """Where the clients of the traffic run; a context manager that begins and ends it."""

    def traffic(self, topic: str, groups: Sequence[str]) -> AbstractContextManager[Traffic]:
        """Traffic on this topic, read by these groups."""
        ...


def prepare_limits(
    cluster: Cluster, request: LimitsRequest, at: datetime | None = None
) -> PreparedLimits:
    """Looks at cluster and file, and makes sure that the measurement may begin or resume.

    Raises:
        UsageError: when settings contradict each other.
        LimitsRefused: when the file is of other settings, of another cluster, or no limits.
        Refused: when others use the cluster, and it was not said to be shared; or a right is
            missing.
    """
    at = at or datetime.now(UTC)
    file = LimitsFile(request.out)
    on_disk = file.find()
    file.hold()  # now, and not when all was asked and answered
    file.release()
    brokers = len(brokers_of(cluster))
    settings = request.settings(brokers)
    limits = Limits(
        cluster_id=cluster.cluster_id(),
        brokers=brokers,
        at=at.timestamp(),
        settings=settings,
        baseline={},
        trials=(),
        boundaries=(),
    )
    if on_disk is not None:
        limits = _resumed(on_disk, limits, request.out)
    own = own_things(cluster)
    topic = new_topic_name(at)
    groups = group_names(topic, settings.most(Axis.CONSUMER_GROUPS))
    live = LiveTraffic()
    if not limits.complete:
        insist_on_removal(cluster)
        insist_on_reading(cluster, groups)
        live = live_traffic(cluster)
        if live and not request.shared:
            raise Refused(
                f"others use this cluster: {live.words(SHOWN)}",
                hint="overload would hit them. Stop them, or say --shared-cluster: then a trial"
                " ends within about a second of overload; bound it with --max-mb-per-s, too",
            )
    return PreparedLimits(
        request=request,
        limits=limits,
        on_disk=on_disk,
        bootstrap_servers=cluster.settings.bootstrap_servers,
        topic=topic,
        groups=groups,
        live=live,
        left_behind=own,
    )


@dataclass(frozen=True, slots=True)
class MeasuredLimits:
    """``left`` says why the test topic is still there; None when it is gone."""

    limits: Limits
    left: DrainerError | None = None


def measure_limits(
    cluster: Cluster,
    prepared: PreparedLimits,
    host: Host,
    update: Callable[[LimitsStatus], None],
    clock: Callable[[], float] = time.monotonic,
) -> MeasuredLimits:
    """Makes the trials that are yet to be made; a stop signal ends all traffic at once.

    The test topic and its groups are removed in any case.

    Raises:
        LimitsRefused: when another process works with the file.
        Refused: when the traffic can't begin.
        Interrupted: when it was stopped or can't go on; the trials until then are in the file.
    """
    file = LimitsFile(prepared.request.out)
    file.hold()
    try:
        if _as_read(file.find()) != _as_read(prepared.on_disk):
            raise LimitsRefused(
                f"{file.path} has changed since it was looked at: another process works with it",
                hint="Repeat the command to resume from there.",
            )
        with host, _stop_signals():
            return _on_a_topic(cluster, prepared, host, file, update, clock)
    finally:
        file.release()


def _on_a_topic(
    cluster: Cluster,
    prepared: PreparedLimits,
    host: Host,
    file: LimitsFile,
    update: Callable[[LimitsStatus], None],
    clock: Callable[[], float],
) -> MeasuredLimits:
    own = Own((prepared.topic,), prepared.groups)
    settings = prepared.limits.settings
    made = False
    try:
        with _telling_how_to_resume(file):
            create_test_topic(
                cluster,
                prepared.topic,
                settings.most(Axis.PARTITIONS),
                settings.most(Axis.MESSAGE_BYTES),
            )
            made = True
            insist_on_use(cluster, prepared.topic)
            with host.traffic(prepared.topic, prepared.groups) as traffic:
                limits = Trials(
                    prepared.limits,
                    traffic,
                    file,
                    prepared.request.pauses,
                    stops_at_overload=prepared.request.shared,
                    update=update,
                    clock=clock,
                    now=time.time,
                ).run()
    except BaseException as error:
        if not made and isinstance(error, Refused) and not isinstance(error, BrokerUnreachable):
            raise  # who may not make it may not delete it, either
        if (left := _remove(cluster, own)) is not None:
            raise both(error, left) from error
        raise
    return MeasuredLimits(limits, _remove(cluster, own))


def _remove(cluster: Cluster, own: Own) -> DrainerError | None:
    hint = f"`drainer limits cleanup -b {cluster.settings.bootstrap_servers}` removes them"
    try:
        delete_own(cluster, own)
    except DrainerError as error:
        if isinstance(error, RightMissing):
            hint = f"{error.hint}; then {hint}"
        return Interrupted(f"{own.topics[0]} or its groups are still there: {error}", hint=hint)
    except KeyboardInterrupt:
        return Interrupted(f"{own.topics[0]} or its groups are still there", hint=hint)
    return None


@contextmanager
def _stop_signals() -> Iterator[None]:
    """Makes any of them a KeyboardInterrupt; Spark's own way with Ctrl-C kills its tasks first."""

    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    # They belong to Python's main thread; who runs this in another one handles them.
    listens = threading.current_thread() is threading.main_thread()
    with signals_to(stop) if listens else nullcontext():
        yield


@contextmanager
def _telling_how_to_resume(file: LimitsFile) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        limits = file.find()
        kept = 0 if limits is None else len(limits.trials)
        raise Interrupted(
            f"stopped by {error or 'Ctrl-C'}: no traffic runs any more, and"
            f" {kept} trial{' is' if kept == 1 else 's are'} kept in {file.path}",
            hint="Repeat the command to resume.",
        ) from None


def _as_read(limits: Limits | None) -> object:
    # What was not measured is NaN, which is never equal to itself.
    return None if limits is None else limits.as_json()


def _resumed(found: Limits, asked: Limits, path: Path) -> Limits:
    """What was found, to be resumed with the settings that are asked for."""
    other = "name another file with --out"
    if found.cluster_id != asked.cluster_id:
        raise LimitsRefused(
            f"{path} is of another cluster, {found.cluster_id}; this one is {asked.cluster_id}",
            hint=other,
        )
    if found.brokers != asked.brokers:
        raise LimitsRefused(
            f"{path} is of this cluster when it had {found.brokers} brokers; it has"
            f" {asked.brokers} now",
            hint=other,
        )
    before, now = found.settings, asked.settings
    values = before.values
    if set(before.values) <= set(now.values):  # more of them are not other settings
        values = now.values
    # Nor is what a drain may use of what was found.
    before = replace(before, values=values, safe_share=now.safe_share)
    if told := differences(before, now):
        raise LimitsRefused(
            f"{path} was measured with other settings: {', '.join(told)}",
            hint=f"repeat those to resume from its {len(found.trials)} trials, or {other}",
        )
    return replace(found, settings=now)
