"""Modules of handlers: how a reference's place is imported, and the code that is in them.

The folder that one is found in comes last on ``sys.path``: what lies beside a handler takes no
library's place, drainer's own among them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, cast

from drainer.errors import Refused, UsageError
from drainer.mask import describe
from drainer.splitting import NOT_OF_HANDLERS

ENTRY_POINTS = "drainer.handlers"
OWN_NAME = "drainer_handler_"  # begins the name of a module whose own name is taken


def place_and_name(reference: str) -> tuple[str, str]:
    """Part a reference at its colon; the name is empty if there is none."""
    place, _, name = reference.rpartition(":")
    if not place or "/" in name:  # the colon was in a folder's name
        return reference, ""
    return place, name


def import_place(place: str, reference: str) -> tuple[ModuleType, str]:
    """Import the module at a place; that place too, in a form that holds from any folder.

    Raises UsageError when there is none, Refused when importing it raises.
    """
    if place.endswith(".py"):
        return _import_file(Path(place), reference), str(Path(place).absolute())
    folder, name = Path(place).parent.absolute(), Path(place).name
    module = _import_module(folder, name, reference)
    if _lies_in(folder, name):
        return module, str(folder / name)
    if "/" in place:  # one of the same name elsewhere is not the requested one
        raise _no_module(reference, name, f"in {folder}, or an installed one hides it")
    return module, place


def _import_file(path: Path, reference: str) -> ModuleType:
    if not os.access(path, os.R_OK):
        near: list[str] = []
        with suppress(OSError):
            near = get_close_matches(path.name, [each.name for each in path.parent.glob("*.py")], 1)
        raise UsageError(
            f"the handler file {path} does not exist, or you can't read it",
            hint=f"Did you mean {path.with_name(near[0])}?"
            if near
            else "Name one with --handler path/to/file.py:Name.",
        )
    path = path.absolute()
    # A library of the same name stays what it is, for all that import it now or later.
    name = OWN_NAME + path.stem if _is_taken(path.stem, path) else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - it ends in .py
    module = importlib.util.module_from_spec(spec)
    _search(path.resolve().parent)  # so that the file can import its neighbours
    sys.modules[name] = module
    guarded(reference, partial(spec.loader.exec_module, module))
    return module


def _is_taken(name: str, path: Path) -> bool:
    """Whether an import of this name gives something else than the file."""
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None)
    else:
        spec = None if "." in name else importlib.util.find_spec(name)
        if spec is None:
            return False
        origin = spec.origin
    return origin is None or Path(origin).resolve() != path.resolve()


def _import_module(folder: Path, name: str, reference: str) -> ModuleType:
    _search(folder)
    module = guarded(reference, partial(_module, name)) if all(name.split(".")) else None
    if module is None:
        raise _no_module(reference, name, f"installed or in {folder}")
    return cast(ModuleType, module)


def _module(name: str) -> ModuleType | None:
    """Import a module, None if there is none; raises what it and its packages raise."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Is it this module, or a package around it? Or something that one of them needs?
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _lies_in(folder: Path, name: str) -> bool:
    """Whether an imported module, or the package around it, was found in this very folder."""
    top = sys.modules[name.partition(".")[0]]
    places = getattr(top, "__path__", None) or [getattr(top, "__file__", None)]
    return any(place and Path(place).resolve().parent == folder.resolve() for place in places)


def _no_module(reference: str, name: str, where: str) -> UsageError:
    points = sorted(point.name for point in entry_points(group=ENTRY_POINTS))
    known, near = ", ".join(points), get_close_matches(reference, points, 1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return UsageError(
        f"no handler {reference!r}: there is no module {name!r} {where}",
        hint=f"{meant}Use package.module:Name, path/to/file.py:Name, or one of: {known}.",
    )


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def guarded(reference: str, load: Callable[[], Any]) -> Any:
    """Call what runs a handler's own code. Raises Refused, with where it failed."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        *_, (frame, line) = walk_tb(error.__traceback__)
        file = frame.f_code.co_filename
        where = "" if "importlib" in file else f" ({file}:{line})"
        raise Refused(
            f"can't import the handler {reference}: {describe(error)}{where}",
            hint="Fix the handler. Nothing was touched.",
        ) from error


def digest_of(modules: Iterable[ModuleType | None]) -> str | None:
    """A digest of the files of modules, and of all beside them that these import; None without
    any."""
    files: dict[Path, bytes] = {}
    for module in modules:
        if file := getattr(module, "__file__", None):
            parts = cast(ModuleType, module).__name__.split(".")
            above = Path(file).parents[len(parts) - (Path(file).stem != "__init__")]
            _add_source(Path(file), above, above / parts[0], files)
    contents = sorted(hashlib.sha256(content).digest() for content in files.values())
    return f"sha256:{hashlib.sha256(b''.join(contents)).hexdigest()}" if contents else None


def _add_source(path: Path, folder: Path, package: Path, files: dict[Path, bytes]) -> None:
    """Add a file and all that it imports from the folder where imports of it begin, or of an
    installed one from its package."""
    left = [path]
    while left:
        path = left.pop()
        is_installed = str(path).startswith(NOT_OF_HANDLERS) and (
            package not in path.parents or package == Path(__file__).parent
        )
        try:
            if path in files or (files and is_installed) or not path.is_file():
                continue
            files[path] = path.read_bytes()
            steps = list(ast.walk(ast.parse(files[path])))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # not for this user to read, or an extension module
        for step in steps:
            above, names = folder, list[str]()
            if isinstance(step, ast.Import):
                names = [each.name for each in step.names]
            elif isinstance(step, ast.ImportFrom):
                names = [f"{step.module or ''}.{each.name}" for each in step.names]
                above = [folder, *path.parents][: step.level + 1][-1]
            for name in names:
                place = above
                for part in filter(None, name.split(".")):
                    place /= part
                    left += [place.with_name(f"{part}.py"), place / "__init__.py"]
