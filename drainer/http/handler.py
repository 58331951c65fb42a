"""The built-in handler ``http``: each sub-message, or a batch of them, is a POST to a service."""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import ECONNREFUSED
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from threading import Timer
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from drainer.errors import UsageError, raised_as
from drainer.handler import Context, Handler, Results
from drainer.http.protocol import (
    Response,
    ServiceError,
    UnclearAnswer,
    encode_item,
    ensure_single_done,
    meanings_of,
    results_of,
)
from drainer.kafka.handshake import tls_context
from drainer.loading.extensions import ensure_installed, without_prefix
from drainer.message import SubMessage
from drainer.model.destinations import SERVICE
from drainer.text.mask import describe

STATUSES = frozenset(str(status) for status in range(200, 600))
BATCH_MOST = 10_000
CONNECT_S, CHECK_S = 10.0, 3.0
# Most servers keep idle connections longer than this. So drainer closes them first, and no server
# closes one while a call is written to it.
KEEP_ALIVE_S = 4.0
ANSWER_BYTES, ANSWER_BYTES_PER_ITEM = 1 << 20, 1 << 10
PROPERTIES = (
    *("url", "token", "user", "password"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
)
_VISIBLE = re.compile(r"[!-~]*")  # The visible characters of ASCII, as in URLs and tokens.
_PASSWORD = re.compile(r"[^\0-\x1f\x7f]*")
_USER = re.compile(r"[^\0-\x1f\x7f:]*")
_HINT = "Use url=, batch=, or a status such as 404=skip."


class Http(Handler):
    """Sends sub-messages to the service at ``--set url=…`` (docs/reference/http.md).

    With ``batch=N``, a call has up to N sub-messages, and the answer has a result for each. The
    login comes from the client file: ``http.token``, or ``http.user`` and ``http.password``, and
    the files of ``http.ssl.…``.
    """

    plan_options = frozenset({"url", "batch"}) | STATUSES

    def __init__(self) -> None:
        self.max_batch = 1
        self._url = ""
        self._batches = False
        self._meanings: dict[int, str] = {}
        self._session: Any = None

    def configure(self, options: Mapping[str, str]) -> None:
        """Check the options of ``--set``, and keep them.

        Raises UsageError when one is wrong, and ExtraMissing without aiohttp.
        """
        ensure_installed("http", "the handler http")
        if unknown := sorted(set(options) - self.plan_options):
            raise UsageError(f"the handler http has no option {unknown[0]}", hint=_HINT)
        self._url = _checked_url(options["url"]) if "url" in options else ""
        self._meanings = meanings_of({n: v for n, v in options.items() if n in STATUSES})
        self._batches = "batch" in options
        text = options.get("batch", "1")
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= BATCH_MOST):
            raise UsageError(
                f"batch={text} is not a number from 1 to {BATCH_MOST:,}", hint="Use batch=100."
            )
        self.max_batch = int(text)

    async def open(self, context: Context) -> None:
        """Create the session, which connects to the service when it is used.

        Raises UsageError when a file that the client file names can't be read.
        """
        import aiohttp  # noqa: PLC0415 - an extra

        properties = context.extras(SERVICE)
        self._url = self._url or _checked_url(properties.get("url", ""))
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Accept-Encoding": "identity", "User-Agent": "drainer"}
        self._session = aiohttp.ClientSession(
            headers=headers | _login(properties),
            connector=aiohttp.TCPConnector(
                limit=context.concurrency, keepalive_timeout=KEEP_ALIVE_S, ssl=_tls(properties)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A call has no timeout here, because the drain's own timeout ends it.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
        )

    def check_before_preview(self, extras: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Check the client file, and whether the service answers.

        Returns the checks that passed, and warnings. Raises UsageError when the client file is
        wrong.
        """
        given = without_prefix(extras, SERVICE)
        if unknown := sorted(set(given) - set(PROPERTIES)):
            raise UsageError(
                f"the client file has http.{unknown[0]}, which the handler http doesn't know",
                hint=f"Use {', '.join(f'http.{name}' for name in PROPERTIES)}.",
            )
        tls, url = _tls(given), urlsplit(self._url or _checked_url(given.get("url", "")))
        service = f"the service {_without_query(url.geturl())}"
        connection = HTTPConnection(url.netloc, timeout=CHECK_S)
        if url.scheme == "https":
            connection = HTTPSConnection(url.netloc, timeout=CHECK_S, context=tls)
        started_s = monotonic()
        overdue = Timer(CHECK_S, _hang_up, [connection])  # The service may never end its answer.
        overdue.start()
        try:
            connection.request("OPTIONS", url.path or "/", headers=_login(given))
            status = connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            # A ValueError means that no host can have this name.
            return [], [f"{service} does not answer ({describe(error)}): start it, or correct url="]
        finally:
            overdue.cancel()
            connection.close()
        if status in (401, 403):
            return [], [f"{service} rejects the login (OPTIONS {status}): see http.token"]
        answers = f"{service} answers (OPTIONS {status} in {monotonic() - started_s:.3f} s)"
        # This is no refusal, because a service may have the path and answer only to POST there.
        if status == 404:
            return [], [f"{answers}: check the path in url="]
        return [answers], []

    async def handle_batch(self, subs: Sequence[SubMessage]) -> Results | None:
        if not self._batches:
            sub = subs[0]
            ids = {"Drainer-Id": sub.id, "Idempotency-Key": sub.id}
            ensure_single_done(await self._post(encode_item(sub), 1, ids), self._meanings)
            return None
        results: list[BaseException | None] = [None] * len(subs)
        items: dict[int, bytes] = {}  # The JSON of the sub-messages, by their place in ``subs``.
        for place, sub in enumerate(subs):
            try:
                items[place] = encode_item(sub)
            except TypeError as error:
                results[place] = error
        if items:
            body = b'{"batch":[%b]}' % b",".join(items.values())
            response = await self._post(body, len(items), {})
            found = results_of(response, [subs[place].id for place in items], self._meanings)
            for place, result in zip(items, found, strict=True):
                results[place] = result
        return results

    async def _post(self, body: bytes, items: int, headers: Mapping[str, str]) -> Response:
        import aiohttp  # noqa: PLC0415 - an extra

        most = ANSWER_BYTES + ANSWER_BYTES_PER_ITEM * items
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                found = bytearray()
                async for part in answer.content.iter_any():
                    found += part
                    if len(found) > most:
                        raise UnclearAnswer(f"the service's answer is larger than {most:,} bytes")
                kind = answer.content_type if "Content-Type" in answer.headers else ""
                return Response(answer.status, kind, bytes(found), answer.headers)
        except aiohttp.ClientConnectorError as error:
            if error.errno != ECONNREFUSED:
                raise
            raise ConnectionError(f"{_without_query(self._url)} refuses connections") from error
        except aiohttp.ClientResponseError as error:
            # The text of the error is not shown, because it has the URL, which may have a secret.
            reason = error.message.partition("\n")[0]
            raise UnclearAnswer(f"the service's answer is not HTTP ({reason})") from None

    def is_outage(self, error: BaseException) -> bool | None:
        return error.is_outage if isinstance(error, ServiceError) else None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _without_query(url: str) -> str:
    """Return the URL of the service as errors show it. Its query may have a secret."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the header of the login, if there is one.

    Raises UsageError if the login has characters that HTTP does not allow.
    """
    token, user, password = (properties.get(each, "") for each in ("token", "user", "password"))
    if token := _checked(token, "http.token in the client file", _VISIBLE):
        return {"Authorization": f"Bearer {token}"}
    if user := _checked(user, "http.user in the client file", _USER):
        login = f"{user}:{_checked(password, 'http.password in the client file', _PASSWORD)}"
        return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    return {}


def _checked(text: str, name: str, allowed: re.Pattern[str]) -> str:
    """Return the text without line breaks at its end.

    Raises UsageError if it has other characters than are allowed. The error does not show the text.
    """
    text = text.rstrip("\r\n")
    if not allowed.fullmatch(text):
        raise UsageError(
            f"{name} has a character that HTTP does not allow there",
            hint="Look for spaces, line breaks and colons; in a URL, percent-encode it.",
        )
    return text


def _hang_up(connection: HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):  # The service may have closed it already.
            connection.sock.shutdown(SHUT_RDWR)


def _checked_url(url: str) -> str:
    """Return the URL. Raises UsageError if it is not the URL of a service, or has a login."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        parts, valid = urlsplit(""), False
    if not valid:
        raise UsageError(
            "http needs the URL of a service" if not url else "url= is not a URL of http or https",
            hint="Add --set url=https://HOST/PATH, or http.url=… to the client file.",
        )
    url = _checked(url, "url=", _VISIBLE)
    if parts.username or parts.password:
        raise UsageError(
            "url= has a login, and the plan would keep it",
            hint="Put it into the client file, as http.user and http.password.",
        )
    return url


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Make the TLS context of the client file. Raises UsageError when a file can't be used."""
    about = "can't use the files of http.ssl.… in the client file: "
    # An SSLError is an OSError.
    with raised_as(UsageError, OSError, about=about, hint="Name readable files in PEM."):
        return tls_context(properties)
