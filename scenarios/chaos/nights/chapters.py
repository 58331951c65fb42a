"""All chapters of a random night, by name."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.chaos.nights.diverted import diverted
from scenarios.chaos.nights.engines import engines
from scenarios.chaos.nights.flaky_service import flaky_service
from scenarios.chaos.nights.registry_away import registry_away
from scenarios.chaos.nights.splits import split_failures
from scenarios.chaos.nights.steered import steered
from scenarios.chaos.nights.to_topic import redrive_to_topic
from scenarios.chaos.nights.window import window
from scenarios.chaos.stage import Report, Stage

NIGHT_CHAPTERS: dict[str, Callable[[Stage], Report]] = {
    "split-failures": split_failures,
    "flaky-service": flaky_service,
    "registry-away": registry_away,
    "window": window,
    "divert": diverted,
    "redrive-to-topic": redrive_to_topic,
    "steered": steered,
    "engines": engines,
}
