"""The commands ``drainer dead list`` and ``drainer dead show``."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated

import typer

from drainer.cli.command import command, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.options import PayloadOptions
from drainer.errors import EXIT_DONE, Refused, UsageError
from drainer.kafka.dead_letters import originals_kept
from drainer.letters.cli.options import LetterTopicOptions, RedriveOptions
from drainer.letters.foreign import reader
from drainer.letters.originals import Originals
from drainer.letters.overview import overview_of, whole_letter_as_json
from drainer.letters.reading import decode_letter, find_letter, read_letters
from drainer.letters.receipts import redrive_progress
from drainer.letters.redrive import default_group
from drainer.letters.view import letter_page, overview_page
from drainer.loading.loader import load_decoding
from drainer.model.option import Option, number
from drainer.model.ranges import RangeSet
from drainer.model.terms import LetterFilter
from drainer.view.terminal import Terminal

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
        int,
        Option("Letters to list, newest first. The count covers all.", 20, number(0)),
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
    running = None if redriven.running is None else redriven.running.as_json()
    terminal.data(
        {**found.as_json(), "originals_kept": kept, "group": redriven.group, "running": running}
    )
    terminal.present(overview_page(found, redriven, kept))


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
    payload: Annotated[PayloadOptions, without("split", "split_key")],
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
    answer = {**whole_letter_as_json(letter), "undecoded": undecoded}
    terminal.data({"status": "ok", "exit_code": EXIT_DONE, **answer})
    terminal.present(letter_page(letter, undecoded))


def _parse_place(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9}):(\d{1,18})", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"{text!r} is not PARTITION:OFFSET",
            hint="Give one that `drainer dead list` prints, such as 0:17.",
        )
    return int(found[1]), int(found[2])
