"""The layout of a page on a terminal: lines of text with tones, and how rich prints them.

Text from elsewhere may contain control characters. ``segments`` and ``plain`` escape them, so every
line that is printed has passed through one of the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from drainer.text.escape import SCREEN, printable, shorten
from drainer.view.page import Cell, Field, Item, Line, Page, Table, Tone

STYLES: dict[str, Style] = {
    Tone.PLAIN: Style.null(),
    Tone.STRONG: Style.parse("bold"),
    Tone.GOOD: Style.parse("green"),
    Tone.WARN: Style.parse("bold yellow"),
    Tone.BAD: Style.parse("bold red"),
    Tone.HINT: Style.parse("bold cyan"),
    Tone.QUIET: Style.parse("dim"),
    Tone.COMMAND: Style.null(),
}
Pieces = list[tuple[str, Tone]]  # The texts of a line, each with its tone.
_BAR = 24  # The width of a full bar in a table, in characters.
_MARK = 2  # The width of a mark and the space behind it.
_LONG_LEAST = 24  # A last column of long texts is at least this wide.
# In a sentence, commands and calls in Python are in backquotes. The arguments of a command are
# quoted as ``shlex`` does it, and those of a call as ``repr`` does it.
_TEXT = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_COMMAND = r"""`(?:drainer|export|/[^`]*python[\d.]* -m) (?:'[^']*'|"'"|[^'`])++`"""
_CALL = rf"""`drainer\.(?:{_TEXT}|[^'"`])++`"""
_WORDS = re.compile(rf""" *(?:{_COMMAND}|{_CALL}|`[^`]{{1,60}}`|[^ ])+| +""")
_ARGUMENTS = re.compile(r""" *(?:'[^']*'|"'"|[^ ])+| +""")
_ARGUMENTS_OF_CALL = re.compile(rf""" *(?:{_TEXT}|[^ ])+| +""")
_EIGHTHS = " ▏▎▍▌▋▊▉"


def segments(line: Pieces, width: int | None = None) -> list[Segment]:
    """Return a line as rich prints it, with control characters escaped.

    If there is a ``width``, the line is cut to it.
    """
    found = [Segment(printable(text), STYLES[tone]) for text, tone in line]
    if width is not None and Segment.get_line_length(found) > width:
        found = [*Segment.adjust_line_length(found, width - 1, pad=False), Segment("…")]
    return found


def wrapped(line: Pieces, width: int | None, indent: int | None = None) -> Iterator[Pieces]:
    """Yield a line as lines of at most ``width`` cells, which are broken between words.

    Further lines are indented, by default to where the text begins, unless a word needs the room.
    Words stay whole, and so does a command or a call in backquotes that fits on a line of its own.
    Any other command, such as a piece with the tone COMMAND, goes on after a backslash, so that it
    can still be copied. Python needs none in a call.
    """
    line = [(printable(text), tone) for text, tone in line]
    if width is None or sum(cell_len(text) for text, _ in line) <= width:
        yield line
        return
    label, text = line[0][0], plain(line)
    if indent is None:
        is_label = label.strip() and label[0] == label[-1] == " "
        indent = len(label) if is_label else len(text) - len(text.lstrip(" ")) + _MARK
    row: Pieces = []
    used, indent = 0, indent if width - indent >= _LONG_LEAST else _MARK
    for text, tone in line:
        for word in [text] if tone is Tone.COMMAND else _WORDS.findall(text):
            parts, mark = _parts(word, tone, width)
            for number, part in enumerate(parts):
                needed = cell_len(part if number else word) + len(mark)
                if used + needed > width and row and part[0] == " ":
                    yield [*row, (mark * (number > 0), Tone.PLAIN)]
                    part = part.lstrip(" ")  # noqa: PLW2901
                    used = max(0, min(indent, width - cell_len(part)))
                    row = [(" " * used, Tone.PLAIN)]
                before = row.pop()[0] if row and row[-1][1] is tone else ""
                row.append((before + part, tone))
                used += cell_len(part)
    yield row


def _parts(word: str, tone: Tone, width: int) -> tuple[list[str], str]:
    """Return the parts between which a word may be broken, and the mark at the end of a line there.

    Only a command or a call may be, if it does not fit on a line.
    """
    if tone is Tone.COMMAND or cell_len(word.lstrip(" ")) > width:
        if re.search(_CALL, f"`{word}`" if tone is Tone.COMMAND else word):
            return _ARGUMENTS_OF_CALL.findall(word), ""
        if tone is Tone.COMMAND or re.search(_COMMAND, word):
            return _ARGUMENTS.findall(word), " \\"
    return [word], ""


def plain(line: Pieces) -> str:
    """Return the text of a line without its tones."""
    return "".join(printable(text) for text, _ in line)


def broken(text: str, width: int) -> list[str]:
    """Return a text in lines of this width, of which even a word that is too long has several."""
    return wrap(printable(text), width, subsequent_indent="  ", break_on_hyphens=False)


def head(page: Page) -> Iterator[Pieces]:
    """Yield the first lines of a page: what it is about, the answer, and its details."""
    about = [(f"{page.subject}: ", Tone.STRONG)] if page.subject else []
    yield _cut(about + sentence(page.headline))
    yield from map(sentence, page.details)


def sentence(line: Line) -> Pieces:
    """Return a line of words with its mark before them."""
    return [(line.marked, line.tone), (line.more, Tone.PLAIN)]


def lay_out(item: Item, whole: bool = False, width: int | None = None) -> Iterator[Pieces]:
    """Yield the lines of an item as a terminal shows them. A plot has none.

    A long table is cut after its first rows, and a long text is cut in its middle. With ``whole``,
    nothing is cut. A table that is wider than ``width`` is divided into blocks of columns.
    """
    match item:
        case Line():
            yield _cut([("  " if item.mark else "", Tone.PLAIN), *sentence(item)], whole)
        case Field():
            yield _cut(pieces(item), whole)
            for line in item.lines:
                yield _cut([(f"    {line}", Tone.QUIET)], whole)
        case Table():
            yield from _table(item, len(item.rows) if whole else item.shown, whole, width)


def pieces(field: Field) -> Pieces:
    """Return the line of a field: its label, its value and its note."""
    note = f"  ({field.note})" if field.note else ""
    return [(f"  {field.label:<13} ", Tone.QUIET), (field.value, field.tone), (note, Tone.QUIET)]


def is_urgent(item: Item) -> bool:
    """Return whether an item reports something bad, so that it is shown even with --quiet."""
    match item:
        case Line() | Field():
            return item.tone is Tone.BAD
        case Table():
            cells = (cell for row in item.rows for cell in row)
            return any(isinstance(cell, Cell) and cell.tone is Tone.BAD for cell in cells)
    return False


def _cut(line: Pieces, whole: bool = False) -> Pieces:
    return line if whole else [(shorten(text, SCREEN), tone) for text, tone in line]


def _blocks(widths: Sequence[int], gap: int, width: int | None) -> Iterator[list[int]]:
    """Yield the numbers of the columns of each block that fits a width. All have the first column.

    ``widths`` are those that the columns need at least, and ``gap`` is the space between two.
    """
    block = [0]
    for number in range(1, len(widths)):
        taken = sum(widths[each] + gap for each in block)
        if width is not None and taken + widths[number] > width and len(block) > 1:
            yield block
            block = [0]
        block.append(number)
    yield block


def _table(found: Table, shown: int, whole: bool, width: int | None) -> Iterator[Pieces]:
    rows = [[(title, Tone.QUIET) for title, _ in found.headings]]
    rows += [_cut([*map(_cell, row)], whole) for row in found.rows[:shown]]
    rows += [[(_cell(cell)[0], Tone.STRONG) for cell in found.total]] if found.total else []
    lengths = [[cell_len(printable(text)) for text, _ in row] for row in rows]
    widths = [*map(max, zip(*lengths, strict=True))]
    last = min(widths[-1], _LONG_LEAST) if found.headings[-1][1] == "long" else widths[-1]
    least = [*widths[:-1], last]
    gaps, room = len(least) - 1, math.inf if width is None else width
    if sum(widths) + 2 * gaps > room and (fewer := found.without_spare()) is not None:
        yield from _table(fewer, shown, whole, width)
        return
    if found.caption:
        yield [(found.caption, Tone.QUIET)]
    # If only long names leave no room for the other columns, they have lines of their own.
    left = room - sum(least[1:]) - gaps
    if 0 <= left < widths[0]:
        least[0] = widths[0] = max((row[0] for row in lengths if row[0] <= left), default=0)
    apart = 1 if gaps <= room - sum(least) < 2 * gaps else 2
    for number, block in enumerate(_blocks(least, apart, width)):
        if number:
            yield []
        for row, taken in zip(rows, lengths, strict=True):
            if taken[0] > widths[0]:
                yield row[:1]
                row[0], taken[0] = ("", Tone.PLAIN), 0
            line: Pieces = []
            for each in block:
                gap = (" " * (widths[each] - taken[each]), Tone.PLAIN)
                pair = (row[each], gap) if found.headings[each][1] else (gap, row[each])
                line += [*pair, (" " * apart, Tone.PLAIN)]
            while line and not line[-1][0].strip(" "):
                line.pop()
            yield from wrapped(line, width, sum(widths[each] + apart for each in block[:-1]))
    if (more := len(found.rows) - shown) > 0:
        yield [(f"and {more:,} more", Tone.QUIET)]


def _cell(cell: str | Cell) -> tuple[str, Tone]:
    if isinstance(cell, str):
        return cell, Tone.PLAIN
    return (cell.text, cell.tone) if cell.bar is None else (_bar(cell.bar, _BAR), Tone.GOOD)


def _bar(share: float, room: int) -> str:
    """Draw a bar over a share of ``room``, in characters. A share above 0 is always visible."""
    eighths = round(share * room * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
