"""The page of what was found about a handler: the sample's figures, each check, a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.certify.finding import Certificate
from drainer.kafka.sample import Sample
from drainer.view import figures
from drainer.view.findings import findings_page
from drainer.view.page import Field, Line, Page, Tone, section
from drainer.view.terminal import Terminal


def show_sample(terminal: Terminal, handler: str, sample: Sample, seed: int) -> None:
    """Print the sample: its messages, and the offsets of the logs that they are taken from."""
    counted = figures.counted
    logs = f"{counted(sample.offsets, 'offset')} in {counted(len(sample.ranges), 'partition')}"
    terminal.items(
        Line(
            f"Certify {handler} on {counted(len(sample.messages), 'message')} of {sample.topic}",
            Tone.STRONG,
        ),
        Field("taken from", logs, f"evenly, with --seed {seed}"),
        Field("commits", "nothing", "drainer joins no group and moves none"),
    )


def certificate_page(certificate: Certificate) -> Page:
    """Whether the handler keeps its promises on the sample, check by check."""
    sample = section("The sample", _sample(certificate))
    return findings_page(certificate.findings, "certified on this sample", sample)


def _sample(found: Certificate) -> Iterator[Field]:
    yield Field("sample", figures.counted(found.messages, "message"))
    yield Field("split into", figures.counted(found.sub_messages, "sub-message"))
    if found.handled:
        yield Field("handle", f"called {figures.counted(found.handled, 'time')}")
