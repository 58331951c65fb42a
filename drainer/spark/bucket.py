"""Objects where pyarrow reaches them: in S3, Google Cloud Storage, Azure, HDFS."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from pyarrow.fs import FileSelector, FileSystem, FileType

from drainer.errors import PlanNotWritten, StateRefused
from drainer.spark.objects import SPARKS_NAMES, Objects, out_of_reach
from drainer.store.atomic_file import NEW

WRITTEN_AT_ONCE = ("s3", "gcs", "abfs")  # by their type_name: an object is there when it is whole
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")
REASON_LENGTH = 300
LIST_TRIES = 5  # while folders are removed

T = TypeVar("T")


class Bucket(Objects):
    """Objects where pyarrow reaches them."""

    is_local = False

    def __init__(self, filesystem: FileSystem, path: str, uri: str) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")
        self.uri = uri
        self._at_once = filesystem.type_name in WRITTEN_AT_ONCE

    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        path = self._at(name)

        def put() -> None:
            if self._at_once:
                self._write(path, data)
                return
            # Elsewhere a file is there from its first byte on, and its folder has to be.
            self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            self._write(path + NEW, data)
            self._filesystem.move(path + NEW, path)

        self._do("written", put)

    def get(self, name: str) -> bytes | None:
        def get() -> bytes | None:
            try:
                with self._filesystem.open_input_stream(self._at(name), compression=None) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        return self._do("read", get)

    def names(self, prefix: str) -> list[str]:
        return sorted(self._below(prefix, recursive=True))

    def children(self, prefix: str) -> list[str]:
        before = len(prefix) + 1 if prefix else 0
        return sorted(name[before:] for name in self._below(prefix, recursive=False))

    def remove(self, prefix: str) -> None:
        path = self._at(prefix)

        def remove() -> None:
            with suppress(FileNotFoundError):
                kind = self._filesystem.get_file_info(path).type
                if kind == FileType.Directory:
                    self._filesystem.delete_dir(path)
                elif kind == FileType.File:
                    self._filesystem.delete_file(path)

        self._do("removed", remove)

    def _below(self, prefix: str, *, recursive: bool) -> list[str]:
        selector = FileSelector(self._at(prefix), allow_not_found=True, recursive=recursive)

        def listed() -> Any:  # pyarrow has no types
            for _ in range(LIST_TRIES):
                with suppress(FileNotFoundError):  # a folder of hdfs went while it was listed
                    return self._filesystem.get_file_info(selector)
            return self._filesystem.get_file_info(selector)

        found = self._do("listed", listed)
        return [
            info.path[len(self._path) + 1 :]
            for info in found
            if (not recursive or info.type == FileType.File) and not info.path.endswith(NEW)
        ]

    def _write(self, path: str, data: bytes) -> None:
        with self._filesystem.open_output_stream(path, compression=None) as file:
            file.write(data)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _do(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise PlanNotWritten(
                    f"the state at {self.uri} can't be {what}: {_reason(error)}",
                    hint="what is in it stays true; make room, then resume",
                ) from error
            raise out_of_reach(f"it can't be {what}: {_reason(error)}", self.uri) from error
        except (ValueError, NotImplementedError) as error:  # what pyarrow's own derive from
            raise out_of_reach(f"it can't be {what}: {_reason(error)}", self.uri) from error


def open_bucket(uri: str) -> Bucket:
    """For a URI that ``check_uri`` lets pass. Raises StateRefused when it can't be used."""
    scheme, _, rest = uri.partition("://")
    uri = f"{SPARKS_NAMES.get(scheme.lower(), scheme.lower())}://{rest}"
    try:
        filesystem, path = FileSystem.from_uri(uri)
    except (OSError, ValueError, NotImplementedError) as error:
        raise StateRefused(
            f"the state at {uri} can't be used: {_reason(error)}",
            hint="see pyarrow.fs for how URIs are written, and what must be installed for them",
        ) from error
    return Bucket(filesystem, path, uri)


def _reason(error: Exception) -> str:
    """What went wrong, in one line and without what only this process should know."""
    text = " ".join(str(error).split())[:REASON_LENGTH]
    for name in SECRETS:
        secret = os.environ.get(name)
        text = text.replace(secret, "***") if secret else text
    return text
