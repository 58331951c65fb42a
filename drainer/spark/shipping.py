"""The handler's code on its way to the executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

from drainer import mask
from drainer.errors import Refused
from drainer.loader import LoadedHandler, load_handler, place_and_name
from drainer.spark.settings import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

FOLDER_BYTES_MOST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shipped:
    """How a task finds the handler: by a reference that holds where the task runs.

    ``file`` is the name of a file that was sent along, whose handler is ``name``. With it travels
    what keys are masked with: tasks report keys and errors, too.
    """

    reference: str
    file: str | None = None
    name: str = ""
    mask: str = field(default_factory=mask.secret, repr=False)

    def load(self) -> LoadedHandler:
        """Raises UsageError or Refused as ``load_handler`` does."""
        mask.use(self.mask)
        if self.file is None:
            return load_handler(self.reference)
        from pyspark import SparkFiles  # noqa: PLC0415 - only in a task

        path = SparkFiles.get(self.file)
        return load_handler(f"{path}:{self.name}" if self.name else path)


def ship(context: SparkContext, handler: LoadedHandler, archives: Sequence[str] = ()) -> Shipped:
    """Sends along what the executors need to load the handler.

    On this machine that is nothing: they see the same files. A handler's file is sent as it is, a
    package in a folder as a zip; what is installed has to be installed
    there, too, or be among the archives.

    Raises Refused when a folder is too large to be sent.
    """
    for archive in archives:
        context.addPyFile(archive)
    reference = handler.absolute_reference
    if is_local(str(context.master)):
        return Shipped(reference)
    place, name = place_and_name(reference)
    path = Path(place)
    if path.suffix == ".py" and path.is_file():
        context.addFile(str(path))
        return Shipped(reference, path.name, name)
    if "/" in place:  # package.module in a folder
        top = path.name.partition(".")[0]
        source = path.parent / top
        if source.is_dir():
            context.addPyFile(str(_zipped(source, Path(context._temp_dir))))
        elif source.with_suffix(".py").is_file():
            context.addPyFile(str(source.with_suffix(".py")))
        return Shipped(f"{path.name}:{name}" if name else path.name)
    return Shipped(reference)


def _zipped(package: Path, folder: Path) -> Path:
    files = [
        path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    size = sum(path.stat().st_size for path in files)
    if size > FOLDER_BYTES_MOST:
        raise Refused(
            f"the handler's package {package} has {size / 2**20:.0f} MiB, too much to send along",
            hint="install it on the executors, or name an archive of what is needed with --archive",
        )
    zipped = folder / f"{package.name}.zip"
    with ZipFile(zipped, "w", ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(package.parent))
    return zipped
