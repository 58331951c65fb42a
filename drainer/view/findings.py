"""A page with the findings of checks: one line for each, and the verdict on all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drainer.model.finding import Finding, Level
from drainer.view.figures import counted
from drainer.view.page import BAD, OK, WARN, Line, Page, Section, Tone, section

_MARKS = {
    Level.OK: (OK, Tone.PLAIN),
    Level.WARN: (WARN, Tone.WARN),
    Level.BAD: (BAD, Tone.BAD),
    Level.UNCHECKED: ("-", Tone.QUIET),
}
_LABEL = 9  # The width of the column with the name of the check, in characters.


def findings_page(
    findings: Sequence[Finding], passed: str = "", *before: Section, labels: bool = False
) -> Page:
    """Make a page that shows findings after the sections ``before``.

    With ``labels``, each finding begins with the name of its check. ``passed`` begins the headline
    if no check has failed.
    """
    lines = (line for found in findings for line in _lines(found, labels))
    bad = [found for found in findings if found.level is Level.BAD and found.hint]
    hints = (f"{found.check}: {found.hint}" if labels else found.hint or "" for found in bad)
    checks = section("Checks", lines)
    return Page(_verdict(findings, passed), (*before, checks), hints=tuple(dict.fromkeys(hints)))


def _lines(found: Finding, labels: bool) -> Iterator[Line]:
    mark, tone = _MARKS[found.level]
    yield Line(f"{found.check:<{_LABEL}} {found.text}" if labels else found.text, tone, mark)
    if found.level is Level.WARN and found.hint:
        yield Line(f"    {found.hint}", Tone.QUIET)


def _verdict(findings: Sequence[Finding], passed: str) -> Line:
    of = {level: sum(finding.level is level for finding in findings) for level in Level}
    beside = ""
    if of[Level.WARN]:
        beside += f", {counted(of[Level.WARN], 'warning')}"
    if of[Level.UNCHECKED]:
        beside += f", {of[Level.UNCHECKED]} not checked"
    if of[Level.BAD]:
        total = counted(len(findings), "check")
        return Line(f"{of[Level.BAD]} of {total} failed{beside}", Tone.BAD, BAD)
    checks = f"{counted(of[Level.OK], 'check')} passed{beside}"
    return Line(f"{passed}: {checks}" if passed else checks, Tone.GOOD, OK)
