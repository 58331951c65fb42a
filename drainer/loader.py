"""Finds a handler by its reference: an entry point, ``package.module:Name`` or ``file.py:Name``."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from drainer.errors import DrainerError, Refused, UsageError
from drainer.handler import Context, Handler
from drainer.message import Message, SubMessage

ENTRY_POINTS = "drainer.handlers"


class LoadedHandler:
    """A handler ready for an engine, whichever form its author gave it."""

    def __init__(self, reference: str, target: Any) -> None:
        self.reference = reference
        self._target = target
        self.handle: Callable[[SubMessage], Any] = target.handle
        self.is_async = inspect.iscoroutinefunction(self.handle)
        split = getattr(target, "split", None)
        default = split is None or getattr(split, "__func__", None) is Handler.split
        # None stands for the default split, which the engine does without calling anything.
        self.split: Callable[[Message], Iterable[SubMessage]] | None = None if default else split

    @property
    def absolute_reference(self) -> str:
        """The reference in a form that holds from any folder: what the plan keeps."""
        place, colon, name = self.reference.rpartition(":")
        if not place.endswith(".py") and not self.reference.endswith(".py"):
            return self.reference
        if self.reference.endswith(".py"):
            return str(Path(self.reference).absolute())
        return f"{Path(place).absolute()}{colon}{name}"

    async def open(self, context: Context) -> None:
        """Raises Refused when the handler's ``open`` does: nothing was handled yet."""
        try:
            await _call(self._target, "open", context)
        except DrainerError:
            raise
        except Exception as error:
            raise Refused(
                f"the handler {self.reference} could not be opened: {describe(error)}",
                hint="its open() raised; nothing was handled or committed",
            ) from error

    async def close(self) -> None:
        await _call(self._target, "close")


def load_handler(reference: str) -> LoadedHandler:
    """Imports the handler that ``reference`` names.

    Raises UsageError when there is none, or it has no ``handle``; Refused when importing it raises.
    """
    place, _, name = reference.rpartition(":")
    if not place:
        place, name = reference, ""
    if place.endswith(".py"):
        module = _import_file(Path(place), reference)
    else:
        if not name:
            for point in entry_points(group=ENTRY_POINTS, name=place):
                target = _guard(reference, point.load)
                return LoadedHandler(reference, _instance(reference, target))
        module = _import_module(place, reference)
    target = _find(module, name, reference) if name else _only_handler(module, reference)
    return LoadedHandler(reference, _instance(reference, target))


def describe(error: BaseException) -> str:
    """An exception in one line: its type and, when it has one, its text."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


async def _call(target: Any, name: str, *args: Any) -> None:
    method = getattr(target, name, None)
    if method is None:
        return
    if inspect.iscoroutinefunction(method):
        await method(*args)
        return
    found = await asyncio.to_thread(method, *args)
    if isinstance(found, Awaitable):
        await found


def _import_file(path: Path, reference: str) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"no such handler file: {path}", hint="--handler path/to/file.py:Name")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that the file can import its neighbours
    sys.modules[name] = module
    _guard(reference, partial(spec.loader.exec_module, module))
    return module


def _import_module(name: str, reference: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        known = ", ".join(sorted(point.name for point in entry_points(group=ENTRY_POINTS)))
        raise UsageError(
            f"no handler {reference!r}: there is no module {name!r}",
            hint=f"use package.module:Name, path/to/file.py:Name, or one of: {known}",
        )
    module: ModuleType = _guard(reference, partial(importlib.import_module, name))
    return module


def _guard(reference: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:
        where = _last_line(error, reference)
        raise Refused(
            f"the handler {reference} could not be imported: {describe(error)}{where}",
            hint="mend the handler; nothing was touched",
        ) from error


def _last_line(error: BaseException, reference: str) -> str:
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None or "importlib" in step.tb_frame.f_code.co_filename:
        return ""
    return f" ({step.tb_frame.f_code.co_filename}:{step.tb_lineno})"


def _find(module: ModuleType, name: str, reference: str) -> Any:
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise UsageError(
                f"no handler {reference!r}: {module.__name__} has no {name!r}",
                hint=f"it has: {', '.join(sorted(_handlers_in(module))) or 'no handler at all'}",
            )
        target = getattr(target, part)
    return target


def _only_handler(module: ModuleType, reference: str) -> Any:
    if callable(getattr(module, "handle", None)):
        return module
    found = _handlers_in(module)
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(
            f"{reference!r} has several handlers: {', '.join(sorted(found))}",
            hint=f"name one of them, as in {reference}:{sorted(found)[0]}",
        )
    raise UsageError(
        f"{reference!r} has no handler: neither a function `handle` nor a drainer.Handler",
        hint="define `async def handle(sub): ...`, or a class derived from drainer.Handler",
    )


def _handlers_in(module: ModuleType) -> dict[str, type[Handler]]:
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, Handler) and found is not Handler
    }


def _instance(reference: str, target: Any) -> Any:
    if isinstance(target, type):
        target = _guard(reference, target)
    handle = getattr(target, "handle", None)
    if not callable(handle) or getattr(handle, "__func__", None) is Handler.handle:
        raise UsageError(
            f"the handler {reference!r} has no `handle`",
            hint="define `async def handle(self, sub)`, or a plain def to run on threads",
        )
    return target
