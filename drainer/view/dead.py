"""Dead letters on the terminal: what lies in a topic, and one letter whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich.text import Text

from drainer.escape import json_text
from drainer.policy.dead_letter import Letter
from drainer.policy.dead_letter_overview import Overview
from drainer.policy.exact_json import Encoding
from drainer.policy.redrive import RedriveProgress
from drainer.view import figures
from drainer.view.layout import (
    BAD_STYLE,
    GOOD_STYLE,
    HEAD_STYLE,
    OK,
    QUIET_STYLE,
    WARN_STYLE,
    field,
    table,
)
from drainer.view.terminal import Terminal

_KEY, _ERROR = 32, 60  # characters of a cell


def show_overview(terminal: Terminal, found: Overview, redriven: RedriveProgress) -> None:
    """How many are outstanding, of which errors and sub-keys, and the newest of them."""
    if found.foreign:
        records = figures.counted(found.foreign, "record")
        terminal.warn(f"{records} of {found.topic} can't be read as dead letters of drainer's")
    terminal.show(_headline(found))
    if redriven.begun:
        terminal.show(Text(_source(redriven), QUIET_STYLE))
    if not found.matching:
        return
    terminal.say("")
    _show_counts(terminal, found)
    if not found.newest:
        return
    terminal.say("")
    shown = len(found.newest)
    which = "newest first" if shown == found.matching else f"the newest {shown}"
    terminal.show(Text(f"letters, {which}", QUIET_STYLE))
    some = any(redriven for _, redriven in found.newest)
    extra = ["redriven"] if some else []
    rows = table(
        "partition:offset", "time", "reason", "attempts", *extra, "from", "sub-key", "error"
    )
    for column in rows.columns[4 + some :]:
        column.justify = "left"
    for letter, is_redriven in found.newest:
        rows.add_row(
            f"{letter.partition}:{letter.offset}",
            letter.time,
            letter.reason,
            figures.count(letter.attempts),
            *(["yes" if is_redriven else ""] if some else []),
            _origin(letter),
            figures.shorten(_keys(letter), _KEY),
            Text(figures.shorten(letter.error or "none", _ERROR), BAD_STYLE),
        )
    terminal.show(rows)


def show_letter(terminal: Terminal, letter: Letter) -> None:
    """All that a letter tells, its payload last."""
    head = f"dead letter {letter.partition}:{letter.offset}, of {_origin(letter)}"
    terminal.show(Text(head, HEAD_STYLE))
    for line in _fields(letter):
        terminal.show(line)
    terminal.say("")
    terminal.show(Text("message", HEAD_STYLE))
    terminal.show(field("key", _as_text(letter.message_key)))
    timestamp = "none" if letter.timestamp is None else str(letter.timestamp)
    terminal.show(field("timestamp", timestamp, "ms since 1970"))
    for name, value in letter.headers:
        terminal.show(field("header", f"{name}: {_as_text(value)}"))
    terminal.say("")
    terminal.show(
        Text.assemble(("payload", HEAD_STYLE), (f"  ({letter.payload_encoding})", QUIET_STYLE))
    )
    for each in _pretty(letter).splitlines():
        terminal.say(each)


def _headline(found: Overview) -> Text:
    if not found.letters:
        return Text(f"{OK} no dead letters in {found.topic}", GOOD_STYLE)
    count = figures.count(found.redriven)
    if not found.asked:
        text = f"{OK} no dead letters outstanding in {found.topic}, {count} redriven"
        return Text(text, GOOD_STYLE)
    letters = figures.counted(found.asked, "dead letter")
    if found.matching < found.asked:
        letters = f"{figures.count(found.matching)} of {letters} match"
    redriven = ""
    if found.redriven:
        among = "of them redriven" if found.asked == found.letters else "others redriven"
        redriven = f", {count} {among}"
    return Text(f"{found.topic}: {letters}{redriven}", WARN_STYLE)


def _source(redriven: RedriveProgress) -> str:
    # Where it is known from what was redriven.
    if redriven.plan is not None:
        return f"redriven: as group {redriven.group} and {redriven.plan} have it"
    return f"redriven: as group {redriven.group} has it, up to the first letter that was left alone"


def _show_counts(terminal: Terminal, found: Overview) -> None:
    rows = table("letters", "", "")
    of_keys = [(figures.shorten(key, _KEY), "sub-key", n) for key, n in found.by_sub_key]
    of_errors = [
        (kind or "no error", f"in {figures.shorten(handler, _ERROR)}", n)
        for (kind, handler), n in found.by_error
    ]
    of_reasons = [(reason, "reason", n) for reason, n in found.by_reason]
    groups: Sequence[tuple[str, str, int]] = [*of_errors, *of_reasons, *of_keys]
    for what, note, n in groups:
        rows.add_row(figures.count(n), what, Text(note, QUIET_STYLE))
    terminal.show(rows)


def _fields(letter: Letter) -> list[Text]:
    tried = figures.counted(letter.attempts, "attempt")
    lines = [
        field("reason", letter.reason, tried),
        field("error", letter.error or "none"),
        field("sub-key", _keys(letter), letter.kind if letter.kind != "sub-message" else ""),
        field("id", letter.id),
        field("topic", letter.origin.topic, f"id {letter.origin.topic_id}"),
        field("group", letter.group),
        field("handler", letter.handler),
        field("drain", letter.drain_id, letter.time),
        field("redriven", figures.counted(letter.redrives, "time")),
    ]
    if letter.why_not_redriven:
        lines.append(field("no redrive", letter.why_not_redriven))
    return lines


def _origin(letter: Letter) -> str:
    place = f"{letter.origin.topic}/{letter.origin.partition}/{letter.message_offset}"
    return f"{place}[{letter.index}]"


def _keys(letter: Letter) -> str:
    return ", ".join(letter.key_texts) if letter.key_texts else letter.kind


def _as_text(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return value.decode()
    except UnicodeDecodeError:
        return repr(value)


def _pretty(letter: Letter) -> str:
    payload: Any = letter.payload
    if letter.payload_encoding is Encoding.LEFT_OUT:
        return "left out: it was too large for the dead-letter topic"
    if letter.payload_encoding is Encoding.LITERAL:
        return repr(payload)
    if isinstance(payload, bytes):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            with suppress(UnicodeDecodeError):
                return json_text(payload.decode())  # in quotes: it may look like anything
            return repr(payload)
    return json_text(payload, indent=True)
