"""Certifying a handler: its laws, tried on messages of the real topic."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from drainer.certify.certify import Certificate, certify
from drainer.certify.search import Effort
from drainer.certify.trial import StateOf
from drainer.errors import EXIT_DONE, EXIT_HALTED, Refused, UsageError
from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import Sample, sample_backlog
from drainer.loader import LoadedHandler, load_function

_HYPOTHESIS_FOLDER = "HYPOTHESIS_STORAGE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Trying:
    """What is to be certified, and by what. No partitions means all of them.

    ``state`` is given when ``handle`` may be called.
    """

    topic: str
    handler: LoadedHandler
    partitions: tuple[int, ...] = ()
    messages: int = 1000
    seed: int = 0
    state: StateOf | None = None
    options: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Certified:
    """What was found, on which sample."""

    trying: Trying
    sample: Sample
    certificate: Certificate

    @property
    def exit_code(self) -> int:
        return EXIT_HALTED if self.certificate.broken else EXIT_DONE

    @property
    def status(self) -> str:
        return "broken" if self.certificate.broken else "certified"

    def as_json(self) -> dict[str, object]:
        return {
            "status": self.status,
            "exit_code": self.exit_code,
            "handler": self.trying.handler.absolute_reference,
            "topic": self.sample.topic,
            "topic_id": self.sample.topic_id,
            "partitions": list(self.sample.ranges),
            "seed": self.trying.seed,
            "handled": self.certificate.handled,
            "sample": self.certificate.figures.as_json(),
            "findings": [finding.as_json() for finding in self.certificate.findings],
        }


def state_function(
    handler: LoadedHandler, reference: str | None, *, handle: bool
) -> StateOf | None:
    """What gives the state to compare; None when ``handle`` is not to be called.

    ``reference`` names a function that is given the handler; without it, the handler's own method
    ``state`` is taken when ``handle`` says so. Raises UsageError when there is none.
    """
    if reference is not None:
        return load_function(reference)
    if not handle:
        return None
    if not callable(getattr(handler.target, "state", None)):
        raise UsageError(
            f"the handler {handler.reference} has no method `state`",
            hint="give it one, or say --state path/to/file.py:function: it gets the handler and"
            " gives all that handle has written, to be compared by ==",
        )
    return lambda target: target.state()


def sample_of(cluster: Cluster, trying: Trying) -> Sample:
    """The messages to try the handler on. Raises Refused when there are none."""
    backlog = freeze(cluster, trying.topic, None, trying.partitions or None, EARLIEST)
    sample = sample_backlog(cluster, backlog, trying.messages, trying.seed)
    if not sample.messages:
        raise Refused(
            f"topic {trying.topic} holds no messages to try the handler on",
            hint="take a topic, or partitions, with some; for made-up ones there is"
            " drainer.testing",
        )
    return sample


def certify_on(trying: Trying, sample: Sample, begun: Callable[[str], None]) -> Certified:
    """Makes every check. Raises Refused when the handler can't be opened."""
    with TemporaryDirectory(prefix="drainer-certify-") as folder:
        # It would make a folder of its own here.
        os.environ.setdefault(_HYPOTHESIS_FOLDER, folder)
        try:
            certificate = certify(
                trying.handler,
                sample.messages,
                trying.state,
                options=trying.options,
                effort=Effort(seed=trying.seed),
                begun=begun,
            )
        finally:
            if os.environ[_HYPOTHESIS_FOLDER] == folder:
                del os.environ[_HYPOTHESIS_FOLDER]
    return Certified(trying, sample, certificate)
