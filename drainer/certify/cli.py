"""``drainer certify``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Annotated

from drainer.certify import certify as checks
from drainer.certify.trial import Effort, StateOf
from drainer.certify.view import certificate_page, show_sample
from drainer.cli.answer import ensure_confirmed
from drainer.cli.command import changing_when, only
from drainer.cli.connecting import ConnectionOptions
from drainer.cli.options import HandlerArgument, PayloadOptions, RecordOptions, Yes
from drainer.errors import Refused, UsageError
from drainer.extensions import ensure_installed
from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import Sample, sample_backlog
from drainer.loader import LoadedHandler
from drainer.model.option import number, option
from drainer.model.settings import LocalSettings
from drainer.view.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Messages to try, and whether to call ``handle``."""

    sample: int = option("Number of messages to try.", 1000, number(1))
    seed: int = option("Seed that selects the messages.", 0)
    handle: bool = option("Also call handle for real, and compare `state`.", False, envvar=None)


@changing_when(lambda given: bool(given.get("handle")))
def certify(
    handler: HandlerArgument,
    payload: PayloadOptions,
    records: RecordOptions,
    kafka: ConnectionOptions,
    checking: CheckOptions,
    running: Annotated[LocalSettings, only("options")],
    yes: Yes,
    terminal: Terminal,
) -> int:
    """Check on a sample that a handler keeps its promises.

    drainer checks that split is deterministic, in other processes too, and that its sub-keys and
    payloads are stable. With --handle, it also checks that different sub-keys commute, and that
    sub-messages may be handled again. It touches no group. If a check fails, the exit code is 7.

    Examples:

    - `drainer certify my_handlers.py:Reindex --topic orders -b localhost:9092`
    - `drainer certify my_handlers.py:OnAFake --topic orders --handle --yes`
    """
    ensure_installed("certify", "drainer certify")
    loaded = payload.load(handler, kafka.settings().extras)
    state = _state_of(loaded) if checking.handle else None
    with kafka.connect() as cluster:
        taken = _sample_of(cluster, records, checking)
    show_sample(terminal, loaded.reference, taken, checking.seed)
    if state is not None:
        terminal.warn(
            "drainer will call handle for real, thousands of times: make sure that it reaches no"
            " production system"
        )
        ensure_confirmed(terminal, f"Call the handle of {loaded.reference}?", yes=yes)
    terminal.print_line("calling split here and in other processes, then handle if allowed ...")
    effort = Effort(seed=checking.seed)
    with _hypothesis_folder():
        certificate = checks.certify(
            loaded, taken.messages, state, options=running.options, effort=effort
        )
    terminal.print_line("")
    terminal.data(
        {
            **certificate.as_json(),
            "handler": loaded.absolute_reference,
            "topic": taken.topic,
            "topic_id": taken.topic_id,
            "partitions": list(taken.ranges),
            "seed": checking.seed,
        }
    )
    terminal.present(certificate_page(certificate))
    return certificate.exit_code


def _state_of(handler: LoadedHandler) -> StateOf:
    """The handler's own method ``state``. Raises UsageError when there is none."""
    if not callable(getattr(handler.target, "state", None)):
        raise UsageError(
            f"the handler {handler.reference} has no method `state`",
            hint="Add one, or name a subclass with one. It returns all that handle has written, for"
            " comparison with ==.",
        )
    return lambda target: target.state()


def _sample_of(cluster: Cluster, records: RecordOptions, checking: CheckOptions) -> Sample:
    """The messages to try a handler on; no partitions means all. Raises Refused without any."""
    backlog = freeze(cluster, records.topic, None, records.partitions or None, EARLIEST)
    sample = sample_backlog(cluster, backlog, checking.sample, checking.seed)
    if not sample.messages:
        raise Refused(
            f"topic {records.topic} has no messages to try the handler on",
            hint="Name a topic or partitions with messages. To try made-up messages, use"
            " drainer.testing.",
        )
    return sample


@contextmanager
def _hypothesis_folder() -> Iterator[None]:
    """Keep Hypothesis from making a folder of its own in the current one."""
    name = "HYPOTHESIS_STORAGE_DIRECTORY"
    with TemporaryDirectory(prefix="drainer-certify-") as folder:
        os.environ.setdefault(name, folder)
        try:
            yield
        finally:
            if os.environ[name] == folder:
                del os.environ[name]
