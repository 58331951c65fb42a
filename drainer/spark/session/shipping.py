"""Sends the code of a handler to the executors, and loads it there."""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from drainer import __version__
from drainer.errors import Refused, UsageError
from drainer.loading.importing import place_and_name
from drainer.loading.loader import LoadedHandler, load_handler
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.spark.session.settings import SEND_ALONG, is_local
from drainer.text import mask

if TYPE_CHECKING:
    from drainer.spark.session.session import Session


@dataclass(frozen=True, slots=True)
class Shipped:
    """What a task needs to load the handler.

    Attributes:
        reference: a reference to the handler that is valid where the task runs.
        file, name: the name of a file that was sent to the executor, and the handler's name in it.
        mask: the secret with which a task masks the keys in its reports and errors.
        version: the version of drainer that the driver has.
        source: the handler itself, to be pickled. It is only set if the driver's main program
            defines the handler, because a task can't import that program.
        schemas: the schemas that the driver has received, so that tasks don't request them.
    """

    reference: str
    file: str | None = None
    name: str = ""
    mask: str = field(default_factory=mask.secret, repr=False)
    version: str = __version__
    source: Any = None
    payloads: PayloadSettings = BY_HANDLER
    extras: Mapping[str, str] = field(default_factory=dict, repr=False)
    schemas: Sequence[Any] = ()

    def load(self) -> LoadedHandler:
        """Load the handler in a task.

        Raises UsageError or Refused as ``load_handler`` does, and Refused if this drainer has
        another version than the driver's.
        """
        if self.version != __version__:
            raise Refused(
                f"{_here()} runs drainer {__version__}, but the driver runs {self.version}",
                hint="Install the driver's version there.",
            )
        mask.use(self.mask)
        handler = self._load()
        if handler.decoding is not None:
            handler.decoding.use_schemas(self.schemas)
        return handler

    def _load(self) -> LoadedHandler:
        if self.source is not None:
            return LoadedHandler(self.reference, self.source, "", self.payloads, self.extras)
        reference = self.reference
        if self.file is not None:
            from pyspark import SparkFiles  # noqa: PLC0415 - only in a task

            path = SparkFiles.get(self.file)
            reference = f"{path}:{self.name}" if self.name else path
        try:
            return load_handler(reference, self.payloads, self.extras)
        except (Refused, UsageError) as error:
            # The driver has loaded the handler, so only this executor lacks the module.
            if not isinstance(error.__cause__, ImportError | None):
                raise
            raise Refused(f"{_here()}: {error}", hint=SEND_ALONG) from error.__cause__


# What was sent, by what belongs to it, and by the reference of the handler.
_SENT: WeakKeyDictionary[Any, dict[str, Shipped]] = WeakKeyDictionary()


def ship(session: Session, handler: LoadedHandler) -> Shipped:
    """Send the executors what they need to load the handler, and return how they find it.

    Executors on this machine need nothing, since they see the same files. To others, the file of a
    handler is sent as it is, and a package in a folder as a zip file, once in an application: Spark
    does not replace what it has. Other modules that a handler imports must be installed there, or
    be sent by ``spark.submit.pyFiles``.
    """
    sent = _SENT.setdefault(session.owner, {})
    shipped = sent.get(handler.absolute_reference) or _shipped(session, handler)
    if shipped.source is None:
        sent[handler.absolute_reference] = shipped
    schemas = () if handler.decoding is None else handler.decoding.known_schemas
    return replace(shipped, payloads=handler.payloads, extras=handler.extras, schemas=schemas)


def _shipped(session: Session, handler: LoadedHandler) -> Shipped:
    reference = handler.absolute_reference
    place, name = place_and_name(reference)
    if place == "__main__":
        return Shipped(reference, source=handler.source)
    if is_local(session.master):
        return Shipped(reference)
    path = Path(place)
    if path.suffix == ".py" and path.is_file():
        session.add_file(str(path))
        return Shipped(reference, path.name, name)
    if "/" in place:  # It names a folder, and a package or module in it.
        source = path.parent / path.name.partition(".")[0]
        if source.is_dir():
            folder = tempfile.mkdtemp(prefix="drainer-handler-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            zipped = str(Path(folder) / source.name)
            session.add_module(shutil.make_archive(zipped, "zip", source.parent, source.name))
        else:
            session.add_module(f"{source}.py")
        return Shipped(f"{path.name}:{name}" if name else path.name)
    return Shipped(reference)


def _here() -> str:
    return f"the executor on {socket.gethostname()}"
