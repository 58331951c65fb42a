"""Which dead letters a redrive means, as it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from drainer.model.codec import JsonRecord, Whole


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant: those that fit each kind of text that is given."""

    # Words that the reason is one of.
    reasons: tuple[str, ...] = ()
    # Texts that one of its sub-keys is, as ``key_text`` has it.
    sub_keys: tuple[str, ...] = ()
    # Texts that ``Type: text`` of its error contains; upper and lower case are one.
    errors: tuple[str, ...] = ()
    # Each of them is the topic that it comes from, or the group or the handler whose drain gave it
    # up first.
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedriveSettings(JsonRecord):
    """Which dead letters of a topic go to the handler again; the others stay pending.

    One that was redriven ``max_redrives`` times already does not: it would go round in circles.
    What no redrive could give the handler is skipped.
    """

    letters: LetterFilter = field(default_factory=LetterFilter)
    max_redrives: Whole = 3
