"""Meaning of a service's answers. Nothing is done unless the answer states it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drainer.errors import UsageError
from drainer.escape import foreign
from drainer.handler import GiveUp, Results, Retry, Skip
from drainer.http.protocol import Answer, SingleAnswer
from drainer.policy.fault import as_retry

TEXT_LENGTH = 200  # characters of a service's text that are kept
MEANINGS = ("done", "retry", "skip", "give-up", "outage")


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a call, read whole."""

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
        """Whether it has no body on purpose, not because the service ended before that."""
        whole = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        return whole and not self.body


class ServiceError(Exception):
    """Raised when a service answers with an error.

    ``status`` and ``headers`` show whose fault it is (policy/fault.py), unless ``is_outage`` does.
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
    """Raised when an answer doesn't state that anything is done."""


class ItemFailed(Exception):
    """Raised when a service answers that a sub-message failed."""


def meanings_of(options: Mapping[str, str]) -> dict[int, str]:
    """Meanings of statuses by options such as ``404=skip``. Raises UsageError."""
    for name, meaning in options.items():
        if meaning not in MEANINGS:
            raise UsageError(
                f"{name}={meaning} is not a meaning of a status",
                hint=f"Use one of: {', '.join(MEANINGS)}.",
            )
    return {int(name): meaning for name, meaning in options.items()}


def _is_done(response: Response, meanings: Mapping[int, str]) -> bool:
    """Whether the status alone means that all of the call is done.

    Raises what an answer stands for that is no success.
    """
    error = ServiceError(response)
    match meanings.get(response.status):
        case "done":
            return True
        case "retry":
            raise as_retry(error) or Retry(str(error))
        case "skip":
            raise Skip(str(error))
        case "give-up":
            raise GiveUp(str(error))
        case "outage":
            raise ServiceError(response, is_outage=True)
    if not 200 <= response.status < 300:
        raise error
    return False


def ensure_single_done(response: Response, meanings: Mapping[int, str]) -> None:
    """Raises what the answer to a single call stands for, unless that is done."""
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
    """The results of a call with several, in their order.

    Raises UnclearAnswer unless each of them has exactly one; what a status stands for.
    """
    if _is_done(response, meanings):
        return [None] * len(ids)
    found = _decoded(response, Answer).results
    by_id = {each.id: each for each in found}
    if len(found) != len(ids) or by_id.keys() != set(ids):
        raise UnclearAnswer(
            f"the service answered {len(found)} results for {len(ids)} sub-messages, or not one for"
            " each id, so nothing of the call counts as done"
        )
    return [_error_of(by_id[each]) for each in ids]


def _error_of(result: SingleAnswer) -> BaseException | None:
    text = foreign(result.text, TEXT_LENGTH)
    match result.result:
        case "done":
            return None
        case "retry":
            return Retry(text, after=result.after)
        case "skip":
            return Skip(text)
        case "give-up":
            return GiveUp(text)
        case "fail":
            return ItemFailed(text)


def _decoded(response: Response, kind: Any) -> Any:
    if not response.is_json:
        what = response.content_type or "no content type"
        raise UnclearAnswer(
            f"the service answered {response.status} with {what}, so it is not known whether it is"
            " done: answer 204 or JSON"
        )
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnclearAnswer(
            f"the service answered {response.status} with other JSON than it must ({error})"
        ) from None
