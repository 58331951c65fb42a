"""``drainer probe``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from drainer.cli.command import command, only
from drainer.cli.connecting import ConnectionOptions
from drainer.cli.options import BacklogOptions, PayloadOptions
from drainer.errors import EXIT_DONE, EXIT_FOUND
from drainer.loading.extensions import ensure_installed
from drainer.model.codec import builtins
from drainer.model.finding import Finding, Level
from drainer.model.listed import counted
from drainer.model.option import as_field, options_of
from drainer.model.settings import LocalSettings
from drainer.policy.dead_letter import default_dead_letter_topic
from drainer.probe.network import Job
from drainer.probe.probe import probe
from drainer.view.findings import findings_page
from drainer.view.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The drain to come. All of these options may be left out."""

    topic: str | None = as_field(replace(options_of(BacklogOptions)["topic"], default=None))
    group: str | None = as_field(replace(options_of(BacklogOptions)["group"], default=None))
    handler: str | None = as_field(replace(options_of(BacklogOptions)["handler"], default=None))


@command
def probe_(
    what: ProbeOptions,
    payload: PayloadOptions,
    kafka: ConnectionOptions,
    running: Annotated[LocalSettings, only("options")],
    terminal: Terminal,
) -> int:
    """Check that the brokers can be reached, and that this user has the rights to drain.

    drainer probes each bootstrap server and each address that brokers advertise: name, TCP, TLS,
    and login. With a topic and a group, it also probes the rights of each command and the group.
    It joins no group, and creates and produces nothing. If a check fails, the exit code is 7.

    Examples:

    - `drainer probe --client-config client.properties`
    - `drainer probe --topic orders --group indexer --client-config client.properties -o json`
    """
    settings, options = kafka.settings(), running.options or {}
    jobs: dict[tuple[str, str], Job] = {}
    if what.handler is not None:
        job = partial(_handler, what.handler, payload, settings.extras, options)
        jobs["handler", what.handler] = job
    if payload.registry or "schema.registry.url" in settings.extras:
        job = partial(_registry, payload.registry, settings.extras)
        jobs["registry", payload.registry or ""] = job
    written = options.get("topic") if what.handler == "produce" else None
    names = {"TOPIC": what.topic, "GROUP": what.group, "TO": written}
    if what.topic and what.group:
        names["DEAD"] = default_dead_letter_topic(what.topic, what.group)
    findings = probe(settings, {word: name for word, name in names.items() if name}, jobs)
    bad = any(each.level is Level.BAD for each in findings)
    code = EXIT_FOUND if bad else EXIT_DONE
    status = "failed" if bad else "passed"
    page = findings_page(findings, "probed", labels=True)
    terminal.answer({"status": status, "exit_code": code, "findings": builtins(findings)}, page)
    return code


def _handler(
    reference: str, payload: PayloadOptions, extras: Mapping[str, str], options: Mapping[str, str]
) -> Iterator[Finding]:
    loaded = payload.load(reference, extras).configured(options)
    yield Finding("handler", Level.OK, f"{loaded.reference} loads")
    checks, warnings = loaded.check_before_preview(list)
    yield from (Finding("handler", Level.OK, text) for text in checks)
    yield from (Finding("handler", Level.WARN, text) for text in warnings)


def _registry(url: str | None, extras: Mapping[str, str]) -> Iterator[Finding]:
    ensure_installed("registry", "a schema registry")
    from drainer.payloads.registry import registry  # noqa: PLC0415 - an extra

    found = registry(url, extras)
    text = f"{found.url} has {counted(len(found.subjects()), 'subject')}"
    yield Finding("registry", Level.OK, text)
