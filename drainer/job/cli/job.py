"""``drainer job``."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from drainer import __version__
from drainer.cli.command import command, only
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.declared import declared_by, typed_words
from drainer.cli.draining import request_of
from drainer.cli.metrics import OversightOptions
from drainer.cli.options import PLAN, DrainOptions, Latency, Limits
from drainer.errors import Refused, UsageError
from drainer.insight.bounds import CPU
from drainer.insight.cli.estimate import question_of
from drainer.insight.estimate import Question, make_estimate
from drainer.insight.measurement import backlog_of
from drainer.job.manifest import CLIENT, HANDLERS, PORT, Job, code_of, job_name, parse_name
from drainer.loading.importing import place_and_name
from drainer.model.option import Concurrency, Option, ValueType, option
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.operations.start import Request
from drainer.store.objects import check_uri
from drainer.store.place import STORES, PlanPlace, is_in_topic
from drainer.view.terminal import Terminal

BUILT_IN = ("print", "count", "produce", "http")
MEMORY_LEAST = 512 * 1024 * 1024
CALL_BYTES = 64 * 1024  # an assumption for a call in flight
# Options that the pod's command has in another form, or not at all.
_OTHERWISE = ("plan", "latency", "image", "name", "deadline", "client_config", "output", "tune")
_IS_A_FILE = re.compile(r"\.location$|\.keytab$")
_LOCAL = re.compile(r"(^|,)\s*(localhost|127\.|\[::1\])")
NAME = ValueType("NAME", parse_name)
_of_job = partial(option, panel="Job")
_PLAN = Option(
    "Offset plan, which has to outlive the node: kafka://TOPIC, s3://, gs://, az:// or a file.",
    "kafka://drainer-plans",
    PLAN,
    panel="Drain",
)


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of the Job itself."""

    image: str = _of_job(
        "Image that deploy/Containerfile builds.",
        f"drainer:{__version__.replace('+', '-')}",  # A tag of an image has no plus.
        unset="drainer:VERSION",
    )
    name: str | None = _of_job("Name of the Job.", None, NAME, unset="drain-TOPIC-GROUP")


@command
def job(
    context: typer.Context,
    what: DrainOptions,
    kafka: ConnectionOptions,
    plan: Annotated[PlanPlace, _PLAN],
    running: LocalSettings,
    failures: Annotated[FailureSettings, DEFAULT_FAILURES],
    latency: Latency,
    limits: Limits,
    oversight: Annotated[OversightOptions, only("accept_dead_letters")],
    of_job: JobOptions,
    terminal: Terminal,
) -> None:
    """Print the manifests of a Kubernetes Job that runs `drainer run` with these options.

    The Job goes on where it was after a pod or a node was lost. The handler's file becomes a
    ConfigMap. The client's file has secrets, so drainer prints the command that makes a Secret of
    it, and never its content. With --latency, drainer estimates how much processor the drain takes.
    Otherwise it connects to nothing.

    Examples:

    - `drainer job --topic orders --group indexer --handler my_handlers.py:Reindex -b kafka:9092`
    - `drainer job --topic orders --group indexer --handler my_handlers.py:Reindex --client-config client.properties --latency 10ms --tune grace=1m`
    """  # noqa: E501 - an example has to be on one line to be copied
    if isinstance(plan, str) and not is_in_topic(plan):
        check_uri(plan, STORES)  # It must not contain credentials, as for run.
    client, name = kafka.settings(), of_job.name or job_name(what.topic, what.group)
    described = f"{what.topic} for group {what.group}"
    made = Job(name, of_job.image, described, running.grace_s, kafka.client_config)
    kept = [each for each in declared_by(context.command).values() if each.field not in _OTHERWISE]
    words = typed_words(context, kept, lambda each, text: _in_pod(each, text, made))
    made.args += ["run", *words, "--plan", str(plan), "--or-resume", "--yes"]
    if running.deadline is not None:  # A time or a duration would mean something else there.
        made.args += ["--deadline", running.deadline.isoformat(timespec="seconds")]
    if kafka.client_config is not None:
        made.args += ["--client-config", f"{CLIENT}/{kafka.client_config.name}"]
    made.args += ["-o", "json", "--tune", "log-format=json", "--metrics", f"0.0.0.0:{PORT}"]
    if not (made.code or what.handler in BUILT_IN):
        made.notes.append(f"The image must have the handler {what.handler}.")
    if isinstance(plan, Path):
        made.notes.append(f"Mount a volume that all nodes share where {plan} is to be.")
    if _LOCAL.search(client.bootstrap_servers):
        made.notes.append(f"In a pod, {client.bootstrap_servers} is the pod itself: name others.")
    for each, text in client.properties.items():
        if _IS_A_FILE.search(each):
            add = f"add it to the Secret, and name it by its path in {CLIENT}"
            made.notes.append(f"The pod needs {text} of {each}: {add}.")
    cores, why = 1.0, "One core is the most that a drain takes; --latency 10ms estimates it."
    if latency is not None:
        given = client.extras, kafka, failures, limits, running.options
        request, question = request_of(what, *given), question_of(latency, running)
        cores, why = _estimated(terminal, kafka, request, question)
    calls = Concurrency.of(running.concurrency).most_for(threads=True)
    # The default buffer is a quarter of the memory.
    memory = max(MEMORY_LEAST, 4 * running.buffer_bytes + calls * CALL_BYTES)
    printed = made.manifests(cores, memory, f"{why} Memory is by --tune buffer and --concurrency.")
    terminal.data({"manifests": printed})
    if not terminal.json:
        typer.echo(printed, nl=False)


def _estimated(
    terminal: Terminal, kafka: ConnectionOptions, request: Request, question: Question
) -> tuple[float, str]:
    """Return how many cores the drain will take, and where the number comes from."""
    try:
        with connect(kafka.settings()) as cluster:
            backlog = backlog_of(cluster, request)
            found = make_estimate(cluster, backlog, request, question, terminal.print_line)
    except Refused as error:
        terminal.warn(f"no estimate: {error}")
        return 1.0, "One core is a guess, because no estimate could be made."
    share = found.requested.bounds.get(CPU, 0.0) / (found.seconds or 1.0)
    return share, f"The drain is estimated to take {share:.0%} of a core ({question.source})."


def _in_pod(given: Option, text: str, made: Job) -> str:
    """Return the text of a value for the pod, and add the file of code or limits that it names.

    Raises UsageError for a value that would put a secret into the manifest.
    """
    if (safe := given.without_secret(text)) != text:
        raise UsageError(
            f"{given.word} {safe} would put a secret into the manifest",
            hint="Put it into the client's file, or let the handler read it in the pod.",
        )
    before, equals, value = text.partition("=") if given.pairs else ("", "", text)
    place, name = place_and_name(value)
    with suppress(OSError):  # The text may be too long for the name of a file.
        if place.endswith(".py") and Path(place).is_file():
            made.add(code_of(Path(place)))
            return f"{before}{equals}{HANDLERS}/{Path(place).name}{':' if name else ''}{name}"
        if given.field == "limits" and Path(text).is_file():
            made.add({Path(text).name: Path(text).read_text("utf-8")})
            return f"{HANDLERS}/{Path(text).name}"
    return text
