"""Objects: small files in a folder or in an object store, each written whole or not at all.

The driver and the tasks of a drain on Spark use them to tell each other what they know. All of them
must see the same folder or store. The stores are S3, Google Cloud Storage, Azure and HDFS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from secrets import token_hex
from urllib.parse import parse_qsl

from drainer.errors import StateLost, StateRefused, UsageError
from drainer.store.place import STORES, split_uri

REMOVE_TRIES = 5  # A removal is tried this often if another process writes or removes there, too.
WEBHDFS = "webhdfs"
STATES = (*STORES, WEBHDFS)  # A state may have these schemes. A plan may only be in a store.
SECRET_WORDS = ("key", "secret", "password", "token", "credential", "sig")


def check_uri(uri: str, schemes: Collection[str]) -> None:
    """Ensure that a plan or a state can be kept at this path or URI, if it has one of the schemes.

    A URI must not contain credentials, since drainer shows it, and writes it into the plan. Raises
    UsageError.
    """
    if not uri.strip():
        raise UsageError(
            "the place of the state is empty", hint="Name a folder, or a URI such as s3://…"
        )
    if "://" not in uri:
        return
    parts = split_uri(uri)
    scheme = parts.scheme
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UsageError(
                f"{uri} names a folder of another machine",
                hint="Use three slashes for this machine: file:///var/drainer",
            )
        return
    if scheme in ("hdfs", "viewfs") and WEBHDFS in schemes:
        raise UsageError(
            f"drainer does not speak the protocol of {scheme}://, but that of WebHDFS",
            hint=f"Write {WEBHDFS}://NODE:9870/PATH, with the name node and its port for HTTP.",
        )
    if scheme not in schemes:
        raise UsageError(
            f"drainer can't keep this in {scheme}://",
            hint=f"Name a folder, or a URI that begins with one of {', '.join(schemes)}.",
        )
    name, at, _ = parts.netloc.rpartition("@")
    is_secret = ":" in name or (at and STORES.get(scheme) in ("s3", None))
    for option, _ in parse_qsl(parts.query, keep_blank_values=True):
        is_secret = is_secret or any(word in option.lower() for word in SECRET_WORDS)
    if is_secret:
        raise UsageError(
            "the URI contains credentials, but drainer prints it and writes it into the plan",
            hint="Remove them. Set them in the environment (AWS_ACCESS_KEY_ID, …), or use the"
            " machine's role.",
        )


class Objects(ABC):
    """Bytes by name. A name may have slashes, and the part before a slash is like a folder."""

    uri: str
    is_local: bool

    @abstractmethod
    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        """Write an object, whole or not at all. It replaces an earlier one of this name.

        With ``beside``, it is not written if its folder was removed. An object store has no
        folders, so there it is written anyway.

        Raises PlanNotWritten if the disk takes no more; StateLost if it can't be reached.
        """

    @abstractmethod
    def create(self, name: str, data: bytes, *, beside: bool = False) -> bool:
        """Write an object, whole or not at all, unless there is one of this name.

        Return whether the object has these bytes now: if two processes write different bytes, one
        of them gets True. ``beside`` means the same as for ``put``. Raises the same errors.
        """

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is none. Raises StateLost."""

    @abstractmethod
    def children(self, prefix: str) -> list[str]:
        """Return the names of the objects and folders directly below a prefix. Raises StateLost."""

    @abstractmethod
    def remove(self, prefix: str) -> None:
        """Remove an object, or all objects below a prefix, if there are any. Raises StateLost."""

    def ensure_create(self) -> None:
        """Ensure that ``create`` never overwrites an object.

        Raises StateRefused if it does, and PlanNotWritten or StateLost if the store fails.
        """
        name = f"probe-{token_hex(8)}"
        try:
            if self.create(name, b"first") and not self.create(name, b"second"):
                return
        finally:
            self.remove(name)
        raise StateRefused(
            f"{self.uri} ignores If-None-Match, and overwrites objects",
            hint="Name a store with conditional puts (If-None-Match).",
        )


def out_of_reach(reason: str, uri: str) -> StateLost:
    """Return the error for a place that can't be reached."""
    return StateLost(
        f"can't reach {uri}: {reason}",
        hint="Resume once it is reachable. The plan and the state are valid.",
    )
