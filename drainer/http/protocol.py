"""The protocol of the handler ``http``: calls of a service in JSON, and what its answers mean.

A sub-message counts as done only if the complete answer is one of those that stand for ``done``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from drainer.errors import UsageError
from drainer.handler import GiveUp, Results, Retry, Skip
from drainer.message import SubMessage
from drainer.policy.fault import as_retry
from drainer.text.escape import foreign
from drainer.text.plain_json import plain_json
from drainer.text.raw_json import raw_json

AFTER_MOST_S = 3600.0
TEXT_LENGTH = 200  # The number of characters of a service's text that errors show.
MEANINGS = ("done", "retry", "skip", "give-up", "outage")

ResultName = Literal["done", "retry", "skip", "give-up", "fail"]


@dataclass(slots=True)
class CallItem:
    """A sub-message in a call. The body of a single call is one such object.

    In ``key``, ``keys`` and ``payload``, bytes become an object ``{"base64": "…"}``. A payload of
    bytes that are JSON is the exception: it is written as that JSON, unchanged. So
    ``payload_encoding`` says whether the payload is ``json``, or bytes in ``base64``; it is null
    for a tombstone. Only a sub-message with several sub-keys has ``keys``. ``id`` is the same in
    each attempt. ``timestamp`` is that of the Kafka record, in milliseconds since 1970.
    """

    id: str
    topic: str
    partition: int
    offset: int
    index: int
    attempt: int
    key: Any
    payload: Any
    payload_encoding: Literal["json", "base64"] | None
    keys: list[Any] | None = None
    timestamp: int | None = None


class SingleAnswer(msgspec.Struct):
    """The answer to a single call. Other JSON, or an answer without a body, means ``done``."""

    result: ResultName
    after: Annotated[float, msgspec.Meta(ge=0, le=AFTER_MOST_S)] | None = None
    text: str = ""


class ItemResult(SingleAnswer, kw_only=True):
    """The outcome of a sub-message.

    - ``done``: it is never handled again.
    - ``retry``: it is handled again after the seconds in ``after``. This does not count as one of
      the ``--retries``.
    - ``skip``: it is not to be handled.
    - ``give-up``: ``--on-failure`` applies at once.
    - ``fail``: it is tried again within ``--retries``.
    """

    id: str


class Answer(msgspec.Struct):
    """The answer to a call with several sub-messages. It has each id exactly once, in any order."""

    results: list[ItemResult]


def encode_item(sub: SubMessage) -> bytes:
    """Return a sub-message as JSON. Raises TypeError when its key or payload can't be JSON."""
    message, payload = sub.message, sub.content
    encoding: Literal["json", "base64"] | None = None if payload is None else "json"
    if isinstance(payload, bytes):
        try:
            payload = raw_json(payload)
        except (ValueError, RecursionError):
            encoding = "base64"
    return plain_json(
        CallItem(
            sub.id,
            message.topic,
            message.partition,
            message.offset,
            sub.index,
            sub.attempt,
            sub.key,
            payload,
            encoding,
            list(sub.keys) if sub.keys is not None and len(sub.keys) > 1 else None,
            message.timestamp,
        )
    )


@dataclass(frozen=True, slots=True)
class Response:
    """The complete answer to a call."""

    status: int
    content_type: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        kind = self.content_type
        return kind == "application/json" or kind.endswith("+json")

    @property
    def is_empty(self) -> bool:
        """Whether the service has sent an empty body, and not just closed the connection."""
        whole = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        return whole and not self.body


class ServiceError(Exception):
    """Raised when a service answers with an error.

    policy/fault.py decides by ``status`` and ``headers`` whose fault it is, unless ``is_outage`` is
    given.
    """

    def __init__(self, response: Response, *, is_outage: bool | None = None) -> None:
        status = response.status
        what = f"the service answered {status}"
        if 300 <= status < 400:
            what += " (redirects are not followed)"
        text = "" if not response.is_json else response.body.decode(errors="replace")
        super().__init__(f"{what}: {foreign(text, TEXT_LENGTH)}" if text else what)
        self.status = status
        self.headers = response.headers
        self.is_outage = is_outage


class UnclearAnswer(Exception):
    """Raised when an answer does not state what was done."""


class ItemFailed(Exception):
    """Raised when a service answers that a sub-message failed."""


_RAISED = {"skip": Skip, "give-up": GiveUp, "fail": ItemFailed}


def meanings_of(options: Mapping[str, str]) -> dict[int, str]:
    """Return the meaning of each status from options such as ``404=skip``. Raises UsageError."""
    for name, meaning in options.items():
        if meaning not in MEANINGS:
            raise UsageError(
                f"{name}={meaning} is not a meaning of a status",
                hint=f"Use one of: {', '.join(MEANINGS)}.",
            )
    return {int(name): meaning for name, meaning in options.items()}


def _is_done(response: Response, meanings: Mapping[int, str]) -> bool:
    """Return whether the status alone means that everything in the call is done.

    Raises an error if the status is not one of success, or if its meaning is not ``done``.
    """
    error = ServiceError(response)
    match meanings.get(response.status):
        case "done":
            return True
        case "retry":
            raise as_retry(error) or Retry(str(error))
        case "skip" | "give-up" as name:
            raise _RAISED[name](str(error))
        case "outage":
            raise ServiceError(response, is_outage=True)
    if not 200 <= response.status < 300:
        raise error
    return False


def ensure_single_done(response: Response, meanings: Mapping[int, str]) -> None:
    """Raise the error that the answer to a single call stands for, unless the call is done."""
    if _is_done(response, meanings) or response.status == 204 or response.is_empty:
        return
    found = _decoded(response, dict[str, Any] | Any)
    found = found if isinstance(found, dict) else {}
    if "result" in found:
        error = _error_of(_decoded(response, SingleAnswer))
        if error is not None:
            raise error
    several = found.get("results")
    if isinstance(several, list) and any(isinstance(e, dict) and "result" in e for e in several):
        raise UnclearAnswer("the service answered a single call as a batch: add --set batch=1")


def results_of(response: Response, ids: Sequence[str], meanings: Mapping[int, str]) -> Results:
    """Return the results of a call with several sub-messages, in the order of ``ids``.

    Raises UnclearAnswer unless each sub-message has exactly one result. If the status
    alone says that the call failed, it raises the error that the status stands for.
    """
    if _is_done(response, meanings):
        return [None] * len(ids)
    found = _decoded(response, Answer).results
    by_id = {each.id: each for each in found}
    if len(found) != len(ids) or by_id.keys() != set(ids):
        raise UnclearAnswer(
            f"the service returned {len(found)} results for {len(ids)} sub-messages, or not one for"
            " each id, so nothing of the call counts as done"
        )
    return [_error_of(by_id[each]) for each in ids]


def _error_of(result: SingleAnswer) -> BaseException | None:
    text = foreign(result.text, TEXT_LENGTH)
    if result.result == "retry":
        return Retry(text, after=result.after)
    return None if result.result == "done" else _RAISED[result.result](text)


def _decoded(response: Response, kind: Any) -> Any:
    if not response.is_json:
        what = response.content_type or "no content type"
        whole = "JSON with the result of each id" if kind is Answer else "204 or JSON"
        raise UnclearAnswer(
            f"the service answered {response.status} with {what}, so it is not known whether it is"
            f" done: answer {whole}"
        )
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnclearAnswer(
            f"the service answered {response.status} with JSON that is no answer ({error})"
        ) from None
