"""Certifying a handler: its laws, tried on messages of the real topic."""

from __future__ import annotations

import os
from collections.abc import Mapping
from tempfile import TemporaryDirectory

from drainer.certify.certify import certify
from drainer.certify.finding import Certificate
from drainer.certify.trial import Effort, StateOf
from drainer.errors import Refused, UsageError
from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import Sample, sample_backlog
from drainer.loader import LoadedHandler

_HYPOTHESIS_FOLDER = "HYPOTHESIS_STORAGE_DIRECTORY"


def state_function(handler: LoadedHandler) -> StateOf:
    """The handler's own method ``state``. Raises UsageError when there is none."""
    if not callable(getattr(handler.target, "state", None)):
        raise UsageError(
            f"the handler {handler.reference} has no method `state`",
            hint="Add one, or name a subclass with one. It returns all that handle has written, for"
            " comparison with ==.",
        )
    return lambda target: target.state()


def sample_of(
    cluster: Cluster, topic: str, partitions: tuple[int, ...], most: int, seed: int
) -> Sample:
    """The messages to try a handler on; no partitions means all. Raises Refused without any."""
    backlog = freeze(cluster, topic, None, partitions or None, EARLIEST)
    sample = sample_backlog(cluster, backlog, most, seed)
    if not sample.messages:
        raise Refused(
            f"topic {topic} has no messages to try the handler on",
            hint="Name a topic or partitions with messages. To try made-up messages, use"
            " drainer.testing.",
        )
    return sample


def certify_on(
    sample: Sample,
    handler: LoadedHandler,
    state: StateOf | None,
    options: Mapping[str, str] | None,
    seed: int,
) -> Certificate:
    """Makes every check. Raises Refused when the handler can't be opened."""
    with TemporaryDirectory(prefix="drainer-certify-") as folder:
        # Hypothesis would make a folder of its own here.
        os.environ.setdefault(_HYPOTHESIS_FOLDER, folder)
        try:
            effort = Effort(seed=seed)
            return certify(handler, sample.messages, state, options=options, effort=effort)
        finally:
            if os.environ[_HYPOTHESIS_FOLDER] == folder:
                del os.environ[_HYPOTHESIS_FOLDER]
