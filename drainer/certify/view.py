"""The page of what was found about a handler: the sample's figures, each check, a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.certify.finding import Certificate, Finding, Level
from drainer.kafka.sample import Sample
from drainer.view import figures
from drainer.view.page import BAD, OK, WARN, Field, Line, Page, Tone, section
from drainer.view.terminal import Terminal

_LINES = {
    Level.OK: (OK, Tone.PLAIN),
    Level.WARN: (WARN, Tone.WARN),
    Level.BAD: (BAD, Tone.BAD),
    Level.UNCHECKED: ("-", Tone.QUIET),
}


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
    broken = [found for found in certificate.findings if found.level is Level.BAD]
    verdict = _verdict(certificate.findings)
    return Page(
        verdict,
        (
            section("The sample", _sample(certificate)),
            section("Checks", (line for found in certificate.findings for line in _check(found))),
        ),
        hints=tuple(f"{found.check}: {found.hint}" for found in broken if found.hint),
    )


def _check(finding: Finding) -> Iterator[Line]:
    mark, tone = _LINES[finding.level]
    yield Line(finding.text, tone, mark)
    if finding.level is Level.WARN and finding.hint:
        yield Line(f"    {finding.hint}", Tone.QUIET)


def _sample(found: Certificate) -> Iterator[Field]:
    yield Field("sample", figures.counted(found.messages, "message"))
    yield Field("split into", figures.counted(found.sub_messages, "sub-message"))
    if found.handled:
        yield Field("handle", f"called {figures.counted(found.handled, 'time')}")


def _verdict(findings: list[Finding]) -> Line:
    of = {level: sum(finding.level is level for finding in findings) for level in Level}
    beside = ""
    if of[Level.WARN]:
        beside += f", {figures.counted(of[Level.WARN], 'warning')}"
    if of[Level.UNCHECKED]:
        beside += f", {of[Level.UNCHECKED]} not checked"
    if of[Level.BAD]:
        total = figures.counted(len(findings), "check")
        return Line(f"{of[Level.BAD]} of {total} failed{beside}", Tone.BAD, BAD)
    passed = figures.counted(of[Level.OK], "check")
    return Line(f"certified on this sample: {passed} passed{beside}", Tone.GOOD, OK)
