"""``drainer certify``."""

from __future__ import annotations

from typing import Annotated

import typer

from drainer.certify.operation import Trying, certify_on, sample_of, state_function
from drainer.certify.view import STAGES, show_certificate, show_sample
from drainer.cli import options as o
from drainer.cli.answer import answering, insist_on_yes
from drainer.cli.draining import connect
from drainer.cli.values import parse_pairs
from drainer.kafka.settings import ClientSettings
from drainer.loader import load_handler
from drainer.view.terminal import Terminal


def certify(
    handler: o.HandlerArgument,
    topic: o.Topic,
    bootstrap_server: o.BootstrapServer = None,
    partition: o.Partitions = None,
    sample: Annotated[
        int, typer.Option("--sample", envvar="DRAINER_SAMPLE", min=1, help="Messages to try it on.")
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", envvar="DRAINER_SEED", help="Another one, other messages.")
    ] = 0,
    handle: Annotated[
        bool,
        typer.Option(
            "--handle",
            help="Call handle too, many times over, and compare what the handler's method `state`"
            " gives. Its effects are real: let open() connect to something that may be written to.",
        ),
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="REFERENCE",
            help="Like --handle, with a function for the state: package.module:function or"
            " path/to/file.py:function. It gets the handler.",
        ),
    ] = None,
    set_: o.Set = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Check on a sample of a topic that a handler keeps what it promises.

    That split is deterministic, in other processes too, and its sub-keys and payloads can be relied
    on; with --handle or --state also that different sub-keys commute, and that sub-messages may be
    handled again. No group is touched. Exits with 5 when the handler breaks a law.

    Examples:

    - `drainer certify my_handlers.py:Reindex --topic orders -b localhost:9092`
    - `drainer certify my_handlers.py:OnAFake --topic orders -b localhost:9092 --handle --yes`
    """
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        loaded = load_handler(handler)
        trying = Trying(
            topic=topic,
            handler=loaded,
            partitions=tuple(sorted(set(partition or ()))),
            messages=sample,
            seed=seed,
            state=state_function(loaded, state, handle=handle),
            options=parse_pairs(set_ or (), "--set"),
        )
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        with connect(settings) as cluster:
            taken = sample_of(cluster, trying)
        show_sample(
            terminal,
            loaded.reference,
            topic,
            messages=len(taken.messages),
            offsets=taken.offsets,
            partitions=len(taken.ranges),
            seed=seed,
        )
        if trying.state is not None:
            terminal.warn(
                "handle will be called for real with the sub-messages of these messages, thousands"
                " of times: it must not reach anything that matters"
            )
            insist_on_yes(terminal, f"Call the handle of {loaded.reference}?", yes=yes)
        certified = certify_on(trying, taken, lambda stage: terminal.say(STAGES[stage]))
        show_certificate(terminal, certified.certificate)
        if json:
            terminal.data(certified.as_json())
        raise typer.Exit(certified.exit_code)
