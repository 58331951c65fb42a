"""Import the modules of handlers, and compute a digest of their code.

The folder of a handler comes last on ``sys.path``, so that no file beside a handler hides a
library. Python imports a module from there only if no other user could have put it there
(drainer/host/trust.py). Installed modules are not checked, because whoever wrote them could have
changed drainer, too.
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
from importlib import machinery
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, cast

from drainer.errors import Refused, UsageError
from drainer.host.trust import NotTrusted, ensure_trusted, read_trusted
from drainer.split.splitting import NOT_OF_HANDLERS
from drainer.text.mask import describe

ENTRY_POINTS = "drainer.handlers"
OWN_NAME = "drainer_handler_"  # A module gets this prefix if its own name is taken.


def place_and_name(reference: str) -> tuple[str, str]:
    """Split a reference at its colon. Without one, the name is empty."""
    place, _, name = reference.rpartition(":")
    if not place or "/" in name:  # The colon belongs to the name of a folder.
        return reference, ""
    return place, name


def import_place(place: str, reference: str) -> tuple[ModuleType, str]:
    """Import the module at a place. Return it with the place in a form for any working folder.

    Raises UsageError if there is none, Refused if the import raises, and NotTrusted if another user
    could have put the file there.
    """
    if place.endswith(".py"):
        return _import_file(Path(place), reference), str(Path(place).absolute())
    folder, name = Path(place).parent.absolute(), Path(place).name
    module = _import_module(folder, name, reference)
    # drainer's own modules are those of the package that runs, even in a clone of it.
    if _lies_in(folder, name) and not (place == name and name.startswith("drainer.")):
        # A module that is a single file is named by the path of that file. So its handler has one
        # name, whether somebody gives the module or the file.
        file = folder / f"{name}.py"
        return module, str(file if module.__file__ == str(file) else folder / name)
    if "/" in place:  # A module of this name elsewhere is not the requested one.
        raise _no_module(reference, name, f"in {folder}, or an installed one hides it")
    return module, place


def place_of(name: str) -> str:
    """Return where ``import_place`` finds an imported module again, from any working folder.

    This is a path if the module is a file in a folder of the user's, and if Python would find it in
    that folder by its name. Otherwise it is the name itself: the module may be installed, it may
    come from a zip file, or it may be the main program.
    """
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) or ""
    is_own = Path(file).is_file() and not file.startswith(NOT_OF_HANDLERS)
    if module is None or name == "__main__" or not is_own:
        return name
    path, (top, *below) = Path(file).absolute(), name.split(".")
    if path.suffix == ".py" and path.stem != "__init__" and not below:
        return str(path)
    folder = _folder_of(module, path)
    return str(folder / name) if machinery.PathFinder.find_spec(top, [str(folder)]) else name


def _folder_of(module: ModuleType, path: Path) -> Path:
    """Return the folder of a module, or of the package around it. ``path`` is its file.

    If the name of the module has more parts than the path, this is the topmost folder.
    """
    steps = len(module.__name__.split(".")) - (path.stem != "__init__")
    return [*path.parents][: steps + 1][-1]


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
    # A library of the same name keeps its name, for everything that imports it now or later.
    name = OWN_NAME + path.stem if _is_taken(path.stem, path) else path.stem
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    _search(path.resolve().parent)  # The file may import its neighbours.
    sys.modules[name] = module
    guarded(reference, partial(loader.exec_module, module))
    return module


def _is_taken(name: str, path: Path) -> bool:
    """Return whether an import of this name finds something other than the file."""
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
    """Import a module. Return None if it does not exist.

    Raises whatever the code of the module, or of the packages around it, raises.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The missing module may be this one, a package around it, or one that these need.
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _lies_in(folder: Path, name: str) -> bool:
    """Return whether an imported module, or the package around it, lies in this folder."""
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


class _FromTrusted:
    """Reads modules of a handler from files that no other user could have put there."""

    def get_data(self, path: str) -> bytes:
        try:
            return read_trusted(path)
        except NotTrusted as error:
            if path.endswith(tuple(machinery.BYTECODE_SUFFIXES)):
                # After an OSError, Python compiles the source instead, if there is one.
                raise OSError(str(error)) from error
            raise


class _SourceLoader(_FromTrusted, machinery.SourceFileLoader):  # type: ignore[misc]  # of typeshed
    """Loads the source of a module, or the bytecode that Python has compiled from it."""


class _BytecodeLoader(_FromTrusted, machinery.SourcelessFileLoader):
    """Loads a module that has no source."""


class _ExtensionLoader(machinery.ExtensionFileLoader):
    """Loads a native module that no other user could have put there."""

    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType:
        ensure_trusted(self.path)
        return super().create_module(spec)


_LOADERS = (
    (_ExtensionLoader, machinery.EXTENSION_SUFFIXES),
    (_SourceLoader, machinery.SOURCE_SUFFIXES),
    (_BytecodeLoader, machinery.BYTECODE_SUFFIXES),
)
_SEARCHED: set[Path] = set()  # These folders of handlers are on sys.path.


def _find_in(path: str) -> machinery.FileFinder:
    """Make a finder for modules in a handler's folder or below it.

    This is a hook in ``sys.path_hooks``. It raises ImportError for any other folder, and Python
    then asks its own hook.
    """
    folder = Path(path)
    of_handler = folder.is_dir() and not path.startswith(NOT_OF_HANDLERS)
    if not (of_handler and _SEARCHED & {folder, *folder.parents}):
        raise ImportError(f"{path} is not the folder of a handler")
    return machinery.FileFinder(path, *_LOADERS)


def _search(folder: Path) -> None:
    """Let Python import modules from a handler's folder if no other folder has them."""
    if _find_in not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_in)
    if folder not in _SEARCHED:
        _SEARCHED.add(folder)
        # Python may have cached a finder of its own for the folder.
        sys.path_importer_cache.clear()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def guarded(reference: str, load: Callable[[], Any]) -> Any:
    """Call a function that runs a handler's code.

    If the code raises, this raises Refused, which names the line that failed.
    """
    try:
        return load()
    except NotTrusted:
        raise
    except (Exception, SystemExit) as error:
        *_, (frame, line) = walk_tb(error.__traceback__)
        file = frame.f_code.co_filename
        where = "" if "importlib" in file else f" ({file}:{line})"
        way_out = "Fix the handler"
        missing = isinstance(error, ModuleNotFoundError) and str(error.name or "")
        if missing and "." not in missing:
            way_out = (
                f"{missing} is missing where drainer runs: install its package with"
                f" `{sys.executable} -m pip install …`, or put it beside the handler if it is yours"
            )
        raise Refused(
            f"can't import the handler {reference}: {describe(error)}{where}",
            hint=f"{way_out}. Nothing was touched.",
        ) from error


def digest_of(modules: Iterable[ModuleType | None]) -> str | None:
    """Return a digest of the modules' files and of the files beside them that they import.

    Returns None if no module has a file.
    """
    files: dict[Path, bytes] = {}
    for module in modules:
        if file := getattr(module, "__file__", None):
            above = _folder_of(cast(ModuleType, module), Path(file))
            top = cast(ModuleType, module).__name__.partition(".")[0]
            add_source(Path(file), above, above / top, files)
    contents = sorted(hashlib.sha256(content).digest() for content in files.values())
    return f"sha256:{hashlib.sha256(b''.join(contents)).hexdigest()}" if contents else None


def add_source(path: Path, folder: Path, package: Path, files: dict[Path, bytes]) -> None:
    """Add a file to ``files``, and the files that it imports.

    Imports are followed within ``folder``. Of installed modules, only those in ``package`` count.
    """
    left = [path]
    while left:
        path = left.pop()
        is_installed = str(path).startswith(NOT_OF_HANDLERS) and (
            package not in path.parents or package == Path(__file__).parents[1]
        )
        try:
            if path in files or (files and is_installed) or not path.is_file():
                continue
            files[path] = path.read_bytes()
            steps = list(ast.walk(ast.parse(files[path])))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # The file is a native module, or this user may not read it.
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
