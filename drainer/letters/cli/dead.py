"""``drainer dead list|show``."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from drainer.cli.connecting import Kafka
from drainer.cli.groups import TableTerminal, argument, command, option, without
from drainer.errors import EXIT_DONE, UsageError
from drainer.letters.cli.options import Letters, LetterTopic, Redrives
from drainer.letters.overview import overview_of, whole_letter_as_json
from drainer.letters.reading import find_letter, read_letters
from drainer.letters.redrive import default_group, redrive_progress
from drainer.letters.view import show_letter, show_overview
from drainer.view.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    help="Look at dead letters: sub-messages that a drain gave up on.",
)


@app.command("list")
@command
def list_(
    where: LetterTopic,
    letters: Letters,
    all_: Annotated[
        bool,
        option(default=False, help="List those too that were redriven already."),
    ],
    limit: Annotated[
        int,
        option(
            default=20,
            min=0,
            help="How many letters to list, the newest first. All are counted.",
        ),
    ],
    redrives: Redrives,
    kafka: Kafka,
    terminal: Annotated[TableTerminal, without("quiet")],
) -> None:
    """Count the outstanding dead letters of a topic, and list the newest.

    Reads the whole topic and touches nothing. Letters stay in it when they were redriven: the
    group of the redrive, and its plan if it is here, say which are outstanding. One that died
    again is another letter.

    Example: `drainer dead list --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    topic = where.dead_letter_topic
    group = redrives.group or default_group(topic)
    with kafka.connect() as cluster:
        redriven = redrive_progress(cluster, topic, group, redrives.plan)
        records = ((message, message in redriven) for message in read_letters(cluster, topic))
        found = overview_of(topic, records, letters.filter(), limit, all_=all_)
    if terminal.json:
        known = None if redriven.plan is None else str(redriven.plan)
        terminal.data({**found.as_json(), "group": redriven.group, "plan": known})
    else:
        show_overview(terminal, found, redriven)


@app.command()
@command
def show(
    place: Annotated[
        str,
        argument("PARTITION:OFFSET", help="Where the letter lies, as `dead list` tells it."),
    ],
    where: LetterTopic,
    kafka: Kafka,
    terminal: Annotated[Terminal, without("quiet")],
) -> None:
    """Show one dead letter whole: where it came from, why it was given up, and its payload.

    Example: `drainer dead show 0:17 --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    partition, offset = _parse_place(place)
    with kafka.connect() as cluster:
        letter = find_letter(cluster, where.dead_letter_topic, partition, offset)
    if terminal.json:
        whole = whole_letter_as_json(letter)
        terminal.data({"status": "ok", "exit_code": EXIT_DONE, **whole})
    else:
        show_letter(terminal, letter)


def _parse_place(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9}):(\d{1,18})", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"{text!r} is no PARTITION:OFFSET", hint="as in 0:17; `drainer dead list` tells them"
        )
    return int(found[1]), int(found[2])
