"""Whether a command put out what a page prints below it."""

from __future__ import annotations

import re

ANYTHING = "…"
# What the tutorial itself makes, and an account without losses: these numbers are compared.
EXACT = {"0", "500", "3000", "30000"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
ERASED = "\x1b[2K"  # what stood in the line before
DATE = r"\b(?:\d\d \w{3} |(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d\d:\d\d\b(?!:)"
TIME = r"\d[\d.]*(?:ms|s|m|h)\b(?: \d+m?s\b)?"
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
# Nor is another number printed where the tool gives one of these; a kill may leave 3,000 offsets.
OTHER_NUMBER = rf"(?!500\b|30?,000\b(?! offsets)){NUMBER}"
VARIES = re.compile(f"({DATE})|({TIME})|({NUMBER})")


def lines_of(seen: str) -> list[str]:
    """Lines on a terminal at the end, without colours and what was erased."""
    lines = [ESCAPES.sub("", line.split(ERASED)[-1]) for line in seen.split("\n")]
    return "\n".join(lines).strip().splitlines()


def expected(printed: str) -> re.Pattern[str]:
    """Pattern of a line: widths, times, and numbers that the tutorial does not decide vary."""

    def may_be(found: re.Match[str]) -> str:
        date, time, number = found.groups()
        if number and number.replace(",", "") in EXACT:
            return re.escape(number)
        return DATE if date else f"(?:{TIME}|unknown)" if time else OTHER_NUMBER

    text, pattern, at = " ".join(printed.split()), "", 0
    for found in VARIES.finditer(text):
        pattern += re.escape(text[at : found.start()]) + may_be(found)
        at = found.end()
    return re.compile(pattern + re.escape(text[at:]))


def differs(printed: list[str], output: list[str]) -> str:
    """First printed line that was not put out, or nothing; a line of … stands for any lines."""
    given = [" ".join(line.split()) for line in output]
    parts: list[list[str]] = [[]]
    for line in printed:
        if line == ANYTHING:
            parts.append([])
        else:
            parts[-1].append(line)
    at = 0
    for number, part in enumerate(parts):
        wanted = [expected(line) for line in part]
        last = len(given) - len(part)
        first = last if part and number and number == len(parts) - 1 else at
        places = range(first, (last if number else 0) + 1)
        found = [
            place
            for place in places
            if place >= at
            and all(w.fullmatch(g) for w, g in zip(wanted, given[place:], strict=False))
        ]
        is_whole = len(parts) > 1 or len(part) == len(given)
        if not found or last < 0 or not is_whole:
            return "\n".join(["the page prints", *part, "and the tool", *output])
        at = found[0] + len(part)
    return ""
