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

from drainer.core.listed import listed
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
    brokers_of,
    create_test_topic,
    delete_test_topics,
    find_test_topics,
    insist_on_removal,
    insist_on_use,
    live_traffic,
    new_topic_name,
    old_partitions,
)
from drainer.limits.kafka.traffic import Places
from drainer.limits.search.boundary import Limits, LimitSettings
from drainer.limits.trials import LimitsStatus, Traffic, Trials


@dataclass(frozen=True, slots=True)
class PreparedLimits:
    """What will be done, looked at and found safe; nothing was touched yet.

    Attributes:
        file: where the result goes.
        limits: what is known already, with the settings that were asked for.
        on_disk: the file as it was found.
        places: where the traffic will go.
        shared: others may use the cluster; a trial ends within about a second of overload.
        live: others that use the cluster; nothing unless it is shared.
        left_behind: test topics of earlier runs, or of one that goes on.
    """

    file: LimitsFile
    limits: Limits
    on_disk: Limits | None
    places: Places
    shared: bool
    live: tuple[str, ...]
    left_behind: tuple[str, ...]


class Host(AbstractContextManager["Host"], Protocol):
    """Where the clients of the traffic run; a context manager that begins and ends it."""

    def traffic(self, places: Places) -> AbstractContextManager[Traffic]:
        """Traffic on these topics."""
        ...


def prepare_limits(
    cluster: Cluster, settings: LimitSettings, out: Path, *, shared: bool = False
) -> PreparedLimits:
    """Looks at cluster and file, and makes sure that the measurement may begin or resume.

    Raises:
        LimitsRefused: when the file is of other settings, of another cluster, or no limits.
        Refused: when others use the cluster, and it was not said to be shared; or a right is
            missing.
    """
    at = datetime.now(UTC)
    file = LimitsFile(out)
    on_disk = file.find()
    with file.held():  # now, and not when all was asked and answered
        pass
    brokers = len(brokers_of(cluster))
    limits = Limits(cluster.cluster_id, brokers, at.timestamp(), settings)
    if on_disk is not None:
        limits = _resumed(on_disk, limits, out)
    live: tuple[str, ...] = ()
    places = Places(
        tuple(new_topic_name(at) for _ in range(settings.topics)),
        settings.partitions * brokers,
        settings.consumer_groups,
    )
    if not limits.complete:
        insist_on_removal(cluster)
        if old := settings.old_topic:
            found = old_partitions(cluster, old)
            places = replace(
                places, old_topic=old, old_partitions=found, old_groups=settings.old_groups
            )
        live = live_traffic(cluster)
        if live and not shared:
            raise Refused(
                f"others use this cluster: {listed(live)}",
                hint="Stop them. Or add --shared-cluster, which ends a trial within a second of"
                " overload, and --max-rate.",
            )
    left_behind = find_test_topics(cluster)
    return PreparedLimits(file, limits, on_disk, places, shared, live, left_behind)


def measure_limits(
    cluster: Cluster,
    prepared: PreparedLimits,
    host: Host,
    update: Callable[[LimitsStatus], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Limits, DrainerError | None]:
    """Makes the trials that are yet to be made; a stop signal ends all traffic at once.

    The test topics are removed in any case. Gives what was found, and why one is still there if it
    is.

    Raises:
        LimitsRefused: when another process works with the file.
        Refused: when the traffic can't begin.
        Interrupted: when it was stopped or can't go on; the trials until then are in the file.
    """
    file, places, created = prepared.file, prepared.places, False
    with file.held():
        if file.find() != prepared.on_disk:
            raise LimitsRefused(
                f"{file.path} has changed meanwhile: another process uses it",
                hint="Repeat the command to resume from there.",
            )
        with host, _stop_signals():
            try:
                with _saying_how_to_resume(file):
                    size_most = max(prepared.limits.settings.message_bytes)
                    for topic in places.topics:
                        create_test_topic(cluster, topic, places.partitions, size_most)
                        created = True
                    insist_on_use(cluster, places.topics[0])
                    with host.traffic(places) as traffic:
                        limits = Trials(
                            prepared.limits,
                            traffic,
                            file,
                            shared=prepared.shared,
                            update=update,
                            clock=clock,
                            now=time.time,
                        ).run()
            except BaseException as error:
                if not created and _was_refused(error):
                    raise  # who may not create it may not delete it, either
                if (left := _remove(cluster, places.topics)) is not None:
                    raise both(error, left) from error
                raise
            return limits, _remove(cluster, places.topics)


def _was_refused(error: BaseException) -> bool:
    return isinstance(error, Refused) and not isinstance(error, BrokerUnreachable)


def _remove(cluster: Cluster, topics: Sequence[str]) -> DrainerError | None:
    still = f"test topic {listed(topics)} is still there"
    hint = f"Remove it: drainer limits cleanup -b {cluster.settings.bootstrap_servers}"
    try:
        delete_test_topics(cluster, topics)
    except DrainerError as error:
        if isinstance(error, RightMissing):
            hint = f"{error.hint}; then {hint}"
        return Interrupted(f"{still}: {error}", hint=hint)
    except KeyboardInterrupt:
        return Interrupted(still, hint=hint)
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
def _saying_how_to_resume(file: LimitsFile) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        limits = file.find()
        kept = 0 if limits is None else len(limits.trials)
        raise Interrupted(
            f"stopped by {str(error) or 'Ctrl-C'}: all traffic has ended, and"
            f" {file.path} keeps {kept} trial{'' if kept == 1 else 's'}",
            hint="Repeat the command to resume.",
        ) from None


def _resumed(found: Limits, asked: Limits, path: Path) -> Limits:
    """What was found, to be resumed with the settings that are asked for."""
    if found.cluster_id != asked.cluster_id:
        raise LimitsRefused(
            f"{path} is for cluster {found.cluster_id}, but this one is {asked.cluster_id}",
            hint="Name another file with --out.",
        )
    if found.brokers != asked.brokers:
        raise LimitsRefused(
            f"{path} is for {found.brokers} brokers, but this cluster has {asked.brokers} now",
            hint="Name another file with --out.",
        )
    before, now = found.settings, asked.settings
    # More sizes are not other settings, nor is what a drain may use of what was found.
    more = set(before.message_bytes) <= set(now.message_bytes)
    sizes = now.message_bytes if more else before.message_bytes
    before = replace(before, message_bytes=sizes, safe_share=now.safe_share)
    if differences := before.differences(now):
        raise LimitsRefused(
            f"{path} was measured with other settings: {', '.join(differences)}",
            hint=f"To resume from its {len(found.trials)} trials, use those settings. Or name"
            " another file with --out.",
        )
    return replace(found, settings=now)
