"""The sockets of drains: their folders, which only their user can enter, and their names."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path

from drainer.host.trust import NotTrusted, ensure_own
from drainer.model.listed import listed
from drainer.store.place import PLANS, PlanPlace
from drainer.store.saved_plan import no_plan

OURS = "drainer"
SUFFIX, PLAN = ".sock", ".plan"
LENGTH_MOST = 100  # The longest path of a socket, in bytes. Systems allow 104 or 108.
USERS, TMP = Path("/run/user"), Path("/tmp")


def socket_name(plan: PlanPlace) -> str:
    """Return the name of a drain's socket, which is a hash of the place of its plan.

    A relative path and an absolute one give the same name.
    """
    place = str(plan.resolve()) if isinstance(plan, Path) else plan
    return blake2b(os.fsencode(place), digest_size=10).hexdigest() + SUFFIX


def folders() -> list[Path]:
    """List the folders in which this user's sockets may lie. Some of them may not exist.

    There are several, because a drain and the process that steers it may run in different
    environments.
    """
    given = os.environ.get("XDG_RUNTIME_DIR")
    found = [Path(given)] if given else []
    found.append(USERS / str(os.geteuid()))
    own = [each / OURS for each in found if is_own(each)]
    return [*dict.fromkeys(own), TMP / f"{OURS}-{os.geteuid()}"]


def make_folder(folder: Path) -> None:
    """Make a folder for sockets. Raises OSError if that fails, or if it is another user's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_own(folder):
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def sockets() -> Iterator[Path]:
    """Yield the sockets of this user's drains. Some may be left by drains that are dead."""
    for folder in filter(is_own, folders()):
        with suppress(OSError):
            found = sorted(folder.glob(f"*{SUFFIX}"))
            yield from (path for path in found if is_own(path, stat.S_ISSOCK))


def link_to(plan: PlanPlace) -> Path:
    """Return the link by which this machine remembers a plan until its drain is done."""
    folder = next(filter(is_own, folders()), folders()[0])
    return folder / f"{socket_name(plan).removesuffix(SUFFIX)}{PLAN}"


def remembered() -> Iterator[Path]:
    """Yield the links to plans, and remove those whose plans are gone."""
    for folder in folders():
        with suppress(OSError):
            for link in sorted(folder.glob(f"*{PLAN}")):
                if link.exists():
                    yield link
                else:
                    link.unlink()


def short(plan: str) -> str:
    """Return a plan's path relative to the working directory, if it lies below that."""
    path, here = Path(plan), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else plan


def plan_meant(plan: Path) -> str:
    """Say which plan was meant by the path of one that does not exist; empty if none is known.

    Its name is the same, or contains this one as the name of its topic or group, or else it is the
    most similar one. It is in the same folder, or this machine remembers it, and nobody else can
    write it.
    """
    known: dict[str, set[str]] = {}
    candidates = [*remembered()]
    with suppress(OSError):  # This user may not enter the folder.
        candidates += plan.parent.glob(PLANS)
    for found in candidates:
        # A link may lead in a circle, and the working folder may be gone.
        with suppress(OSError, RuntimeError, NotTrusted):
            path = found.resolve()
            ensure_own(path)
            shown = plan.with_name(path.name) if path.parent == plan.parent.resolve() else path
            known.setdefault(path.name, set()).add(shlex.quote(str(shown)))
    same = plan.name in known
    near = [plan.name] if same else [name for name in known if f".{plan.name}." in f".{name}"]
    near = near or _similar(plan.name, known)
    paths = listed(sorted(path for name in near for path in known[name]))
    if not paths:
        return ""
    return f"Name it by its full path: {paths}." if same else f"Did you mean {paths}?"


def _similar(name: str, known: Iterable[str]) -> list[str]:
    """Return the most similar name. The ending that all plans share does not count."""
    ending = PLANS.removeprefix("*")
    stems = {each.removesuffix(ending): each for each in known}
    return [stems[each] for each in get_close_matches(name.removesuffix(ending), stems, 1)]


def ensure_present(place: PlanPlace) -> None:
    """Raise PlanRefused if no file is at the place of a plan; the hint may say which was meant."""
    if isinstance(place, Path):
        try:
            place.lstat()
        except FileNotFoundError:
            raise no_plan(place, plan_meant(place)) from None
        except OSError:
            pass  # Whoever reads it says why it can't be read.


def is_own(path: Path, is_right: Callable[[int], bool] = stat.S_ISDIR) -> bool:
    """Return whether a path is this user's, and of the right kind, which a link to one is not.

    ``is_right`` decides by the mode whether the kind is right. By default, it must be a folder.
    """
    with suppress(OSError):
        found = path.lstat()
        return is_right(found.st_mode) and found.st_uid == os.geteuid()
    return False
