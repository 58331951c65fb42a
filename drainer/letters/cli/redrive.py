"""The command ``drainer redrive``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from drainer.cli.command import changing, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.draining import preview_and_drain
from drainer.cli.engines import EngineOptions
from drainer.cli.metrics import OversightOptions
from drainer.cli.options import DryRun, Limits, PayloadOptions, PriorityOptions
from drainer.letters.cli.options import DestinationOptions, LetterTopicOptions, RedriveOptions
from drainer.letters.redrive import default_group, prepare_redrive
from drainer.model.option import Option, number
from drainer.model.settings import (
    BESIDE_OTHERS,
    DEFAULT_FAILURES,
    FailureSettings,
    LocalSettings,
    OnFailure,
)
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.operations.start import Request
from drainer.view.terminal import Terminal

DEAD_AGAIN = replace(DEFAULT_FAILURES, on_failure=OnFailure.DEAD_LETTER)


@changing
def redrive(
    context: typer.Context,
    where: LetterTopicOptions,
    destination: DestinationOptions,
    payload: PayloadOptions,
    priority: PriorityOptions,
    kafka: ConnectionOptions,
    letters: LetterFilter,
    mixed: Annotated[
        bool, Option("Allow letters of several topics, groups or handlers.", False, envvar=None)
    ],
    max_redrives: Annotated[
        int, Option("Leave alone the letters that were redriven this many times.", 3, number(1))
    ],
    accept_repeats: Annotated[
        bool,
        Option(
            "Redrive even though an earlier redrive was killed, and may repeat letters.",
            False,
            envvar=None,
        ),
    ],
    redrives: RedriveOptions,
    dry_run: DryRun,
    running: Annotated[LocalSettings, without("deadline", *BESIDE_OTHERS)],
    failures: Annotated[FailureSettings, DEAD_AGAIN, without("dead_letter_topic")],
    engines: EngineOptions,
    limits: Limits,
    oversight: Annotated[OversightOptions, without("on_late", "accept_dead_letters")],
    terminal: Terminal,
) -> int:
    """Run dead letters through a handler again, in lane order.

    A redrive is a drain of the dead-letter topic, with its own plan. It can be resumed. The handler
    gets each sub-message unchanged, with its old id. A letter that another tool wrote goes through
    split again. Letters that the filters leave out stay for another redrive, on any machine. Records
    that are no letters are skipped. If a letter fails again, drainer writes a new one, up to
    --max-redrives times. Without --mixed, drainer refuses letters of several topics, groups or
    handlers. --to source appends whole messages to the topic that they came from, for all its
    groups.

    Examples:

    - `drainer redrive --dead-letter-topic orders.indexer.dead --handler my_handlers.py:Reindex -b localhost:9092`
    - `drainer redrive --dead-letter-topic orders.indexer.dead --handler my_handlers.py:Reindex -b localhost:9092 --error timeout --yes`
    - `drainer redrive --dead-letter-topic orders.DLT --to source --rate 100/s --parking-topic orders.parked -b localhost:9092 --yes`
    """  # noqa: E501 - an example has to be on one line to be copied
    with oversight.serving(terminal) as metrics:
        engines.ensure_used(context)
        spark = engines.spark(redrives.plan)
        settings = kafka.settings()
        destination.ensure_copies(payload.settings)
        request = Request(
            topic=where.dead_letter_topic,
            group=redrives.group or default_group(where.dead_letter_topic),
            handler=payload.load(destination.reference, settings.extras),
            plan_path=redrives.plan,
            client_config=kafka.client_config,
            failures=failures,
            limits=limits,
            classes=priority.over(),
        ).configured(running.options)
        meant = RedriveSettings(letters, max_redrives, where.headers or {}, destination.topic)
        with connect(settings) as cluster:
            prepared = prepare_redrive(
                *(cluster, request, meant, running),
                mixed=mixed,
                accept_repeats=accept_repeats,
                parking=destination.parking_topic,
            )
            prepared = engines.resolve(prepared, spark)
            return preview_and_drain(
                *(context, terminal, cluster, prepared, running, metrics, oversight),
                dry_run=dry_run,
            )
