"""Objects in an object store: S3 and stores with its protocol, Google Cloud Storage, Azure.

The client for all of them is obstore, because it has conditional puts, unlike the file systems of
pyarrow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from drainer.errors import StateRefused
from drainer.store.objects import REMOVE_TRIES, SECRET_WORDS, Objects, out_of_reach
from drainer.store.place import STORES

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

# The timeout is short compared with a lease, so that a task which gets no answer can try again
# while its lease lasts. A store is used without TLS only if its endpoint begins with http://.
REQUEST = timedelta(seconds=5)
CLIENT: ClientConfig = {"timeout": REQUEST, "allow_http": True}
RETRIES: RetryConfig = {"max_retries": 2, "retry_timeout": REQUEST}

VENDORS = ("AWS_", "AZURE_", "GOOGLE_")  # Variables that obstore reads begin with these.
NO_BUCKET = ("NoSuchBucket", "specified bucket does not exist", "ContainerNotFound")
# The error text in an answer of a store that answers in XML.
MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
REASON_LENGTH = 300

T = TypeVar("T")


class Bucket(Objects):
    """The objects below a place in an object store."""

    is_local = False

    def __init__(self, store: ObjectStore, uri: str) -> None:
        self.uri = uri
        self._store = store

    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        self._do("written", lambda: self._store.put(name, data, use_multipart=False))

    def create(self, name: str, data: bytes, *, beside: bool = False) -> bool:
        # An earlier try may have succeeded although its answer was lost.
        return self.replace(name, data, None) is not None or self.get(name) == data

    def get(self, name: str) -> bytes | None:
        found = self.tagged(name)
        return None if found is None else found[0]

    def tagged(self, name: str) -> tuple[bytes, UpdateVersion] | None:
        """Return the content of an object and its tag; None if there is none. Raises StateLost."""

        def get() -> tuple[bytes, UpdateVersion] | None:
            try:
                found = self._store.get(name)
            except FileNotFoundError as error:
                if any(words in str(error) for words in NO_BUCKET):
                    raise
                return None
            return bytes(found.bytes()), _tag(found.meta)

        return self._do("read", get)

    def replace(self, name: str, data: bytes, known: UpdateVersion | None) -> UpdateVersion | None:
        """Replace the object that has the tag ``known``, or create one if that is None.

        Return the new tag; None if another object is there. Raises StateLost.
        """

        def put() -> UpdateVersion | None:
            with suppress(AlreadyExistsError, PreconditionError):
                mode: PutMode = "create" if known is None else known
                return _tag(self._store.put(name, data, mode=mode))
            return None

        return self._do("written", put)

    def ensure_replace(self) -> None:
        """Ensure that ``replace`` never writes over another object.

        Raises StateRefused if it does, and StateLost if the store does not answer.
        """
        name = f"probe-{token_hex(8)}"
        try:
            first = self.replace(name, b"first", None)
            second = first and self.replace(name, b"second", first)
            if second and self.replace(name, b"third", first) is None:
                return
        finally:
            self.remove(name)
        raise StateRefused(
            f"{self.uri} ignores If-Match, and overwrites changed objects",
            hint="Name a store with conditional puts (If-Match).",
        )

    def children(self, prefix: str) -> list[str]:
        found = self._do("listed", lambda: self._store.list_with_delimiter(prefix or None))
        names = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(name.rpartition("/")[2] for name in names)

    def remove(self, prefix: str) -> None:
        def remove() -> None:
            for _ in range(REMOVE_TRIES):
                below = [each["path"] for each in self._store.list(prefix or None).collect()]
                with suppress(FileNotFoundError):  # Another process removed it meanwhile.
                    self._store.delete(below or [prefix])
                    return
                if not below:
                    return

        self._do("removed", remove)

    def discard(self, names: Sequence[str]) -> None:
        """Remove the objects of these names, as far as they exist. Raises StateLost."""

        def discard() -> None:
            with suppress(FileNotFoundError):
                self._store.delete(names)

        self._do("removed", discard)

    def _do(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            raise out_of_reach(f"it can't be {what}: {_reason(error)}", self.uri) from error


def open_bucket(uri: str) -> Bucket:
    """Open the bucket of a URI that ``check_uri`` accepts. Its query has options of obstore.

    Raises StateRefused if the bucket can't be used.
    """
    parts = urlsplit(uri)
    uri = parts._replace(scheme=STORES[parts.scheme]).geturl()
    options: Any = dict(parse_qsl(parts.query))
    try:
        store = from_url(
            uri.partition("?")[0], config=options, client_options=CLIENT, retry_config=RETRIES
        )
    except (BaseError, OSError, ValueError) as error:
        raise StateRefused(
            f"can't use {uri}: {_reason(error)}",
            hint="Write it like s3://bucket/path?region=eu-west-1, gs://bucket/path,"
            " az://container/path or abfs://container@account.dfs.core.windows.net/path.",
        ) from error
    return Bucket(store, uri)


def _tag(of: ObjectMeta | PutResult) -> UpdateVersion:
    found = {"e_tag": of["e_tag"], "version": of["version"]}
    return cast("UpdateVersion", {name: value for name, value in found.items() if value})


def _reason(error: Exception) -> str:
    """Return the reason of an error in one line, without secrets of this process."""
    text = str(error).partition("\n\nDebug source:")[0]
    answer = MESSAGE.search(text)
    text = " ".join((answer[1] if answer else text).split())[:REASON_LENGTH]
    for name, value in os.environ.items():
        is_secret = any(word in name.lower() for word in SECRET_WORDS)
        if value and is_secret and name.startswith(VENDORS):
            text = text.replace(value, "***")
    return text
