"""Objects as files of HDFS, by the REST API WebHDFS.

A file of HDFS can be seen while it is written. So an object is written under another name first,
and then renamed, which a name node does in one step.

If the answer to a request is lost, nobody knows whether the request was served. An object is then
written again under a third name, and what the first request may still do is undone. If that fails,
too, an older content of ``control`` may come back until the driver's next beat. Tasks ignore it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from getpass import getuser
from http.client import HTTPConnection, HTTPException
from secrets import token_hex
from time import monotonic, sleep
from typing import TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from drainer.errors import StateLost
from drainer.store.atomic_file import NEW
from drainer.store.objects import Objects, out_of_reach
from drainer.store.place import split_uri

TIMEOUT_S = 5.0  # It is short compared with a lease, as for object stores.
TRY_AGAIN_S = 0.2  # Requests that get no answer are made again for TIMEOUT_S.
REDIRECT = 307
MISSING, EXISTS = "FileNotFoundException", "FileAlreadyExistsException"
# A name node gives these answers if another one is the active one, and while it starts; a proxy
# gives the last one.
NOT_READY = ("StandbyException", "RetriableException", "HTTP 503")

T = TypeVar("T")


class _Unanswered(Exception):
    """Raised if no name node serves a request. If it was not answered, it may have been served."""


class _Failure(msgspec.Struct):
    exception: str
    message: str = ""


class _Failed(msgspec.Struct, rename="pascal"):
    remote_exception: _Failure


class _File(msgspec.Struct, rename="camel"):
    path_suffix: str


class _Files(msgspec.Struct, rename="pascal"):
    file_status: list[_File]


class _Listing(msgspec.Struct, rename="pascal"):
    file_statuses: _Files


class WebHdfs(Objects):
    """The objects below a path of HDFS: ``webhdfs://NODE:PORT/PATH``.

    The URI may name several name nodes, separated by commas, of which one is active. Requests have
    the name of this user, or the one in the variable HADOOP_USER_NAME, but no ticket of Kerberos.
    """

    is_local = False

    def __init__(self, uri: str) -> None:
        self.uri = uri
        parts = split_uri(uri)
        self._nodes = parts.netloc.split(",")
        self._path = unquote(parts.path).rstrip("/")
        self._user = os.environ.get("HADOOP_USER_NAME") or getuser()

    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        self._repeat(lambda: self._write(name, data, "OVERWRITE", make_folder=not beside))

    def create(self, name: str, data: bytes, *, beside: bool = False) -> bool:
        # An earlier try may have succeeded although its answer was lost.
        made = self._repeat(lambda: self._write(name, data, "NONE", make_folder=not beside))
        return made or self.get(name) == data

    def get(self, name: str) -> bytes | None:
        return self._repeat(lambda: self._ask("GET", name, "OPEN", unless=MISSING))

    def children(self, prefix: str) -> list[str]:
        return [name for name in self._names(prefix) if not name.endswith(NEW)]

    def remove(self, prefix: str) -> None:
        self._remove(prefix)
        if "/" not in prefix:  # Processes that were killed may have left files that they wrote.
            for name in self._names(""):
                if name.startswith(f".{prefix}."):
                    self._remove(name)

    def _remove(self, name: str) -> None:
        self._repeat(lambda: self._ask("DELETE", name, "DELETE", recursive="true"))

    def _names(self, prefix: str) -> list[str]:
        answer = self._repeat(lambda: self._ask("GET", prefix, "LISTSTATUS", unless=MISSING))
        if answer is None:
            return []
        files = msgspec.json.decode(answer, type=_Listing).file_statuses.file_status
        names = [each.path_suffix for each in files]  # A file lists itself, without a name.
        return sorted(filter(None, names))

    def _repeat(self, make: Callable[[], T]) -> T:
        """Make requests, and make them again if one is not answered. Raises StateLost.

        Each name node is tried, however long the others take not to answer.
        """
        tries, until_s = 1, monotonic() + TIMEOUT_S
        while True:
            try:
                return make()
            except _Unanswered as error:
                if tries >= len(self._nodes) and monotonic() > until_s:
                    raise out_of_reach(str(error), self.uri) from error
            tries += 1
            sleep(TRY_AGAIN_S)

    def _write(self, name: str, data: bytes, replaces: str, *, make_folder: bool = True) -> bool:
        """Write an object; return False if it is not to be replaced, and there is one.

        Raises StateLost, also if its folder does not exist and is not to be made.
        """
        new, placed = f".{name.partition('/')[0]}.{token_hex(8)}{NEW}", None
        try:
            self._ask("PUT", new, "CREATE", data, permission="600")
            if make_folder:
                self._ask("PUT", name.rpartition("/")[0], "MKDIRS", permission="700")
            placed = self._ask(
                *("PUT", new, "RENAME"),
                unless=EXISTS,
                destination=self._full(name),
                renameoptions=replaces,
            )
        finally:
            if placed is None:
                with suppress(StateLost, _Unanswered):
                    self._ask("DELETE", new, "DELETE")
        return placed is not None

    def _full(self, name: str) -> str:
        return f"{self._path}/{name}".rstrip("/") or "/"

    def _ask(
        self,
        method: str,
        name: str,
        operation: str,
        body: bytes | None = None,
        *,
        unless: str | None = None,
        **options: str,
    ) -> bytes | None:
        """Ask the active name node; return None if it fails with the exception ``unless``.

        Raises StateLost if it fails with another one, and _Unanswered if a node does not answer:
        then the next one must not get the same request, which may have been served.
        """
        query = urlencode({"op": operation, "user.name": self._user, **options})
        target, reason = f"/webhdfs/v1{quote(self._full(name))}?{query}", ""
        for node in self._nodes:
            try:
                status, answer = request(method, f"http://{node}{target}", body)
            except (OSError, HTTPException, ValueError) as error:
                self._nodes = [*(each for each in self._nodes if each != node), node]
                raise _Unanswered(f"{operation} of {name}: {node}: {error}") from error
            if status < REDIRECT:
                return answer
            failure = _Failure(f"HTTP {status}")
            with suppress(msgspec.MsgspecError):
                failure = msgspec.json.decode(answer, type=_Failed).remote_exception
            if failure.exception == unless:
                return None
            reason = f"{failure.exception} {failure.message.partition(chr(10))[0]}".strip()
            if failure.exception not in NOT_READY:
                raise out_of_reach(f"{operation} of {name}: {reason}", self.uri)
        raise _Unanswered(f"{operation} of {name}: {reason}")


def request(method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
    """Make a request, and return the status and the content of the answer.

    A name node redirects reads and writes to a data node. Only that gets the content.
    """
    content = None
    while True:
        parts = urlsplit(url)
        with closing(HTTPConnection(parts.netloc, timeout=TIMEOUT_S)) as connection:
            connection.request(method, f"{parts.path}?{parts.query}", content)
            response = connection.getresponse()
            answer = response.read()
        if response.status != REDIRECT or content is not None:
            return response.status, answer
        url, content = response.headers["Location"], body or b""
