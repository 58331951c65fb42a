"""The offset plan, from whose file a drain is resumed, and open transactions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec

from drainer.errors import PlanRefused, raised_as
from drainer.model import codec
from drainer.model.account import EVENTS_FIRST, EVENTS_LAST, Account, damaged
from drainer.model.formats import PLAN
from drainer.model.listed import counted, listed
from drainer.model.ranges import encode_ranges
from drainer.model.terms import Terms


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The offsets of a partition behind an open transaction.

    Consumers with read_committed don't get their records.
    """

    topic: str
    partition: int
    offset: int  # The last stable offset, which an open transaction's first record has.
    offsets: int  # The number of offsets from there to the end, of any producer.

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from offset {self.offset} on ({self.offsets:,})"


def describe_open_transactions(found: Sequence[OpenTransaction]) -> str:
    """Describe open transactions in a sentence, and name the tool that finds their producers.

    drainer can't find the producers itself, because its client has no request for that.
    """
    offsets = counted(sum(each.offsets for each in found), "offset")
    return (
        f"an open transaction blocks {offsets}, which are not part of this backlog:"
        f" {listed(found)}. To find its producer, run kafka-transactions.sh"
        " describe-producers"
    )


_NOT_READ = (
    "If the drain is done, or is to be repeated from the committed offset, move the file away or"
    " name another with --plan."
)


class _Events(msgspec.Struct):
    """The events of a plan before they are decoded.

    Decoded events take ten times as much memory as the file, so they are counted first.
    """

    history: list[msgspec.Raw] = []


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """All that a resume needs: what was requested, and what has happened."""

    terms: Terms
    account: Account

    def encode(self) -> bytes:
        """Return the bytes of the plan's file: indented JSON with a digest over all of it.

        Raises PlanRefused when a name in the plan is not UTF-8.
        """
        body = self.as_json()
        about = "can't write the plan: a name, path or expression is not UTF-8: "
        hint = "Give the group, the handler, its path and all expressions in UTF-8."
        with raised_as(PlanRefused, UnicodeEncodeError, about=about, hint=hint):
            whole = codec.encode({**body, "digest": _digest(body)})
        return msgspec.json.format(whole) + b"\n"

    @property
    def takes_added(self) -> bool:
        """Whether partitions that are added to the topic join the drain while it follows."""
        every = self.terms.topic_partitions <= len(self.account.partitions)
        return every and not self.terms.partitions_chosen

    @classmethod
    def decode(cls, data: bytes) -> OffsetPlan:
        """Read a plan from the bytes of its file.

        Raises PlanRefused when the bytes are not a plan, or were changed since drainer wrote them.
        """
        try:
            # If this is not a plan, the checks below find out why.
            with suppress(msgspec.ValidationError):
                events = len(msgspec.json.decode(data, type=_Events).history)
                if events > EVENTS_FIRST + EVENTS_LAST:
                    raise damaged(f"it has {events:,} events, more than drainer keeps")
            body = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise damaged(f"it is not JSON: cut short, or not a plan ({error})") from None
        if not isinstance(body, dict) or "format" not in body:
            raise damaged("it is JSON, but not an offset plan")
        try:
            version = PLAN.ensure_read(body["format"], PlanRefused, _NOT_READ)
        except ValueError as error:
            raise damaged(f"its format {error}") from None
        digest = body.pop("digest", None)
        try:
            plan = cls(Terms.from_json(body), Account.from_json(body))
        except ValueError as error:
            raise damaged(f"a field is missing or wrong: {error}") from None
        if digest != _digest(body):
            raise damaged("it was edited or damaged: its digest does not match its content")
        written = msgspec.json.decode(codec.encode(plan.as_json()))
        # An older drainer did not know some fields. These comparisons take 5 and 5.0 as equal.
        if body != written and (
            version == PLAN.version or not _has_all(written, {**body, "format": str(PLAN)})
        ):
            raise damaged("it has other fields than drainer writes")
        plan.account.check()
        return plan

    def as_json(self) -> dict[str, Any]:
        """Return the plan in the form that its file has, without the digest."""
        account = self.account
        body: dict[str, Any] = {"format": str(PLAN)}
        for part in (self.terms, account):
            body |= {each.name: getattr(part, each.name) for each in fields(part)}
        body["partitions"] = {
            number: asdict(part) | {"lost": encode_ranges(part.lost)}
            for number, part in account.partitions.items()
        }
        body["claims"] = {
            selector: {number: progress.as_json() for number, progress in claim.items()}
            for selector, claim in account.claims.items()
        }
        return codec.builtins(body)


def _has_all(written: Any, body: Any) -> bool:
    """Return whether a value in JSON has all that is in ``body``, which may lack fields of it."""
    if isinstance(body, dict) and isinstance(written, dict):
        return all(n in written and _has_all(written[n], each) for n, each in body.items())
    if isinstance(body, list) and isinstance(written, list) and len(body) == len(written):
        return all(map(_has_all, written, body))
    return bool(written == body)


def _digest(body: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(body, order="sorted")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
