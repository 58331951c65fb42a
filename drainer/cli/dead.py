"""``drainer dead list|show``."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from drainer.cli import letters as l
from drainer.cli import options as o
from drainer.cli.answer import answering
from drainer.cli.draining import connect
from drainer.errors import EXIT_DONE, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.operations.dead import find_letter, look_over
from drainer.operations.redrive import redrive_progress
from drainer.policy.dead_letter_overview import whole_letter_as_json
from drainer.view.dead import show_letter, show_overview
from drainer.view.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at dead letters: sub-messages that a drain gave up on.",
)


@app.command("list")
def list_(
    dead_letter_topic: l.DeadLetterTopic,
    bootstrap_server: o.BootstrapServer = None,
    reason: l.Reasons = None,
    sub_key: l.SubKeys = None,
    error: l.ErrorTexts = None,
    from_topic: l.FromTopics = None,
    from_group: l.FromGroups = None,
    from_handler: l.FromHandlers = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all", envvar="DRAINER_ALL", help="List those too that were redriven already."
        ),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            envvar="DRAINER_LIMIT",
            min=0,
            help="How many letters to list, the newest first. All are counted.",
        ),
    ] = 20,
    group: l.RedriveGroup = None,
    plan: l.RedrivePlan = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Count the outstanding dead letters of a topic, and list the newest.

    Reads the whole topic and touches nothing. Letters stay in it when they were redriven: the
    group of the redrive, and its plan if it is here, say which are outstanding. One that died
    again is another letter.

    Example: `drainer dead list --dead-letter-topic orders.indexer.dead -b localhost:9092`
    """
    terminal = Terminal(json=json, debug=debug)
    with answering(terminal):
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        wanted = l.letter_filter(
            reason=reason,
            sub_key=sub_key,
            error=error,
            from_topic=from_topic,
            from_group=from_group,
            from_handler=from_handler,
        )
        with connect(settings) as cluster:
            redriven = redrive_progress(cluster, dead_letter_topic, group, plan, terminal.warn)
            found = look_over(cluster, dead_letter_topic, wanted, limit, redriven, all_=all_)
        if json:
            known = None if redriven.plan is None else str(redriven.plan)
            terminal.data({**found.as_json(), "group": redriven.group, "plan": known})
        else:
            show_overview(terminal, found, redriven)


@app.command()
def show(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION:OFFSET", help="Where the letter lies, as `dead list` tells it."
        ),
    ],
    dead_letter_topic: l.DeadLetterTopic,
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
