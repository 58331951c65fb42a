"""``drainer estimate``."""

from __future__ import annotations

from typing import Annotated

import typer

from drainer.cli.connecting import Kafka, connect
from drainer.cli.groups import command, only, option, without
from drainer.cli.options import Failing, How, HowLong, Limits, Report, Rules, What, Yes, request_of
from drainer.errors import UsageError
from drainer.insight.cli.estimating import (
    ask,
    estimate_and_show,
    head_of,
    send_canary_and_estimate,
)
from drainer.insight.measurement import backlog_of
from drainer.view.terminal import Terminal


@command
def estimate(
    context: typer.Context,
    what: What,
    kafka: Kafka,
    how_long: HowLong,
    canary: Annotated[
        int | None,
        option(
            default=None,
            panel="How long it will take",
            metavar="N",
            min=1,
            help="Handle the first N messages for real, and measure.",
        ),
    ],
    how: Annotated[How, without("plan_interval_s", "grace_s")],
    failing: Annotated[Failing, only("rate")],
    rules: Rules,
    limits: Limits,
    report: Report,
    yes: Yes,
    terminal: Terminal,
) -> int | None:
    """Say how long a drain will take, and what binds, before it is begun.

    Reads a sample of the backlog, splits it, and runs the real lanes on it on a virtual clock; for
    other orders and concurrencies, too. Nothing is handled and no group is touched, unless --canary
    is asked for.

    Examples:

    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency 10ms`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency p50=8ms,p99=120ms -c 500 --deadline 08:00`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --canary 1000`
    """  # noqa: E501 - an example has to be on one line to be copied
    question = ask(how_long, how.settings())
    if question.latency is None and canary is None:
        raise UsageError(
            "how long does the handler take for one sub-message?",
            hint="say --latency 10ms (or p50=8ms,p99=120ms), --latency-from PLAN of an earlier"
            " drain, or --canary 1000 to find out with the first 1,000 messages",
        )
    if question.latency is not None and canary is not None:
        raise UsageError(
            "--canary measures the latency that --latency or --latency-from give",
            hint="say one of them",
        )
    settings = kafka.settings()
    request = request_of(what, how, kafka, failing, rules, limits)
    with connect(settings) as cluster:
        if canary is not None:
            return send_canary_and_estimate(
                context, terminal, cluster, request, question, canary, report, yes=yes
            )
        backlog = backlog_of(cluster, request)
        found = estimate_and_show(terminal, cluster, backlog, request, question, report)
    if terminal.json:
        terminal.data({**head_of(request), "estimate": found.as_json()})
    return None
