"""``drainer limits``: prepares a measurement, ensures that it is safe, and makes it."""

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

from drainer.engine.signals import signals_to
from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Interrupted,
    LimitsRefused,
    Refused,
    RightMissing,
    chain_errors,
)
from drainer.kafka.cluster import Cluster
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import (
    brokers_of,
    create_test_topic,
    delete_test_topics,
    ensure_removable,
    ensure_usable,
    find_test_topics,
    live_traffic,
    new_topic_name,
    old_partitions,
)
from drainer.limits.kafka.traffic import TrafficTargets, payload_sample
from drainer.limits.search.boundary import LimitSettings, MeasuredLimits
from drainer.limits.search.trial import End
from drainer.limits.trials import LimitsStatus, Traffic, Trials
from drainer.model.listed import listed


@dataclass(frozen=True, slots=True)
class PreparedLimits:
    """A measurement that was checked and is safe to begin; nothing was touched yet."""

    file: LimitsFile
    # A measurement for each traffic that is swept: what is known already, with the settings of now.
    limits: tuple[MeasuredLimits, ...]
    on_disk: tuple[MeasuredLimits, ...]  # the file as it was found
    places: tuple[TrafficTargets, ...]
    shared: bool  # others may use the cluster; a trial ends within about a second of overload
    live: tuple[str, ...]  # others that use the cluster; nothing unless it is shared
    left_behind: tuple[str, ...]  # test topics of earlier runs, or of one that goes on

    @property
    def missing(self) -> int:
        """Number of boundaries that are yet to be found."""
        return sum(each.missing for each in self.limits)


# A context in which the clients run; it gives a function that makes traffic on topics.
TrafficHost = AbstractContextManager[Callable[[TrafficTargets], AbstractContextManager[Traffic]]]


def prepare_limits(
    cluster: Cluster, swept: Sequence[LimitSettings], out: Path, *, shared: bool = False
) -> PreparedLimits:
    """Check cluster and file, and ensure that the measurement may begin or resume.

    The settings of what is ``swept`` differ in nothing else.

    Raises:
        LimitsRefused: when the file is of other settings, of another cluster, or no limits.
        Refused: when others use the cluster, which is not ``shared``; or a right is missing.
    """
    at = datetime.now(UTC)
    file = LimitsFile(out)
    on_disk = file.find()
    with file.lock():  # now, and not after all questions are answered
        pass
    brokers = len(brokers_of(cluster))
    requested = [
        MeasuredLimits(cluster.cluster_id, brokers, at.timestamp(), each) for each in swept
    ]
    limits = _resumed(on_disk, requested, out)
    live: tuple[str, ...] = ()
    old: tuple[str, tuple[int, ...], int] = ("", (), 0)
    sample = b""
    if any(each.missing for each in limits):
        ensure_removable(cluster)
        sample = payload_sample(swept[0].payload)
        if topic := swept[0].old_topic:
            old = topic, old_partitions(cluster, topic), swept[0].old_groups
        live = live_traffic(cluster)
        if live and not shared:
            raise Refused(
                f"others use this cluster: {listed(live)}",
                hint="Stop them. Or add --shared-cluster, which ends a trial within a second of"
                " overload, and --max-rate.",
            )
    places = tuple(
        TrafficTargets(
            tuple(new_topic_name(at) for _ in range(each.topics)),
            each.partitions * brokers,
            each.consumer_groups,
            *old,
            sample,
        )
        for each in swept
    )
    left_behind = find_test_topics(cluster)
    return PreparedLimits(file, limits, on_disk, places, shared, live, left_behind)


def measure_limits(
    cluster: Cluster,
    prepared: PreparedLimits,
    host: TrafficHost,
    update: Callable[[LimitsStatus], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[tuple[MeasuredLimits, ...], DrainerError | None]:
    """Makes the trials that are yet to be made; a stop signal ends all traffic at once.

    The test topics are removed in any case. Gives what was found, and why one is still there if it
    is.

    Raises:
        LimitsRefused: when another process works with the file.
        Refused: when the traffic can't begin.
        Interrupted: when it was stopped or can't go on; the trials until then are in the file.
    """
    file, created = prepared.file, False
    to_do = [pair for pair in zip(prepared.limits, prepared.places, strict=True) if pair[0].missing]
    topics = [topic for _, places in to_do for topic in places.topics]
    with file.lock():
        if file.find() != prepared.on_disk:
            raise LimitsRefused(
                f"{file.path} has changed meanwhile: another process uses it",
                hint="Repeat the command to resume from there.",
            )
        with host as make_traffic, _stop_signals():
            try:
                with _naming_the_way_to_resume(file):
                    for limits, places in to_do:
                        for topic in places.topics:
                            size_most = max(limits.settings.message_bytes)
                            create_test_topic(cluster, topic, places.partitions, size_most)
                            created = True
                    ensure_usable(cluster, topics[0])
                    found = _measure_each(prepared, make_traffic, update, clock)
            except BaseException as error:
                is_refusal = isinstance(error, Refused) and not isinstance(error, BrokerUnreachable)
                if is_refusal and not created:
                    raise  # who may not create it may not delete it, either
                if (left := _remove(cluster, topics)) is not None:
                    raise chain_errors(error, left) from error
                raise
            return found, _remove(cluster, topics)


def _measure_each(
    prepared: PreparedLimits,
    make_traffic: Callable[[TrafficTargets], AbstractContextManager[Traffic]],
    update: Callable[[LimitsStatus], None],
    clock: Callable[[], float],
) -> tuple[MeasuredLimits, ...]:
    begun_s = clock()
    found: list[MeasuredLimits] = []
    for limits, places in zip(prepared.limits, prepared.places, strict=True):
        if not limits.missing:
            prepared.file.write(limits)  # another share of it may be used
            found.append(limits)
            continue
        with make_traffic(places) as traffic:
            trials = Trials(
                limits,
                traffic,
                prepared.file,
                shared=prepared.shared,
                later=sum(each.missing for each in prepared.limits[len(found) + 1 :]),
                update=update,
                clock=lambda: clock() - begun_s,
                now=time.time,
            )
            found.append(trials.run())
    return tuple(found)


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
def _naming_the_way_to_resume(file: LimitsFile) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        kept = sum(len(limits.trials) for limits in file.find())
        raise Interrupted(
            f"stopped by {str(error) or 'Ctrl-C'}: all traffic has ended, and"
            f" {file.path} keeps {kept} trial{'' if kept == 1 else 's'}",
            hint="Repeat the command to resume.",
        ) from None


def _resumed(
    on_disk: Sequence[MeasuredLimits], requested: Sequence[MeasuredLimits], path: Path
) -> tuple[MeasuredLimits, ...]:
    """Add known results to what is requested. Raises LimitsRefused when settings differ."""
    by_traffic = {each.settings.swept: each for each in requested}
    for each in on_disk:
        swept = each.settings.swept
        by_traffic[swept] = _resumed_one(each, by_traffic.get(swept, requested[0]), path)
    return tuple(by_traffic.values())


def _resumed_one(found: MeasuredLimits, requested: MeasuredLimits, path: Path) -> MeasuredLimits:
    was, now_is = (
        f"cluster {each.cluster_id} of {each.brokers} brokers" for each in (found, requested)
    )
    if was != now_is:
        raise LimitsRefused(
            f"{path} is for {was}, but this is {now_is}", hint="Name another file with --out."
        )
    before, now = found.settings, requested.settings
    # More sizes are not other settings, nor more trials, nor what a drain may use of the result.
    more = set(before.message_bytes) <= set(now.message_bytes)
    sizes = now.message_bytes if more else before.message_bytes
    before = replace(before, message_bytes=sizes, safe_share=now.safe_share, trials=now.trials)
    if differences := before.differences(now):
        raise LimitsRefused(
            f"{path} was measured with other settings: {', '.join(differences)}",
            hint=f"To resume from its {len(found.trials)} trials, use those settings. Or name"
            " another file with --out.",
        )
    more_trials = now.trials > found.settings.trials
    boundaries = [b for b in found.boundaries if not (more_trials and b.end is End.WIDE)]
    return replace(found, settings=now, boundaries=tuple(boundaries))
