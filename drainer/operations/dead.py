"""Looking over the dead letters of a topic, and finding one of them."""

from __future__ import annotations

from drainer.kafka.cluster import Cluster
from drainer.kafka.letters import letter_at, read_letters
from drainer.policy.dead_letter import Letter, LetterFilter, read_letter
from drainer.policy.dead_letter_overview import LetterSurvey, Overview
from drainer.policy.redrive import RedriveProgress


def look_over(
    cluster: Cluster,
    topic: str,
    wanted: LetterFilter,
    limit: int,
    redriven: RedriveProgress,
    *,
    all_: bool,
) -> Overview:
    """Reads the whole topic as it is now, within bounds of memory. Raises as ``read_letters``.

    Tells of letters that are outstanding; with ``all_`` of those that were redriven too.
    """
    survey = LetterSurvey(topic, wanted, limit, all_=all_)
    for message in read_letters(cluster, topic):
        survey.take(message, redriven=message in redriven)
    return survey.overview()


def find_letter(cluster: Cluster, topic: str, partition: int, offset: int) -> Letter:
    """The dead letter at one place. Raises NotADeadLetter, and as ``read_letters``."""
    return read_letter(letter_at(cluster, topic, partition, offset)).masked()
