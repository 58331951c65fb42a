"""``drainer certify``, which splits a sample and prints what it found about ``split``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from drainer.certify.split import SplitReport, split_report
from drainer.certify.subject import Subject
from drainer.cli.command import command, only
from drainer.cli.connecting import ConnectionOptions
from drainer.cli.options import HandlerArgument, PayloadOptions, RecordOptions
from drainer.errors import Refused
from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.sample import Sample, sample_backlog
from drainer.model.option import number, option
from drainer.model.settings import LocalSettings
from drainer.view.figures import counted
from drainer.view.findings import findings_page
from drainer.view.page import Field, Line, Page, Tone, section
from drainer.view.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """The messages to try."""

    sample: int = option("Number of messages to try.", 1000, number(1))
    seed: int = option("Seed that selects the messages.", 0)


@command
def certify(
    handler: HandlerArgument,
    payload: PayloadOptions,
    records: RecordOptions,
    kafka: ConnectionOptions,
    chosen: SampleOptions,
    running: Annotated[LocalSettings, only("options")],
    terminal: Terminal,
) -> int:
    """Check on a sample that a handler's split is deterministic.

    drainer splits each message several times, here and in another process, and compares the
    sub-messages. It calls open, split and close, but not handle, and touches no group. If split
    differs, the exit code is 7. `drainer.testing` has checks of handle for your unit tests.

    Examples:

    - `drainer certify my_handlers.py:Reindex --topic orders -b localhost:9092`
    """
    loaded = payload.load(handler, kafka.settings().extras)
    with kafka.connect() as cluster:
        backlog = freeze(cluster, records.topic, None, records.partitions or None, EARLIEST)
        taken = sample_backlog(cluster, backlog, chosen.sample, chosen.seed)
    if not taken.messages:
        raise Refused(
            f"topic {records.topic} has no messages to try the handler on",
            hint="Name a topic or partitions with messages. To try made-up messages, use"
            " drainer.testing.",
        )
    terminal.items(*sample_lines(loaded.reference, taken, chosen.seed))
    terminal.print_line("calling split here and in another process ...")
    report = split_report(Subject(loaded, running.options), taken.messages)
    terminal.print_line("")
    page = report_page(report)
    terminal.answer(
        {
            **report.as_json(),
            "handler": loaded.absolute_reference,
            "topic": taken.topic,
            "topic_id": backlog.topic_id,
            "partitions": list(taken.ranges),
            "seed": chosen.seed,
        },
        page,
    )
    return report.exit_code


def sample_lines(handler: str, sample: Sample, seed: int) -> Iterator[Line | Field]:
    """Describe a sample: its messages, and the offsets from which they are taken."""
    messages = counted(len(sample.messages), "message")
    logs = f"{counted(sample.offsets, 'offset')} in {counted(len(sample.ranges), 'partition')}"
    yield Line(f"Certify {handler} on {messages} of {sample.topic}", Tone.STRONG)
    yield Field("taken from", logs, f"evenly, with --seed {seed}")
    yield Field("commits", "nothing", "drainer joins no group and moves none")


def report_page(report: SplitReport) -> Page:
    """Make a page of the sample's figures and of each finding."""
    fields = [
        Field("sample", counted(report.messages, "message")),
        Field("split into", counted(report.sub_messages, "sub-message")),
    ]
    return findings_page(report.findings, "certified on this sample", section("The sample", fields))
