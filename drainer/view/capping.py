"""A cap in words: what is allowed for, and whether it is what holds a drain back."""

from __future__ import annotations

from drainer.engine.status import CapStatus, Status, Summary
from drainer.policy.rate_cap import Cap
from drainer.view import figures
from drainer.view.page import Field
from drainer.view.terminal import Terminal


def cap_words(cap: Cap | CapStatus) -> str:
    """``12,345 messages/s, 12 MiB/s``."""
    per_s = figures.size(round(cap.bytes_per_s))
    return f"{figures.rate(cap.messages_per_s)} messages/s, {per_s}/s"


def cap_field(cap: Cap) -> Field:
    """What a drain may read, in its preview."""
    mean = figures.size(round(cap.message_bytes))
    return Field("limits", f"{cap_words(cap)}", f"read at most; {mean} a message; {cap.source}")


def show_cap(terminal: Terminal, cap: Cap, messages: float) -> None:
    """What reading a backlog of so many messages takes at the cap."""
    took = figures.duration(messages / cap.messages_per_s)
    terminal.say("")
    terminal.items(cap_field(cap), Field("", f"so reading it takes {took} at least"))


def capped_by(status: Status) -> str | None:
    """The cap that holds a drain back now."""
    if status.write_cap is not None and status.write_cap.binds:
        return f"the brokers' limits: {cap_words(status.write_cap)} written at most"
    return None


def reading_capped_by(status: Status) -> str | None:
    """The cap that reading waits for; it is the drain's limit when nothing else is."""
    if status.read_cap is not None and status.read_cap.binds:
        return f"the brokers' limits: {cap_words(status.read_cap)} read at most"
    return None


def cap_in_line(status: Status) -> list[str]:
    """The same for a line of a log."""
    words = []
    write, read = status.write_cap, status.read_cap
    if read is not None:
        binds = read.binds and not (write is not None and write.binds)
        words.append(_at_most("reads", read, binds=binds))
    if write is not None:
        words.append(_at_most("writes", write, binds=write.binds))
    return words


def _at_most(what: str, cap: CapStatus, *, binds: bool) -> str:
    bound = ", which binds" if binds else ""
    return f"{what} {figures.rate(cap.messages_per_s)}/s at most{bound}"


def cap_lines(summary: Summary) -> list[Field]:
    """How fast it went beside what was allowed for."""
    lines = []
    for what, cap in (("read", summary.read_cap), ("written", summary.write_cap)):
        if cap is None or not cap.average_per_s:
            continue
        share = figures.percent(cap.average_per_s / cap.messages_per_s)
        held = f"{share} of it" + (": it held this run back" if cap.held else "")
        went = f"{figures.rate(cap.average_per_s)} messages/s {what}"
        lines.append(Field("limits", f"{went}, of {cap_words(cap)}", held))
    return lines
