"""The course of ``drainer limits``: check that it is safe, measure, and remove the test topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from drainer.engine.signals import interrupt, signals_to
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
    find_left_behind,
    live_traffic,
    new_topic_name,
)
from drainer.limits.kafka.traffic import TrafficTargets
from drainer.limits.search.boundary import MeasuredLimits
from drainer.limits.search.settings import LimitSettings
from drainer.limits.search.trial import End
from drainer.limits.trials import LimitsStatus, Traffic, Trials
from drainer.model.listed import counted, listed


@dataclass(frozen=True, slots=True)
class PreparedLimits:
    """A measurement that was checked and may begin. The cluster was not changed yet."""

    file: LimitsFile
    limits: MeasuredLimits  # The trials of earlier runs, with the settings of this run.
    on_disk: MeasuredLimits | None  # The content of the file; None if there is no file.
    targets: TrafficTargets
    left_behind: tuple[str, ...]  # Test topics of killed runs, which nothing writes to.


# A context in which clients can run. It yields a function that begins traffic on given topics.
TrafficHost = AbstractContextManager[Callable[[TrafficTargets], AbstractContextManager[Traffic]]]


def prepare_limits(cluster: Cluster, settings: LimitSettings, out: Path) -> PreparedLimits:
    """Check the cluster and the file, and return a measurement that may begin or resume.

    Raises:
        LimitsRefused: when the file belongs to another cluster or other settings, or is not a
            limits file.
        Refused: when others use the cluster, or a right is missing.
    """
    at = datetime.now(UTC)
    file = LimitsFile(out)
    on_disk = file.find()
    with file.lock():  # If it can't be locked, the user learns that before any question.
        pass
    brokers = len(brokers_of(cluster))
    limits = MeasuredLimits(cluster.cluster_id, brokers, at.timestamp(), settings)
    if on_disk is not None:
        limits = _resumed(on_disk, limits, out)
    if limits.missing:
        ensure_removable(cluster)
        if live := live_traffic(cluster):
            raise Refused(
                f"others use this cluster: {listed(live)}",
                hint="Stop them, or wait some seconds if they were killed. Then repeat the command:"
                " it overloads the brokers on purpose.",
            )
    topics = tuple(new_topic_name(at) for _ in range(settings.topics))
    targets = TrafficTargets(
        topics, settings.partitions * brokers, settings.consumer_groups, settings.payload
    )
    return PreparedLimits(file, limits, on_disk, targets, find_left_behind(cluster))


def measure_limits(
    cluster: Cluster,
    prepared: PreparedLimits,
    host: TrafficHost,
    update: Callable[[LimitsStatus], None],
) -> tuple[MeasuredLimits, DrainerError | None]:
    """Make the trials that are missing. A stop signal ends all traffic at once.

    The test topics are removed however it ends. The second result is an error if one of them could
    not be removed, and otherwise None.

    Raises:
        LimitsRefused: when another process uses the file.
        Refused: when the traffic can't begin.
        Interrupted: when it was stopped or can't continue. The file keeps the trials until then.
    """
    file, targets, created = prepared.file, prepared.targets, False
    topics = targets.topics
    with file.lock():
        if file.find() != prepared.on_disk:
            raise LimitsRefused(
                f"{file.path} has changed in the meantime: another process uses it",
                hint="Repeat the command to resume from there.",
            )
        with host as make_traffic, signals_to(interrupt):
            try:
                try:
                    for topic in topics:
                        size_most = max(prepared.limits.settings.message_bytes)
                        create_test_topic(cluster, topic, targets.partitions, size_most)
                        created = True
                    ensure_usable(cluster, topics[0])
                    begun_s = time.monotonic()
                    with make_traffic(targets) as traffic:
                        found = Trials(
                            prepared.limits,
                            traffic,
                            file,
                            update=update,
                            clock=lambda: time.monotonic() - begun_s,
                            now=time.time,
                        ).run()
                except KeyboardInterrupt as error:
                    raise _stopped(file, str(error)) from None
            except BaseException as error:
                is_refusal = isinstance(error, Refused) and not isinstance(error, BrokerUnreachable)
                if is_refusal and not created:
                    raise  # There is no topic to remove, and this user may not remove one.
                if (left := _remove(cluster, topics)) is not None:
                    raise chain_errors(error, left) from error
                raise
            return found, _remove(cluster, topics)


def _remove(cluster: Cluster, topics: Sequence[str]) -> DrainerError | None:
    """Remove the test topics. Return an error if one of them could not be removed."""
    still, hint = f"test topic {listed(topics)} is still there", "Repeat the command to remove it."
    try:
        delete_test_topics(cluster, topics)
    except DrainerError as error:
        if isinstance(error, RightMissing):
            hint = f"{error.hint} {hint}"
        return Interrupted(f"{still}: {error}", hint=hint)
    except KeyboardInterrupt:
        return Interrupted(still, hint=hint)
    return None


def _stopped(file: LimitsFile, why: str) -> Interrupted:
    """Return the error for a measurement that was interrupted. It names the way to resume."""
    found = file.find()
    kept = counted(0 if found is None else len(found.trials), "trial")
    return Interrupted(
        f"{why or 'interrupted'}: all traffic has ended, and {file.path} keeps {kept}",
        hint="Repeat the command to resume.",
    )


def _resumed(found: MeasuredLimits, requested: MeasuredLimits, path: Path) -> MeasuredLimits:
    """Return the requested measurement with the trials that were found in the file.

    Raises LimitsRefused when the cluster or the settings differ.
    """
    was, now_is = (
        f"cluster {each.cluster_id} of {each.brokers} brokers" for each in (found, requested)
    )
    if was != now_is:
        raise LimitsRefused(
            f"{path} is for {was}, but this is {now_is}", hint="Name another file with --out."
        )
    before, now = found.settings, requested.settings
    # A resume may add message sizes, and change the maximum of trials and the safe share.
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
