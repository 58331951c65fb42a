"""``drainer inspect``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from drainer.cli.command import command, only
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.options import (
    BacklogOptions,
    Limits,
    PayloadOptions,
    RecordOptions,
)
from drainer.insight.inspection import (
    SAMPLE_MESSAGES,
    SAMPLE_MOST,
    InspectRequest,
    inspect_backlog,
)
from drainer.insight.view.inspect import inspection_page
from drainer.loading.loader import LoadedHandler
from drainer.model.codec import builtins
from drainer.model.option import as_field, number, option, options_of
from drainer.model.settings import FailureSettings
from drainer.view import caps, figures
from drainer.view.live import RunningLine
from drainer.view.page import section
from drainer.view.terminal import Terminal

READING_S = 2.0  # The time between two lines of progress where nothing can be redrawn.

_backlog = partial(option, panel="Backlog")


@dataclass(frozen=True, kw_only=True)
class InspectedOptions(RecordOptions):
    """The backlog that is inspected."""

    group: str = _backlog(
        "Consumer group of the backlog; it may be active.",
        basic=True,
        metavar="NAME",
        proposes="group",
    )
    handler: str | None = _backlog(
        "Split with this handler to show the spread; handles nothing.",
        None,
        basic=True,
        metavar="REFERENCE",
        proposes="handler",
    )
    from_: str = as_field(options_of(BacklogOptions)["from_"])
    until: str = as_field(options_of(BacklogOptions)["until"])
    no_commit: bool = as_field(options_of(BacklogOptions)["no_commit"])


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options for how much is read."""

    sample: int = option(
        "Messages to read, spread evenly over the backlog.",
        SAMPLE_MESSAGES,
        number(1, SAMPLE_MOST),
        basic=True,
    )
    full: bool = option(
        "Read the whole backlog instead of a sample. Ctrl-C ends it.", False, basic=True
    )
    seed: int = option("Seed that selects the places to read.", 0)


@command
def inspect(
    what: InspectedOptions,
    payload: PayloadOptions,
    kafka: ConnectionOptions,
    reading: ReadingOptions,
    failures: Annotated[FailureSettings, only("skip")],
    limits: Limits,
    terminal: Terminal,
) -> None:
    """Show how large a backlog is, why, and when records expire.

    This only reads: drainer handles and commits nothing, and the group may be active. If you name a
    handler, drainer calls its split and nothing else. It then shows the spread over sub-keys, a hot
    sub-key, and what --skip would skip.

    Examples:

    - `drainer inspect --topic orders --group indexer -b localhost:9092`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --full`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --skip "payload.kind == 'set_email'"`
    """  # noqa: E501 - an example has to be on one line to be copied
    settings = kafka.settings()
    request = InspectRequest(
        topic=what.topic,
        group=what.group,
        handler=_handler(what.handler, payload, settings.extras),
        partitions=what.partitions,
        from_=what.from_,
        until=what.until,
        commits=not what.no_commit,
        messages=None if reading.full else reading.sample,
        seed=reading.seed,
        skip=failures.skip,
    )
    with connect(settings) as cluster, RunningLine(terminal, READING_S) as line:

        def show(read: int, of: int) -> None:
            line.draw(f"reading: {figures.count(read)} of {figures.counted(of, 'offset')}")

        found = inspect_backlog(cluster, request, show)
    page, capped = inspection_page(found, failures.skip), {}
    if limits is not None and found.messages and found.bytes:
        cap = limits.cap(found.bytes / found.messages)
        capped = {"cap": builtins(cap)}
        of_limits = section("Broker limits", caps.fields_before(cap, found.messages))
        page = replace(page, sections=(*page.sections, of_limits))
    terminal.data({**found.as_json(), **capped})
    terminal.present(page)


def _handler(
    reference: str | None, payload: PayloadOptions, extras: Mapping[str, str]
) -> LoadedHandler | None:
    if reference is None and payload != PayloadOptions():
        reference = "count"  # This handler has the default split.
    return payload.load(reference, extras) if reference else None
