"""Functions for programs, which do what ``drainer run`` and ``drainer resume`` do.

Errors are those of ``drainer.errors``, with the hint as a note. In the main thread, Ctrl-C or
SIGTERM stops a drain safely, and a second signal stops it at once. In other threads, drainer
installs no signal handlers. If the caller's thread runs an event loop, as in a notebook, the drain
gets a thread of its own, and signals work as before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, SupportsIndex, TypeAlias

from drainer.control.place import ensure_present
from drainer.engine.control import Control, Stop
from drainer.engine.preview import Preview
from drainer.engine.runtime import THIS_PROCESS
from drainer.engine.signals import interrupt, signals_to
from drainer.errors import DrainerError, UsageError, raised_as
from drainer.handler import Handler
from drainer.host.calls import has_running_loop
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import BOOTSTRAP, BootstrapMissing, ClientSettings
from drainer.loading.importing import place_of
from drainer.loading.loader import NO_EXTRAS, LoadedHandler, load_handler
from drainer.model.arguments import in_python
from drainer.model.given import checked
from drainer.model.option import each_once, number
from drainer.model.priority import NO_CLASSES
from drainer.model.resuming import local_class
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.model.status import Status, Summary
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.operations.drain import Callbacks
from drainer.operations.drain import drain as run_drain
from drainer.operations.group import await_inactive
from drainer.operations.hand_over import handed_over
from drainer.operations.repeat import prepare_run
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Prepared, Request
from drainer.store.place import parse_place
from drainer.store.plan_file import plan_at

Client: TypeAlias = Mapping[str, object] | str | Path
Partitions: TypeAlias = Collection[SupportsIndex | str] | str
Expressions: TypeAlias = Collection[str] | str
AnyHandler: TypeAlias = type[Handler] | str
OnPreview: TypeAlias = Callable[[Preview], None]
OnStatus: TypeAlias = Callable[[Status], None]
OnMessage: TypeAlias = Callable[[str], None]
P = ParamSpec("P")

DEFAULTS = LocalSettings()

# Ensures the types of the arguments of a function for programs.
of_types = partial(
    checked,
    handler="Give the class, or a reference such as my_handlers.py:Reindex.",
    client="Give properties of librdkafka, or the file that has them.",
    latency='Give a text, such as "10ms".',
)


def log_message(text: str) -> None:
    """Write a line to the logger ``drainer``.

    If the program has not configured that logger, Python prints its warnings on stderr.
    """
    level = logging.WARNING if text.startswith("warning: ") else logging.INFO
    logging.getLogger("drainer").log(level, "%s", text)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt, even if this thread runs an event loop.

    The handler of ``asyncio.run`` would only cancel the task, which goes on until it awaits
    something.
    """
    with signals_to(interrupt) if has_running_loop() else nullcontext():
        yield


@contextmanager
def noting_hints(**own: str) -> Iterator[None]:
    """Put the hint of an error where a traceback shows it, in terms of these functions.

    ``own`` has the arguments that only the decorated function has, by the labels of their options.
    """
    try:
        yield
    except DrainerError as error:
        error.args = (in_python(str(error), own),)
        if error.hint is not None:
            error.hint = in_python(error.hint, own)
            error.add_note(f"hint: {error.hint}")
        raise


@noting_hints()
@of_types()
@_interruptible()
def drain(
    *,
    topic: str,
    group: str,
    handler: AnyHandler,
    client: Client,
    plan: str | Path | None = None,
    partitions: Partitions = (),
    from_: str = "committed",
    until: str = "end",
    commit: bool = True,
    first: Expressions = (),
    or_resume: bool = False,
    settings: LocalSettings = DEFAULTS,
    failures: FailureSettings = DEFAULT_FAILURES,
    payloads: PayloadSettings = BY_HANDLER,
    on_preview: OnPreview = lambda preview: None,
    on_status: OnStatus = lambda status: None,
    on_message: OnMessage = log_message,
    control: Control | None = None,
) -> Summary:
    """Drain a group's backlog of a topic through a handler, as ``drainer run --yes`` does.

    Args:
        handler: a class, or a reference as ``--handler`` takes it. No command can resume the drain
            of a class that the program itself defines, or that a function of it defines.
        client: properties of librdkafka, ``bootstrap.servers`` among them, or the file with them.
            The plan keeps the file's name, and no property.
        plan: the place of the offset plan, as ``--plan`` takes it; by default the file
            ``TOPIC.GROUP.plan.json`` in the working directory.
        partitions: the partitions to drain, or the text of one; all of them by default.
        from_, until: where the backlog begins and ends, as ``--from`` and ``--until`` take them.
        commit: False drains a range again and leaves the group and its consumers alone.
        first: expressions, or one; sub-messages that match are drained before the rest.
        or_resume: if the plan is there, resume its drain. If that is over, return how it ended, and
            do nothing. A plan of another drain, handler or destination is refused.
        settings: concurrency, memory, the handler's own options, and how to stop.
        failures: retries, what happens to sub-messages that fail, what to skip, and how fast to go.
        payloads: how messages are decoded and split, if the handler does not do that itself.
        on_preview: called with what the drain is going to do, before it touches anything. If it
            raises an exception, the drain does not begin.
        on_status: called twice a second, and at the end of each pass, in the thread that drains. An
            exception in it stops the drain safely, and is raised here. ``print`` will do.
        on_message: called with each warning, a line of text, in the thread that drains: first with
            those of the preview. If it raises an exception then, the drain does not begin. By
            default it writes to the logger ``drainer``, whose warnings Python prints on stderr.
        control: to pause, change or stop the drain from another thread; a new one per drain.

    Returns:
        The summary, even when some sub-messages became dead letters.

    Raises:
        UsageError: a value makes no sense.
        Refused: the drain would not be safe. Nothing was touched.
        DrainerError: the drain ended before all was done. Its ``summary`` has the account, and the
            command to resume; it is None if nothing had begun. Interrupted and Halted are the usual
            ones.
        KeyboardInterrupt: Ctrl-C stopped the drain. Its ``__cause__`` is such an error.
    """
    connection = client_settings(client)
    loaded = handler_of(handler, payloads, connection.extras)
    request = Request(
        *(topic, group, loaded, partitions_of(partitions), from_, until),
        plan_path=None if plan is None else parse_place(str(plan)),
        client_config=config_file(client),
        failures=failures,
        classes=NO_CLASSES.requested(texts_of(first), only=False),
        commits=commit,
    ).configured(settings.options)
    with Cluster.connect(connection) as cluster:
        await_inactive(cluster, group, topic, settings, on_message)
        watch = partial(handed_over, cluster, most_s=settings.hand_over_s, print_line=on_message)
        prepared = prepare_run(cluster, request, settings, or_resume=or_resume, hand_over=watch)
        if isinstance(prepared, Summary):
            return done(prepared)
        return _finish(*(cluster, prepared, settings, control), on_preview, on_status, on_message)


@noting_hints()
@of_types()
@_interruptible()
def resume(
    plan: str | Path,
    *,
    client: Client,
    handler: AnyHandler | None = None,
    settings: LocalSettings = DEFAULTS,
    failures: FailureSettings | None = None,
    accept_gap: bool = False,
    on_preview: OnPreview = lambda preview: None,
    on_status: OnStatus = lambda status: None,
    on_message: OnMessage = log_message,
    control: Control | None = None,
) -> Summary:
    """Resume a drain from its plan, as ``drainer resume --yes`` does.

    Args:
        plan: the place of the offset plan.
        client: as for ``drain``. drainer connects to no brokers that only the plan names, and sends
            no login to a service or a registry that only the plan names.
        handler: as for ``drain``. By default it is the handler that the plan names, whose code then
            runs in this process.
        failures: as for ``drain``; by default the settings in the plan.
        accept_gap: whether to continue although records were deleted before they were handled.
        settings, control, on_preview, on_status, on_message: as for ``drain``.

    Returns and raises the same as ``drain``. Refused is also raised when the plan is damaged, or
    when another drain uses it.
    """
    place, connection = parse_place(str(plan)), client_settings(client)
    ensure_present(place)
    file = plan_at(place, client=lambda: connection)
    file.ensure_free()
    loaded = file.load()
    request = ResumeRequest(failures, client_config=config_file(client), accept_gap=accept_gap)
    terms = loaded.plan.terms
    with Cluster.connect(connection) as cluster:
        await_inactive(cluster, terms.group, terms.topic, settings, on_message)
        prepared = prepare_resume(
            *(cluster, file, loaded, settings, request),
            load=load_handler if handler is None else lambda _, *rest: handler_of(handler, *rest),
        )
        return _finish(*(cluster, prepared, settings, control), on_preview, on_status, on_message)


def _asynchronous(function: Callable[P, Summary]) -> Callable[P, Coroutine[Any, Any, Summary]]:
    # The drain has a thread and an event loop of its own, so a handler that blocks that loop does
    # not block the caller's.
    @wraps(function)
    async def run(*args: P.args, **options: P.kwargs) -> Summary:
        control: Any = options.get("control") or Control()
        options["control"] = control
        work = asyncio.ensure_future(asyncio.to_thread(function, *args, **options))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            control.request(Stop(), THIS_PROCESS.user())
            while not work.done():
                try:
                    await asyncio.wait((work,))
                except asyncio.CancelledError:
                    control.request(Stop(now=True), THIS_PROCESS.user())
            work.exception()  # Python would report an exception that nobody has looked at.
            raise

    run.__name__ = run.__qualname__ = f"{function.__name__}_async"
    run.__doc__ = (
        f"Await ``{function.__name__}``, which runs in a thread of its own.\n\n"
        "Cancelling the task stops the drain safely, and cancelling it again at once."
    )
    return run


drain_async = _asynchronous(drain)
resume_async = _asynchronous(resume)


def texts_of(given: Iterable[object] | str) -> list[str]:
    """Return the texts of what a program gives: several values, or the text of a single one."""
    return [given] if isinstance(given, str) else [*map(str, given)]


def in_terms_of_programs(on_message: OnMessage) -> OnMessage:
    """Make a function that passes messages on with the names of arguments instead of options."""
    return lambda text: on_message(in_python(text))


def partitions_of(given: Partitions) -> tuple[int, ...]:
    """Return the partitions that a program gives. Raises UsageError."""
    with raised_as(UsageError, about="partitions: "):
        found: tuple[int, ...] = each_once(number(0)).parse(texts_of(given))
        return found


def client_settings(client: Client) -> ClientSettings:
    """Return the client settings that a program gives. Raises UsageError."""
    given = client if isinstance(client, Mapping) else {}
    near = get_close_matches(BOOTSTRAP, given, 1)
    meant = f"Did you mean {BOOTSTRAP} by {near[0]}?" if near else f"Give {BOOTSTRAP} in client."
    with raised_as(BootstrapMissing, hint=meant):
        return ClientSettings.load(
            config_file=config_file(client),
            overrides=[f"{name}={text}" for name, text in given.items()],
        )


def config_file(client: Client) -> Path | None:
    """Return the file of the client's properties, or None if the program gives a mapping."""
    return None if isinstance(client, Mapping) else Path(client)


def handler_of(
    handler: AnyHandler,
    payloads: PayloadSettings = BY_HANDLER,
    extras: Mapping[str, str] = NO_EXTRAS,
) -> LoadedHandler:
    """Load the handler that a program names or gives. Raises what ``load_handler`` raises."""
    if isinstance(handler, str):
        return load_handler(handler, payloads, extras)
    name = f"{handler.__module__}:{handler.__qualname__}"
    # A plan and dead letters have the reference that a command in any folder would give.
    place = handler.__module__ if local_class(name) else place_of(handler.__module__)
    return LoadedHandler(name, handler, f"{place}:{handler.__qualname__}", payloads, extras)


def _finish(
    cluster: Cluster,
    prepared: Prepared,
    settings: LocalSettings,
    control: Control | None,
    on_preview: OnPreview,
    on_status: OnStatus,
    on_message: OnMessage,
) -> Summary:
    control, failures = control or Control(), list[BaseException]()

    def show(status: Status) -> None:
        if not failures:
            try:
                on_status(status)
            except BaseException as error:  # It stops the drain safely, and is raised at its end.
                failures.append(error)
                control.request(Stop(reason="on_status failed"), THIS_PROCESS.user())

    tell = in_terms_of_programs(on_message)
    on_preview(prepared.action)
    for warning in prepared.action.warnings:
        tell(f"warning: {warning}")
    callbacks = Callbacks(show, tell)
    summary = run_drain(cluster, prepared, settings, callbacks, control=control)
    for failure in failures:
        raise failure
    return done(summary, interrupted=control.interrupted)


def done(summary: Summary, *, interrupted: bool = False) -> Summary:
    """Return the summary if the drain is done, or raise the error that ended the drain early."""
    cause = summary.cause
    if cause is None:
        return summary
    cause.summary = summary
    # The last lines of a traceback are those that a person reads.
    ended: BaseException = KeyboardInterrupt(str(cause)) if interrupted else cause
    if summary.resume is not None:
        ended.add_note(f"resume: {summary.resume}{summary.resuming.lacking}")
    if ended is cause:
        raise cause
    raise ended from cause
