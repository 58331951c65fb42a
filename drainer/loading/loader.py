"""Loading of a handler by its reference.

- ``print``: the name of an entry point in the group ``drainer.handlers``
- ``package.module:Name``: a module that can be imported from here
- ``path/to/folder/package.module:Name``: a module that can be imported from another folder
- ``path/to/file.py:Name``: a file

Without ``:Name``, the reference means the only handler in the module, or the module itself if it
has a function ``handle``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from types import ModuleType
from typing import Any

from drainer.core.batches import Batch, Batching, BatchOf, ensure_all_done
from drainer.errors import DrainerError, Refused, UsageError
from drainer.handler import Context, Fatal, Handler
from drainer.host.calls import BlockingCall, blocking_call, ensure_done
from drainer.host.forks import FORKS, end_if_forked
from drainer.loading.extensions import Extension
from drainer.loading.importing import ENTRY_POINTS, digest_of, guarded, import_place, place_and_name
from drainer.message import Message, SubMessage
from drainer.model.listed import listed
from drainer.model.resuming import local_class
from drainer.model.terms import BY_HANDLER, PayloadSettings, Terms, TimeRange
from drainer.policy.redrive import Split, only_in, selects
from drainer.split import decoding
from drainer.split.keys import KeyFinder
from drainer.split.splitting import Elements, Prepare
from drainer.text.mask import describe
from drainer.text.secret import may_hide, remember

NO_EXTRAS: Mapping[str, str] = {}
_HANDLES = ("handle", "handle_batch")
# The methods of a handler that drainer calls. They take what those of ``Handler`` take.
_CALLED = (*_HANDLES, "open", "split", "coalesce", "is_outage", "close", "configure")
_OWN_MODULE = re.compile(r"drainer(\.\w+)+")


@dataclass(eq=False, repr=False)
class LoadedHandler:
    """A handler that is ready for an engine. It is made of a class, an instance or a module.

    Raises UsageError when ``source`` has no ``handle``, and Refused when making an instance raises.

    Attributes:
        reference: what the user typed.
        absolute_reference: the reference in a form that is valid in any working folder, which a
            plan keeps. If it is empty, it is the reference itself.
        extras: the properties of extensions in the client's file.
    """

    reference: str
    source: Any
    absolute_reference: str = ""
    payloads: PayloadSettings = BY_HANDLER
    extras: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.absolute_reference = self.absolute_reference or self.reference
        payloads, extras = self.payloads, self.extras
        # Tasks of Spark do this, too, because their errors may contain these secrets.
        remember(extras)
        self.target = target = _instance(self.reference, self.source)  # It may be a module.
        # None stands for a handler that takes sub-messages one by one.
        self.batching = _batching_of(self.reference, target)
        of_batch: Any = _own(target, "handle_batch")
        handle: Any = getattr(target, "handle", None)
        self.handle: Callable[[SubMessage], Any] = handle
        self.handle_batch: Callable[[Batch], Any] = lambda batch: handle(batch.subs[0])
        if of_batch is not None:
            together = _with_results(of_batch)
            self.handle = lambda sub: together((sub,))
            self.handle_batch = lambda batch: together(tuple(batch.subs))
        self.is_async = _is_async(of_batch or handle)
        # None stands for the default split, which the engine does without calling anything.
        self.split: Callable[[Message], Iterable[SubMessage]] | None = _own(target, "split")
        if payloads.split is not None:
            self.split = Elements(payloads.split)
        self.decoding = load_decoding(payloads, extras)
        if self.decoding is not None:
            self.split = self.decoding.before(self.split)
        # Whether the handler writes each sub-message to Kafka, so that write limits apply.
        self.writes_records = bool(getattr(target, "writes_records", False))
        if payloads.finds_keys:
            finder = KeyFinder(payloads, one_key=self.writes_records)
            self.split = partial(finder.split, self.split or decoding.whole)
        # A thread that may block calls this before ``split``.
        self.prepare: Prepare | None = None if self.decoding is None else self.decoding.prepare
        self.is_outage: Callable[[BaseException], bool | None] | None = _own(target, "is_outage")
        self.whole_messages = bool(getattr(target, "whole_messages", False))
        self.selects: Callable[[SubMessage], bool] | None = None  # None selects all sub-messages.
        if payloads.times is not None:
            self.split = partial(only_in, payloads.times, self.split)
            self.selects = selects
        # A redrive sets these two. ``split_letter`` does the same as ``split``, but leaves
        # ``left_alone`` unchanged: the number of letters that ``split`` left alone, by reason.
        self.split_letter: Split | None = None
        self.left_alone: Counter[str] | None = None

    def within(self, times: TimeRange | None) -> LoadedHandler:
        """Return a handler that gets only records of these times; None stands for all records."""
        if times == self.payloads.times:
            return self
        return self.fresh(replace(self.payloads, times=times))

    @property
    def folds(self) -> bool:
        """Whether one call may take several sub-messages of a lane."""
        return self.batching is not None and self.batching.folds

    def borrowed(self) -> LoadedHandler:
        """Make a handler whose ``open`` and ``close`` do nothing: another drain calls them."""
        handler = copy(self)
        handler.target = None
        return handler

    @cached_property
    def code(self) -> str | None:
        """A digest of the handler's code; None if the code is in no file.

        It covers the modules of its class and base classes, and the files beside them that these
        import. It leaves out Python's own modules, because an upgrade of Python changes them.
        """
        source = self.source
        kind = source if isinstance(source, type) else type(source)
        names = {each.__module__ for each in inspect.getmro(kind)} - {Handler.__module__}
        names = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
        return digest_of([source] if inspect.ismodule(source) else map(sys.modules.get, names))

    def configured(self, options: Mapping[str, str]) -> LoadedHandler:
        """Make the handler that these options call for. Raises UsageError when they are wrong."""
        remember(options, chosen=True)
        # A module's function ``configure`` may be for anything, or come from a library.
        if inspect.ismodule(self.target) or _own(self.target, "configure") is None:
            return self
        try:
            self.target.configure(dict(options))
        except DrainerError:
            raise
        except ValueError as error:
            raise UsageError(
                f"the handler {self.reference}: {describe(error)}", hint="Correct --set NAME=VALUE."
            ) from error
        except (Exception, SystemExit) as error:
            raise Refused(
                f"configure() of the handler {self.reference} failed: {describe(error)}",
                hint="Fix configure(). Nothing was touched.",
            ) from error
        if self.payloads.split is not None and "split" in self.kept_options(options):
            raise UsageError(
                f"--set split= and --split both split messages for {self.reference}",
                hint="Remove one of them.",
            )
        handler = copy(self)
        handler.batching = _batching_of(self.reference, self.target)
        return handler

    def kept_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options that the plan may keep.

        They are those that the handler names, except any that looks like a secret.
        """
        names = getattr(self.target, "plan_options", Handler.plan_options)
        known = {**options, **getattr(self.target, "absolute_options", {})}
        return {
            name: value
            for name, value in known.items()
            if name in names and not may_hide(name, value, chosen=False)
        }

    def check_before_preview(
        self, messages: Callable[[], Iterable[Message]]
    ) -> tuple[list[str], list[str]]:
        """Check a built-in handler and the schema registry; return what passed, and warnings.

        ``messages`` reads some messages, which are decoded. Raises UsageError if something is
        wrong, and Passing if the registry does not answer.
        """
        check = getattr(self.target, "check_before_preview", None)
        checks, warnings = ([], []) if check is None else check(self.extras)
        if self.decoding is None or not self.payloads.of_registry:
            return checks, warnings
        right, wrong = self.decoding.check(messages())
        return [*checks, *right], [*warnings, *wrong]

    def look_at_target(
        self, drained: str, partitions_of: Callable[[str], int], earlier: Mapping[str, str]
    ) -> tuple[list[str], list[str]]:
        """Let a built-in handler look at the topic that it writes to, before the first preview.

        Afterwards ``kept_options`` has what it found. Returns what passed, and warnings.
        ``drained`` is the topic to drain. ``partitions_of`` returns the number of a topic's
        partitions. ``earlier`` has the options of the drain that wrote there before, if there was
        one. Raises UsageError or Refused when the handler can't write to the topic.
        """
        look = getattr(self.target, "look_at_target", None)
        return ([], []) if look is None else look(drained, partitions_of, earlier)

    @property
    def has_open(self) -> bool:
        """Whether the handler has an ``open``, on which its ``split`` may depend."""
        return _own(self.target, "open") is not None

    def fresh(self, payloads: PayloadSettings | None = None) -> LoadedHandler:
        """Make another handler of the same source.

        If the source is a class, the new handler has an instance of its own; otherwise both share
        one. ``payloads`` says how its messages are decoded and split; None means as for this one.
        """
        payloads = self.payloads if payloads is None else payloads
        return LoadedHandler(
            self.reference, self.source, self.absolute_reference, payloads, self.extras
        )

    async def open(self, context: Context, in_thread: BlockingCall = blocking_call) -> None:
        """Call the handler's ``open``. A plain function is called by ``in_thread``.

        Raises Refused when ``open`` raises, because nothing has been handled yet.
        """
        try:
            await _call(in_thread, self.target, "open", context)
        except DrainerError:
            raise
        except Exception as error:
            raise Refused(
                f"open() of the handler {self.reference} failed: {describe(error)}",
                hint="Fix open(), or give what it lacks by --set. Nothing was handled.",
            ) from error

    async def close(self, in_thread: BlockingCall = blocking_call) -> None:
        await _call(in_thread, self.target, "close")


def load_handler(
    reference: str, payloads: PayloadSettings = BY_HANDLER, extras: Mapping[str, str] = NO_EXTRAS
) -> LoadedHandler:
    """Import the handler that ``reference`` names.

    Raises UsageError if there is no such handler or it has no ``handle``, and Refused if importing
    it raises.
    """
    if point := _entry_point(reference):
        source = guarded(reference, point.load)
        return LoadedHandler(reference, source, "", payloads, extras)
    place, name = place_and_name(reference)
    module, absolute = import_place(place, reference)
    source = _find(module, name, reference)
    absolute = f"{absolute}:{name}" if name else absolute
    return LoadedHandler(reference, source, absolute, payloads, extras)


def _entry_point(reference: str) -> EntryPoint | None:
    """Return the entry point of an installed handler; None if none has this name."""
    place, name = place_and_name(reference)
    return None if name else next(iter(entry_points(group=ENTRY_POINTS, name=place)), None)


def foreign_code(terms: Terms) -> Iterator[tuple[str, str]]:
    """Yield the code that the terms name. Each piece comes with the field that names it.

    drainer's own handlers and formats are left out.
    """
    point = _entry_point(terms.handler)
    place, _ = place_and_name(terms.handler if point is None else point.value)
    if not _OWN_MODULE.fullmatch(place) or place.endswith(".py"):
        yield "handler", terms.handler
    elif "split" in terms.options:
        yield "options", f"split={terms.options['split']}"
    for option in ("value_format", "key_format"):
        name = getattr(terms.payloads, option)
        if name is not None and name not in decoding.FORMATS:
            yield option, name


def load_decoding(payloads: PayloadSettings, extras: Mapping[str, str]) -> decoding.Decoding | None:
    """Make the decoders of messages; None if there is nothing to decode.

    Raises UsageError if a decoder can't be found or called.
    """
    formats = payloads.value_format, payloads.key_format
    if not any(formats):
        return None
    made = (
        Extension.PAYLOADS.load().registry_decoder(name, is_key, payloads.registry, extras)
        if name in decoding.OF_REGISTRY
        else decoding.decoder(name, _load_decoder, extras)
        for is_key, name in enumerate(formats)
    )
    return decoding.Decoding(*made)


def _load_decoder(reference: str) -> Any:
    place, name = place_and_name(reference)
    if not name:
        points = entry_points(group=decoding.ENTRY_POINTS)
        if reference in points.names:
            return guarded(reference, points[reference].load)
        raise UsageError(
            f"there is no decoder {reference!r}",
            hint=f"Use {listed([*decoding.FORMATS, *sorted(points.names)])}, or"
            " package.module:decoder.",
        )
    module, _ = import_place(place, reference)
    found = getattr(module, name, None)
    if found is None:
        raise UsageError(f"the module {place} has no decoder {name}", hint="Name a function of it.")
    return found


async def _call(in_thread: BlockingCall, target: Any, name: str, *args: Any) -> None:
    method = getattr(target, name, None)
    if method is None:
        return
    forks = len(FORKS)
    try:
        if _is_async(method):
            await method(*args)
            return
        found = await in_thread(method, *args)
        if isinstance(found, Awaitable):
            await found
    except SystemExit as error:
        raise RuntimeError(f"{name}() ended the process: {describe(error)}") from error
    finally:
        end_if_forked(forks)


def _with_results(of_batch: Callable[[Sequence[SubMessage]], Any]) -> Callable[[Any], Any]:
    """Wrap ``handle_batch`` in a function that raises unless all sub-messages are done."""

    def plainly(subs: Sequence[SubMessage]) -> None:
        _ensure_results(of_batch(subs), len(subs))

    async def on_the_loop(subs: Sequence[SubMessage]) -> None:
        _ensure_results(await of_batch(subs), len(subs))

    return on_the_loop if _is_async(of_batch) else plainly


def _ensure_results(results: Any, count: int) -> None:
    """Raise an error unless ``handle_batch`` has done all ``count`` sub-messages.

    Raises the error of the sub-message if there is only one, and InPart if there are several.
    Raises Fatal if ``results`` is not what ``handle_batch`` may return for them.
    """
    if results is None:
        return
    ensure_done(results)
    if not isinstance(results, list | tuple) or len(results) != count:
        number = f" of {len(results)}" if isinstance(results, list | tuple) else ""
        raise Fatal(
            f"handle_batch returned a {type(results).__name__}{number} for {count} sub-messages:"
            " return None, or a list with None or an exception for each"
        )
    for index, result in enumerate(results):
        if not (result is None or isinstance(result, BaseException)):
            raise Fatal(
                f"handle_batch returned a {type(result).__name__} for sub-message {index}: an entry"
                " must be None or an exception"
            )
    ensure_all_done(results)


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call gives a coroutine, as far as that is known without calling."""
    while isinstance(function, partial):
        function = function.func
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _find(module: ModuleType, name: str, reference: str) -> Any:
    """Find a name in a module.

    If the name is empty, return the module itself if it has ``handle``, or its only handler.
    """
    known = {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, Handler) and found is not Handler
    }
    if not name and any(callable(getattr(module, each, None)) for each in _HANDLES):
        return module
    if not name and len(known) == 1:
        return next(iter(known.values()))
    try:
        return attrgetter(name)(module)
    except AttributeError:
        if local := local_class(reference):
            raise UsageError(
                f"{reference!r} is not in a file that this process can load",
                hint="A program or a notebook defined it. `drainer plan show PLAN` prints the call"
                " that resumes its drain there. For a command, put the class into a file:"
                f" --handler FILE.py:{local}",
            ) from None
        names = ", ".join(sorted(known)) or "neither a drainer.Handler nor a function `handle`"
        raise UsageError(
            f"{reference!r} does not name a handler",
            hint=f"Name one, such as {reference.partition(':')[0]}:Name. The module has {names}.",
        ) from None


def _instance(reference: str, target: Any) -> Any:
    if isinstance(target, type):
        target = guarded(reference, target)
    handle = _own(target, "handle_batch") or _own(target, "handle")
    if not callable(handle):
        raise UsageError(
            f"the handler {reference!r} has neither `handle` nor `handle_batch`",
            hint="Define `async def handle(self, sub)`, or a plain def to run on threads.",
        )
    if inspect.isgeneratorfunction(handle) or inspect.isasyncgenfunction(handle):
        raise UsageError(
            f"the `{handle.__name__}` of {reference!r} is a generator, so its code would never run",
            hint="Remove `yield`: `split` yields sub-messages, `handle` does one and returns.",
        )
    # A module's function ``configure`` may be for anything.
    for name in _CALLED[:-1] if inspect.ismodule(target) else _CALLED:
        if callable(method := _own(target, name)):
            with suppress(ValueError):  # A function of C may have no signature.
                _ensure_takes(reference, method, name, inspect.ismodule(target))
    return target


def _ensure_takes(reference: str, method: Any, name: str, is_function: bool) -> None:
    """Raise UsageError if a method of a handler does not take what drainer calls it with."""
    named = [*inspect.signature(getattr(Handler, name)).parameters]
    takes = inspect.signature(method)
    try:
        takes.bind(*named[1:])
    except TypeError:
        prefix = "async " * _is_async(method)
        raise UsageError(
            f"drainer calls `{name}({', '.join(named[1:])})` of the handler {reference!r}, which"
            f" takes {takes}",
            hint=f"Define it as `{prefix}def {name}({', '.join(named[is_function:])})`.",
        ) from None


def _own(target: Any, name: str) -> Any:
    """Return an attribute of an instance or a module; None if it is the default of ``Handler``."""
    found = getattr(target, name, None)
    default = getattr(Handler, name, None)
    return None if getattr(found, "__func__", None) is default else found


def _batching_of(reference: str, target: Any) -> Batching | None:
    """Return the settings for sub-messages in one call; None if the handler takes them one by one.

    Raises UsageError if the settings of the handler make no sense.
    """
    coalesce, batch = _own(target, "coalesce"), _own(target, "handle_batch")
    if coalesce is None and batch is None:
        return None
    if batch is None:
        return Batching(coalesce)
    most = getattr(target, "max_batch", Handler.max_batch)
    of = getattr(target, "batch_of", Handler.batch_of)
    try:
        if type(most) is not int or most < 1:
            raise ValueError
        return Batching(coalesce, most, BatchOf(of))
    except ValueError:
        raise UsageError(
            f"{reference!r} has max_batch = {most!r}, batch_of = {of!r}",
            hint="Set max_batch to 1 or more. Set batch_of to 'lanes' (many sub-keys per call) or"
            " 'lane' (one sub-key per call).",
        ) from None
