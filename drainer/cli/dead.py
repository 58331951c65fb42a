"""``drainer dead list|show``."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from drainer.cli import options as o
from drainer.cli.answer import answering
from drainer.cli.draining import connect
from drainer.core.failing.dead_letter import LetterFilter
from drainer.core.overview import whole_letter_as_json
from drainer.errors import EXIT_DONE, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.operations.dead import find_letter, look_over
from drainer.view.dead import show_letter, show_overview
from drainer.view.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at dead letters: sub-messages that a drain gave up on.",
)


@app.command("list")
def list_(
    dead_letter_topic: o.DeadLetterTopic,
    bootstrap_server: o.BootstrapServer = None,
    reason: o.Reasons = None,
    sub_key: o.SubKeys = None,
    error: o.ErrorTexts = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            envvar="DRAINER_LIMIT",
            min=0,
            help="How many letters to list, the newest first. All are counted.",
        ),
    ] = 20,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Count the dead letters of a topic by error and sub-key, and list the newest.

    Reads the whole topic and touches nothing. Letters stay in it when they were redriven: the plan
    of the redrive and its group tell how far that came.

    Example: `drainer dead list --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    terminal = Terminal(json=json, debug=debug)
    with answering(terminal):
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        wanted = LetterFilter(tuple(reason or ()), tuple(sub_key or ()), tuple(error or ()))
        with connect(settings) as cluster:
            found = look_over(cluster, dead_letter_topic, wanted, limit)
        if json:
            terminal.data(found.as_json())
        else:
            show_overview(terminal, found)


@app.command()
def show(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION:OFFSET", help="Where the letter lies, as `dead list` tells it."
        ),
    ],
    dead_letter_topic: o.DeadLetterTopic,
    bootstrap_server: o.BootstrapServer = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Show one dead letter whole: where it came from, why it was given up, and its payload.

    Example: `drainer dead show 0:17 --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    terminal = Terminal(json=json, debug=debug)
    with answering(terminal):
        partition, offset = _parse_place(place)
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        with connect(settings) as cluster:
            letter = find_letter(cluster, dead_letter_topic, partition, offset)
        if json:
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
