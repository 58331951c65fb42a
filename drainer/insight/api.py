"""``drainer inspect`` and ``drainer estimate`` as functions for programs."""

from __future__ import annotations

from drainer.api import (
    DEFAULTS,
    AnyHandler,
    Client,
    Expressions,
    OnMessage,
    Partitions,
    client_settings,
    config_file,
    handler_of,
    in_terms_of_programs,
    log_message,
    noting_hints,
    of_types,
    partitions_of,
    texts_of,
)
from drainer.insight.distribution import Distribution
from drainer.insight.estimate import Estimate, Question, make_estimate
from drainer.insight.inspection import SAMPLE_MESSAGES, Inspection, InspectRequest, inspect_backlog
from drainer.insight.measurement import backlog_of
from drainer.kafka.cluster import Cluster
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.operations.start import Request


@noting_hints(skip="skip")
@of_types()
def inspect(
    *,
    topic: str,
    group: str,
    client: Client,
    handler: AnyHandler | None = None,
    partitions: Partitions = (),
    from_: str = "committed",
    until: str = "end",
    messages: int | None = SAMPLE_MESSAGES,
    skip: Expressions = (),
    payloads: PayloadSettings = BY_HANDLER,
) -> Inspection:
    """Read a sample of a backlog, and report how large it is, why, and when records expire.

    Nothing is handled or committed, and the group may be active.

    Args:
        handler: as for ``drainer.drain``. Its ``split`` shows the spread over sub-keys.
        client, partitions, from_, until, payloads: as for ``drainer.drain``.
        messages: how many messages to read, spread evenly over the backlog; None for all.
        skip: expressions, or one, that select sub-messages to skip. They need a handler.

    Raises:
        UsageError: a value makes no sense.
        Refused: the topic or a partition does not exist, or can't be read.
    """
    connection = client_settings(client)
    loaded = None if handler is None else handler_of(handler, payloads, connection.extras)
    request = InspectRequest(
        *(topic, group, loaded, partitions_of(partitions), from_, until, messages),
        skip=tuple(texts_of(skip)),
    )
    with Cluster.connect(connection) as cluster:
        return inspect_backlog(cluster, request)


@noting_hints()
@of_types()
def estimate(
    *,
    topic: str,
    group: str,
    handler: AnyHandler,
    client: Client,
    latency: str,
    partitions: Partitions = (),
    from_: str = "committed",
    until: str = "end",
    settings: LocalSettings = DEFAULTS,
    failures: FailureSettings = DEFAULT_FAILURES,
    payloads: PayloadSettings = BY_HANDLER,
    on_message: OnMessage = log_message,
) -> Estimate:
    """Estimate how long a drain takes, from a sample of the backlog and its cost on this machine.

    Nothing is handled or committed. The call takes a few seconds.

    Args:
        latency: the time of one call of the handler, such as ``10ms`` or ``p50=8ms,p99=120ms``.
        settings: the concurrency and the deadline of the drain, among others.
        on_message: called with a line of text when a step takes a while.
        handler, client, partitions, from_, until, failures, payloads: as for ``drainer.drain``.

    Raises UsageError or Refused as ``drainer.drain`` does.
    """
    connection = client_settings(client)
    loaded = handler_of(handler, payloads, connection.extras)
    request = Request(
        *(topic, group, loaded, partitions_of(partitions), from_, until),
        client_config=config_file(client),
        failures=failures,
    ).configured(settings.options)
    question = Question(Distribution.parse(latency), f"latency={latency!r}", running=settings)
    tell = in_terms_of_programs(on_message)
    with Cluster.connect(connection) as cluster:
        return make_estimate(cluster, backlog_of(cluster, request), request, question, tell)
