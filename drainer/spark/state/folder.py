"""Objects in a folder, which the driver and the tasks of a drain on Spark share."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drainer.errors import PlanNotWritten, StateRefused
from drainer.host.trust import NotTrusted, ensure_own, make_folder, read_own
from drainer.store.atomic_file import NEW, new_beside, write_new
from drainer.store.objects import REMOVE_TRIES, Objects, out_of_reach


class Folder(Objects):
    """Objects in a folder, made for this user alone or for the group that shares the folder.

    They record what is done. So drainer reads only files that no other user could have put there
    (drainer/host/trust.py), and writes only into a drain's folder that no other user could have
    made.
    """

    is_local = True

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uri = str(self.path)

    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        self._place(name, data, Path.replace, beside=beside)

    def create(self, name: str, data: bytes, *, beside: bool = False) -> bool:
        def link(new: Path, last: Path) -> None:
            last.hardlink_to(new)  # A rename would replace an existing file, and a link does not.
            new.unlink()

        try:
            self._place(name, data, link, beside=beside)
        except FileExistsError:
            return self.get(name) == data
        return True

    def _place(
        self, name: str, data: bytes, place: Callable[[Path, Path], object], *, beside: bool = False
    ) -> None:
        """Write a file under a temporary name, and let ``place`` give it its final name.

        Raises the same errors as ``put``, and FileExistsError.
        """
        above = name.rpartition("/")[0]
        try:
            if not beside:
                self._make(above)
            last = self._of_drain(above) / name.rpartition("/")[2]
            new = new_beside(last)
            write_new(new, data, lambda: place(new, last))
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                gone = f"{self.path / above} is not there any more"
                raise out_of_reach(gone, self.uri) from error
            raise PlanNotWritten(
                f"can't write the state in {self.uri}: {error.strerror or error}",
                hint="Make room, or let this user write. Then resume: the state is valid.",
            ) from error

    def get(self, name: str) -> bytes | None:
        with self._reading():
            return read_own(self.path / name)
        return None

    def children(self, prefix: str) -> list[str]:
        with self._reading():
            found = (each.name for each in self._of_drain(prefix).iterdir())
            return sorted(name for name in found if not name.endswith(NEW))
        return []

    def remove(self, prefix: str) -> None:
        above, _, last = prefix.rpartition("/")
        for left in reversed(range(REMOVE_TRIES)):
            with self._reading("it can't be removed: "):
                path = self._of_drain(above) / last
                try:
                    shutil.rmtree(path)
                except NotADirectoryError:
                    path.unlink()
                except OSError as error:  # Another process may write or remove there, too.
                    if not left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                        raise
                    continue
            return

    def _make(self, folder: str) -> None:
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in ("", *folder.split("/")):
            path /= part
            with suppress(FileExistsError):
                make_folder(path)

    def _of_drain(self, folder: str) -> Path:
        """Return the path of a folder of a drain.

        Raises OSError; StateRefused if another user could have made the drain's folder.
        """
        if drain := folder.partition("/")[0]:
            try:
                ensure_own(self.path / drain)
            except NotTrusted as error:
                raise self._refused(error) from None
        return self.path / folder

    @contextmanager
    def _reading(self, what: str = "") -> Iterator[None]:
        """Leave the block quietly if a file does not exist. Raises StateRefused or StateLost."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            pass
        except NotTrusted as error:
            raise self._refused(error) from None
        except OSError as error:
            raise out_of_reach(f"{what}{error.strerror or error}", self.uri) from error

    def _refused(self, error: NotTrusted) -> StateRefused:
        return StateRefused(
            f"the state at {self.uri} records what is done, but {error}",
            hint="Set drainer.state to a folder of your own.",
        )
