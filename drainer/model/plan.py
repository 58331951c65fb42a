"""The offset plan: the file that a drain is resumed from, and what its backlog ends at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from drainer.errors import PlanRefused
from drainer.model import codec
from drainer.model.account import EVENTS_FIRST, EVENTS_LAST, Account, damaged
from drainer.model.listed import counted, listed
from drainer.model.ranges import encode_ranges
from drainer.model.terms import Terms


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Records behind an open transaction, which no reader of committed records gets."""

    topic: str
    partition: int
    offset: int  # the last stable offset, at which the first record of an open transaction stands
    offsets: int  # how many there are from there on, of whatever producer

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from offset {self.offset} on ({self.offsets:,})"


def describe_open_transactions(found: Sequence[OpenTransaction]) -> str:
    """Open transactions in a sentence, with how to find the producer: no client can find it."""
    offsets = counted(sum(each.offsets for each in found), "offset")
    return (
        f"an open transaction blocks {offsets}, which are not part of this backlog:"
        f" {listed(found)}. To find its producer, run kafka-transactions.sh"
        " describe-producers"
    )


class _Events(msgspec.Struct):
    """Events of a plan, not decoded. Decoded ones take ten times as much memory as the file."""

    history: list[msgspec.Raw] = []


FORMAT = "drainer-plan/8"
# Fields of terms and account in the order of the file.
FIELDS = (
    *("drain_id", "created", "updated", "generation", "cluster_id", "bootstrap_servers"),
    *("client_config", "isolation", "topic", "topic_id", "topic_partitions", "group", "handler"),
    *("order", "partitions", "claims", "failures", "parked", "parked_lanes", "redrive"),
    *("latency", "unhandled", "state", "limits", "handler_code", "options", "history"),
    *("classes", "payloads", "commits"),
)


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """All that a resume needs: what was requested, and what has happened."""

    terms: Terms
    account: Account

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with a digest over all of it.

        Raises PlanRefused when a name in it is not UTF-8.
        """
        body = self.as_json()
        try:
            whole = codec.encode({**body, "digest": _digest(body)})
        except UnicodeEncodeError as error:
            raise PlanRefused(
                f"can't write the plan: a name, path or expression is not UTF-8: {error}",
                hint="Give the group, the handler, its path and all expressions in UTF-8.",
            ) from error
        return msgspec.json.format(whole) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> OffsetPlan:
        """Raises PlanRefused when the bytes are no plan, or not the plan that was written."""
        try:
            with suppress(msgspec.ValidationError):  # it is no plan: the checks below find out why
                events = len(msgspec.json.decode(data, type=_Events).history)
                if events > EVENTS_FIRST + EVENTS_LAST:
                    raise damaged(f"it has {events:,} events, more than drainer keeps")
            body = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise damaged(f"it is not JSON: cut short, or not a plan ({error})") from None
        if not isinstance(body, dict) or "format" not in body:
            raise damaged("it is JSON, but not an offset plan")
        if body["format"] != FORMAT:
            raise damaged(f"it has format {body['format']!r}; this drainer reads {FORMAT!r}")
        digest = body.pop("digest", None)
        try:
            plan = cls(Terms.from_json(body), Account.from_json(body))
        except ValueError as error:
            raise damaged(f"a field is missing or wrong: {error}") from None
        if digest != _digest(body):
            raise damaged("it was edited or damaged: its digest does not match its content")
        written = codec.encode(plan.as_json())
        if body != msgspec.json.decode(written):  # 5 and 5.0 are one number
            raise damaged("it has other fields than drainer writes")
        plan.account.check()
        return plan

    def as_json(self) -> dict[str, Any]:
        """The plan as the file has it, without the digest."""
        terms, account = self.terms, self.account
        body: dict[str, Any] = {"format": FORMAT}
        for name in FIELDS:
            body[name] = getattr(account if hasattr(account, name) else terms, name)
        body["partitions"] = {
            number: asdict(part) | {"lost": encode_ranges(part.lost)}
            for number, part in account.partitions.items()
        }
        body["claims"] = {
            selector: {number: progress.as_json() for number, progress in claim.items()}
            for selector, claim in account.claims.items()
        }
        return codec.builtins(body)


def _digest(body: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(body, order="sorted")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
