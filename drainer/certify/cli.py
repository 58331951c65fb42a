"""``drainer certify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from drainer.certify.operation import certify_on, sample_of, state_function
from drainer.certify.view import certificate_page, show_sample
from drainer.cli.answer import ensure_confirmed
from drainer.cli.command import changing_when, only
from drainer.cli.connecting import ConnectionOptions
from drainer.cli.options import HandlerArgument, RecordOptions, Yes
from drainer.extensions import ensure_installed
from drainer.loader import load_handler
from drainer.model.option import number, option
from drainer.model.settings import LocalSettings
from drainer.view.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What is tried."""

    sample: int = option("Number of messages to try.", 1000, number(1))
    seed: int = option("Seed that selects the messages.", 0)
    handle: bool = option("Also call handle for real, and compare `state`.", False, envvar=None)


@changing_when(lambda given: bool(given.get("handle")))
def certify(
    handler: HandlerArgument,
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
    loaded = load_handler(handler)
    state = state_function(loaded) if checking.handle else None
    with kafka.connect() as cluster:
        taken = sample_of(
            cluster, records.topic, records.partitions, checking.sample, checking.seed
        )
    show_sample(terminal, loaded.reference, taken, checking.seed)
    if state is not None:
        terminal.warn(
            "drainer will call handle for real, thousands of times: make sure that it reaches no"
            " production system"
        )
        ensure_confirmed(terminal, f"Call the handle of {loaded.reference}?", yes=yes)
    terminal.print_line("calling split here and in other processes, then handle if allowed ...")
    certificate = certify_on(taken, loaded, state, running.options or {}, checking.seed)
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
