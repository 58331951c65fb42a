"""``drainer redrive``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from drainer.cli.connecting import Kafka, connect
from drainer.cli.draining import preview_and_drain, settle_cap
from drainer.cli.engines import Engines
from drainer.cli.groups import changing, defaults, option, without
from drainer.cli.hooks import Oversight
from drainer.cli.options import NEW_DRAIN, DryRun, Failing, First, HandlerOption, How, Limits, Rules
from drainer.letters.cli.options import Letters, LetterTopic, Redrives
from drainer.letters.redrive import default_group, prepare_redrive
from drainer.loader import load_handler
from drainer.model.classes import PriorityClasses
from drainer.model.failures import OnFailure
from drainer.model.redrive import RedriveSettings
from drainer.operations.start import Request
from drainer.view.terminal import Terminal

DEAD_AGAIN = replace(NEW_DRAIN, on_failure=OnFailure.DEAD_LETTER)


@changing
def redrive(
    context: typer.Context,
    where: LetterTopic,
    handler: HandlerOption,
    first: First,
    kafka: Kafka,
    letters: Letters,
    mixed: Annotated[
        bool,
        option(
            default=False, envvar=None, help="Allow letters of several topics, groups or handlers."
        ),
    ],
    max_redrives: Annotated[
        int, option(default=3, min=1, help="Leave letters that were redriven this many times.")
    ],
    accept_repeats: Annotated[
        bool,
        option(
            default=False, envvar=None, help="Go ahead though an earlier redrive has not ended."
        ),
    ],
    redrives: Redrives,
    dry_run: DryRun,
    how: Annotated[How, without("plan")],
    failing: Annotated[Failing, without("dead_letter_topic"), defaults(on_failure="dead-letter")],
    rules: Rules,
    engines: Engines,
    limits: Limits,
    oversight: Annotated[Oversight, without("on_late")],
    terminal: Terminal,
) -> int:
    """Run dead letters through a handler again, in lane order.

    A redrive is a drain of the dead-letter topic, with its own plan. It can be resumed. The
    handler gets each sub-message unchanged, with its old id. Letters that the filters leave out
    stay for another redrive, anywhere. Other records are skipped. If a letter fails again,
    drainer writes a new one, until --max-redrives. Without --mixed, drainer refuses letters of
    several topics, groups or handlers.

    Examples:

    - `drainer redrive --dead-letter-topic orders.indexer.dead --handler my_handlers.py:Reindex -b localhost:9092`
    - `drainer redrive --dead-letter-topic orders.indexer.dead --handler my_handlers.py:Reindex -b localhost:9092 --error timeout --yes`
    """  # noqa: E501 - an example has to be on one line to be copied
    with oversight.serving(terminal) as metrics:
        running = how.settings(reason=oversight.reason)
        spark = engines.spark(redrives.plan)
        settings = kafka.settings()
        request = Request(
            topic=where.dead_letter_topic,
            group=redrives.group or default_group(where.dead_letter_topic),
            handler=load_handler(handler),
            plan_path=redrives.plan,
            client_config=kafka.client_config,
            failures=failing.over(DEAD_AGAIN),
            rules=rules.over(),
            classes=first.over() or PriorityClasses(),
        )
        meant = RedriveSettings(letters.filter(), max_redrives)
        with connect(settings) as cluster:
            prepared = prepare_redrive(
                *(cluster, request, meant, running), mixed=mixed, accept_repeats=accept_repeats
            )
            prepared = settle_cap(cluster, prepared, limits)
            prepared = engines.settle(prepared, spark)
            return preview_and_drain(
                *(context, terminal, cluster, prepared, running, metrics, oversight),
                dry_run=dry_run,
            )
