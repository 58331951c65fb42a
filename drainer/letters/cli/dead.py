"""The commands ``drainer dead list`` and ``drainer dead show``, and the pages that they print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any

import typer

from drainer.cli.command import command, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.options import PayloadOptions
from drainer.errors import Refused, UsageError
from drainer.kafka.dead_letters import originals_kept
from drainer.kafka.group import NEAR_NAMES
from drainer.letters.cli.options import LetterTopicOptions, RedriveOptions
from drainer.letters.foreign import reader
from drainer.letters.originals import Originals
from drainer.letters.overview import Overview, overview_of, whole_letter_as_json
from drainer.letters.reading import decode_letter, find_letter, read_letters
from drainer.letters.receipts import RedriveProgress, quoted, redrive_progress
from drainer.letters.redrive import default_group
from drainer.loading.loader import load_decoding
from drainer.model.option import Option, number
from drainer.model.order import key_text
from drainer.model.ranges import RangeSet
from drainer.model.terms import LetterFilter
from drainer.policy.dead_letter import Letter, default_dead_letter_topics
from drainer.policy.exact_json import Encoding
from drainer.text.escape import foreign, json_text, shorten
from drainer.text.raw_json import raw_json
from drainer.view import figures
from drainer.view.page import OK, Cell, Column, Field, Line, Page, Table, Tone, section
from drainer.view.terminal import Terminal

_KEY, _ERROR = 32, 60  # The characters of a key or an error that a table shows.

app = typer.Typer(
    no_args_is_help=True, help="List and show dead letters, which a drain gave up on."
)


@app.command("list")
@command
def list_(
    where: LetterTopicOptions,
    letters: LetterFilter,
    all_: Annotated[bool, Option("List redriven letters, too.", False)],
    limit: Annotated[
        int, Option("Letters to list, newest first. The count covers all.", 20, number(0))
    ],
    redrives: Annotated[RedriveOptions, without("plan")],
    kafka: ConnectionOptions,
    terminal: Terminal,
) -> None:
    """Count a topic's outstanding dead letters and list the newest.

    This reads the whole topic and touches nothing. A redriven letter stays in the topic. The
    redrive's group and receipts show which letters are outstanding. A letter that dies again is a
    new letter.

    Example: `drainer dead list --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    topic = where.dead_letter_topic
    group = redrives.group or default_group(topic)
    with kafka.connect() as cluster:
        redriven = redrive_progress(cluster, topic, group)
        known = {number: RangeSet(ranges) for number, ranges in redriven.finished.items()}
        records = ((m, m.offset in known[m.partition]) for m in read_letters(cluster, topic))
        read = reader(where.headers or {})
        found = overview_of(topic, records, letters, limit, all_=all_, read=read)
        kept = {}
        for name, (_, oldest_ms) in found.left_out.items():
            with suppress(Refused):  # Letters may name a topic that does not exist.
                kept[name] = originals_kept(name, cluster.topic_config(name), oldest_ms)
        near = default_dead_letter_topics(topic, cluster.topic_names() if found.is_foreign else ())
    running = None if redriven.running is None else redriven.running.as_json()
    page = overview_page(found, redriven, kept, near)
    answer = {"originals_kept": kept, "group": redriven.group, "running": running}
    terminal.answer({**found.as_json(), **answer}, page)


@app.command()
@command
def show(
    place: Annotated[
        str,
        Option(
            "Place of the letter, as `dead list` prints it.",
            name="PARTITION:OFFSET",
            is_argument=True,
        ),
    ],
    where: LetterTopicOptions,
    payload: Annotated[PayloadOptions, without("split", "keys", "barrier", "unkeyed")],
    kafka: ConnectionOptions,
    terminal: Terminal,
) -> None:
    """Show one dead letter: its origin, error and payload, decoded if it is a whole message.

    Example: `drainer dead show 0:17 --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    partition, offset = _parse_place(place)
    settings = kafka.settings()
    decoding = load_decoding(payload.settings, settings.extras)
    with connect(settings) as cluster:
        read = Originals(settings, where.headers or {}).letter
        letter = find_letter(cluster, where.dead_letter_topic, partition, offset, read)
    letter, undecoded = (letter, None) if decoding is None else decode_letter(letter, decoding)
    letter = letter.masked()
    page = letter_page(letter, undecoded)
    terminal.answer({**whole_letter_as_json(letter), "undecoded": undecoded}, page)


def _parse_place(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9}):(\d{1,18})", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"{text!r} is not PARTITION:OFFSET",
            hint="Give one that `drainer dead list` prints, such as 0:17.",
        )
    return int(found[1]), int(found[2])


def overview_page(
    found: Overview,
    redriven: RedriveProgress,
    kept: Mapping[str, str] = MappingProxyType({}),
    near: Sequence[str] = (),
) -> Page:
    """Make a page with counts of outstanding letters, errors and sub-keys, and the newest letters.

    ``kept`` tells in words, for each topic, how long it keeps the messages that letters need.
    ``near`` names the topics that may be meant if this one has no letters.
    """
    warnings = [
        f"{figures.counted(count, 'letter')} without payload: a redrive reads the messages from"
        f" {topic} again{'; ' * (topic in kept)}{kept.get(topic, '')}"
        for topic, (count, _) in found.left_out.items()
    ]
    if found.foreign:
        records = figures.counted(found.foreign, "record")
        warnings.append(f"{records} of {found.topic} are not dead letters that drainer recognises")
    if (running := redriven.running) is not None:
        place = f"{quoted(running.plan)} on {quoted(running.host)}"
        warnings.append(
            f"according to its receipt, a redrive has not ended: its progress is in {place},"
            " and is not counted here"
        )
    source = f"redriven: as recorded by group {redriven.group}"
    source += "; what died again has a letter for each time" * bool(found.redriven)
    return Page(
        _headline(found),
        (
            section("Origins", _counts(found) if found.matching else None),
            section("The newest", _newest(found) if found.matching and found.newest else None),
        ),
        details=(Line(source, Tone.QUIET),),
        warnings=tuple(warnings),
        hints=(f"Did you mean {' or '.join(near[:NEAR_NAMES])}?",) if near else (),
    )


def letter_page(letter: Letter, undecoded: str | None = None) -> Page:
    """Make the page of a dead letter.

    ``undecoded`` is the reason if its message could not be decoded.
    """
    timestamp = "none" if letter.timestamp is None else str(letter.timestamp)
    head = f"dead letter {letter.partition}:{letter.offset}, of {_origin(letter)}"
    return Page(
        Line(head, Tone.STRONG),
        (
            section("Details", _fields(letter)),
            section(
                "Message",
                Line("message", Tone.STRONG),
                Field("key", _as_text(letter.message_key)),
                Field("timestamp", timestamp, "ms since 1970"),
                (Field("header", f"{name}: {_as_text(value)}") for name, value in letter.headers),
            ),
            section(
                "Payload",
                Line("payload", Tone.STRONG, more=f"  ({letter.payload_encoding})"),
                (Line(each) for each in _pretty(letter).splitlines()),
            ),
        ),
        warnings=() if undecoded is None else (f"can't decode the message: {undecoded}",),
    )


def _newest(found: Overview) -> Table:
    shown = len(found.newest)
    which = "newest first" if shown == found.matching else f"the newest {shown}"
    some = any(redriven for _, redriven in found.newest)
    return Table(
        (
            "partition:offset",
            "time",
            "reason",
            "attempts",
            *([Column("redriven")] if some else []),
            Column("from"),
            Column("sub-key"),
            Column("error", wide=True),
        ),
        tuple(
            (
                f"{letter.partition}:{letter.offset}",
                letter.time,
                letter.reason,
                figures.count(letter.attempts),
                *(["yes" if is_redriven else ""] if some else []),
                _origin(letter),
                shorten(_keys(letter), _KEY),
                Cell(foreign(letter.error or "none", _ERROR), Tone.WARN),
            )
            for letter, is_redriven in found.newest
        ),
        caption=f"letters, {which}",
        shown=shown,
    )


def _headline(found: Overview) -> Line:
    if found.is_foreign:
        return Line(f"no dead letters in {found.topic}: none of its records is one", Tone.WARN)
    redriven = f", {figures.count(found.redriven)} redriven" if found.redriven else ""
    match = f"; {figures.count(found.matching)} match" * (found.matching != found.outstanding)
    if not found.outstanding:
        text = f"no dead letters outstanding in {found.topic}{redriven}{match}"
        return Line(text, Tone.GOOD, OK)
    letters = figures.counted(found.outstanding, "dead letter") + found.given_up.words
    return Line(f"{found.topic}: {letters} outstanding{redriven}{match}", Tone.WARN)


def _counts(found: Overview) -> Table:
    rows = tuple(
        (figures.count(n), Cell(what.replace("_", "-"), Tone.QUIET), shorten(name, _KEY))
        for what, counts in found.counts.items()
        for name, n in counts.items()
    )
    return Table(("letters", Column("by"), Column("value")), rows, shown=len(rows))


def _fields(letter: Letter) -> Iterator[Field]:
    tried = figures.counted(letter.attempts, "attempt")
    yield Field("reason", letter.reason, tried)
    yield Field("error", letter.error or "none")
    yield Field("sub-key", _keys(letter), letter.kind if letter.kind != "sub-message" else "")
    yield Field("id", letter.id)
    # A letter of another tool has no drain, handler or topic id.
    yield Field("topic", letter.topic, f"id {letter.topic_id}" if letter.drain_id else "")
    yield Field("group", letter.group or "not known")
    if letter.drain_id:
        yield Field("handler", letter.handler)
        yield Field("drain", letter.drain_id, letter.time)
    else:
        yield Field("written", letter.time)
    yield Field("redriven", figures.counted(letter.redrives, "time"))
    if letter.why_not_redriven:
        yield Field("not redriven", letter.why_not_redriven)


def _origin(letter: Letter) -> str:
    return f"{letter.place}[{letter.index}]"


def _keys(letter: Letter) -> str:
    return ", ".join(letter.key_texts) if letter.key_texts else letter.kind


def _as_text(value: bytes | None) -> str:
    return "null" if value is None else key_text(value)


def _pretty(letter: Letter) -> str:
    payload: Any = letter.payload
    if letter.payload is None and letter.payload_encoding is not Encoding.NULL:
        return f"left out: {letter.why_not_redriven or 'a redrive reads its message again'}"
    if letter.payload_encoding in (Encoding.TYPED, Encoding.LITERAL):
        return repr(payload)
    if isinstance(payload, bytes):
        try:
            payload = raw_json(payload)
        except (ValueError, RecursionError):
            with suppress(UnicodeDecodeError):
                # The text is in quotes, because it may look like anything.
                return json_text(payload.decode())
            return repr(payload)
    return json_text(payload, indent=True)
