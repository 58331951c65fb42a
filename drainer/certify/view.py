"""What was found about a handler on the terminal: the sample's figures, each check, a verdict."""

from __future__ import annotations

from rich.text import Text

from drainer.certify.certify import Certificate
from drainer.certify.finding import Finding, Level
from drainer.certify.split import Figures
from drainer.view import figures
from drainer.view.layout import (
    BAD,
    BAD_STYLE,
    GOOD_STYLE,
    HEAD_STYLE,
    OK,
    QUIET_STYLE,
    WARN_STYLE,
    field,
)
from drainer.view.terminal import Terminal

_MARKS = {
    Level.OK: (OK, GOOD_STYLE),
    Level.WARN: ("!", WARN_STYLE),
    Level.BAD: (BAD, BAD_STYLE),
    Level.UNCHECKED: ("-", QUIET_STYLE),
}
STAGES = {
    "split": "splitting them, here and in other processes ...",
    "handle": "handling them, in order ...",
    "order": "handling them in other orders, and at the same time ...",
    "repeats": "handling some of them again ...",
    "together": "handling several at once, as coalesce and handle_batch say ...",
}


def show_sample(
    terminal: Terminal,
    handler: str,
    topic: str,
    *,
    messages: int,
    offsets: int,
    partitions: int,
    seed: int,
) -> None:
    """What is about to be tried: so many messages, of logs that span so many offsets."""
    title = f"Certify {handler} on {figures.counted(messages, 'message')} of {topic}"
    terminal.show(Text(title, HEAD_STYLE))
    logs = f"{figures.counted(offsets, 'offset')} in {figures.counted(partitions, 'partition')}"
    terminal.show(field("taken from", logs, f"evenly, by --seed {seed}"))
    terminal.show(field("commits", "nothing", "no group is joined or moved"))


def show_certificate(terminal: Terminal, certificate: Certificate) -> None:
    """Each check with its mark; what fails is shown even when quiet."""
    terminal.say("")
    for line in _figures(certificate.figures, certificate.handled):
        terminal.show(line)
    terminal.say("")
    for finding in certificate.findings:
        _show(terminal, finding)
    terminal.say("")
    terminal.show(_verdict(certificate.findings), urgent=certificate.broken)
    for finding in certificate.findings:
        if finding.level is Level.BAD and finding.hint:
            terminal.hint(f"{finding.check}: {finding.hint}")


def _show(terminal: Terminal, finding: Finding) -> None:
    mark, style = _MARKS[finding.level]
    of_text = BAD_STYLE if finding.level is Level.BAD else ""
    if finding.level is Level.UNCHECKED:
        of_text = QUIET_STYLE
    line = Text.assemble((f"  {mark} ", style), (finding.text, of_text))
    terminal.show(line, urgent=finding.level is Level.BAD)
    if finding.level is Level.WARN and finding.hint:
        terminal.show(Text(f"    {finding.hint}", QUIET_STYLE))


def _figures(found: Figures, handled: int) -> list[Text]:
    mean = f"{found.sub_messages / found.messages:,.1f} each, {found.most:,} at most"
    split = f"{_time(found.split_mean_s)} a message"
    lines = [
        field("sample", figures.counted(found.messages, "message")),
        field("split into", figures.counted(found.sub_messages, "sub-message"), mean),
        field("sub-keys", figures.count(found.sub_keys), _hottest(found)),
        field("split takes", split, f"{_time(found.split_max_s)} at most"),
    ]
    if found.barriers:
        lines.insert(2, field("barriers", figures.count(found.barriers)))
    if handled:
        lines.append(field("handle", f"was called {figures.counted(handled, 'time')}"))
    return lines


def _hottest(found: Figures) -> str:
    if not found.hottest:
        return ""
    share = figures.percent(found.hottest / found.sub_messages)
    return f"{share} of all sub-messages have {found.hottest_key}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.001 else figures.duration(seconds)


def _verdict(findings: list[Finding]) -> Text:
    of = {level: sum(finding.level is level for finding in findings) for level in Level}
    beside = [
        words
        for level, words in (
            (Level.WARN, figures.counted(of[Level.WARN], "warning")),
            (Level.UNCHECKED, f"{of[Level.UNCHECKED]} not checked"),
        )
        if of[level]
    ]
    if of[Level.BAD]:
        total = figures.counted(len(findings), "check")
        text = ", ".join([f"{BAD} {of[Level.BAD]} of {total} failed", *beside])
        return Text(text, BAD_STYLE)
    held = figures.counted(of[Level.OK], "check")
    text = ", ".join([f"{OK} certified on this sample: {held} passed", *beside])
    return Text(text, GOOD_STYLE)
