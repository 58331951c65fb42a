"""The offset plan: the file that a drain is resumed from, and what must be true of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from drainer.core import fields
from drainer.core.claims import EVERYTHING, Claim, Claims, Elsewhere, Places, end_of
from drainer.core.latency import Latency
from drainer.core.merge import StateReference
from drainer.core.order import Order
from drainer.core.parked import NONE_PARKED, ParkedLanes
from drainer.core.progress import (
    OTHERWISE,
    Counts,
    Partial,
    Progress,
    Range,
    RangeSet,
    decode_ranges,
    encode_ranges,
    join_ranges,
)
from drainer.core.ranges import subtract
from drainer.errors import PlanRefused
from drainer.policy.failures import FailureSettings
from drainer.policy.rate_cap import CapCurve
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import RuleAccount, RuleSettings

FORMAT = "drainer-plan/1"
ALL = str(EVERYTHING)  # the claim that has the account of all that is in no other
ISOLATIONS = ("read_committed", "read_uncommitted")

_DAMAGED_HINT = (
    "nothing was touched; restore the file, or start again from the group's committed offset with"
    " `drainer run` and another --plan"
)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The frozen backlog of one partition, and what this drain did to the group's offset there.

    ``prior`` is the committed offset before the drain (for undo), None when there was none.
    ``committed`` is the last one that the drain knows it wrote. ``lost`` are offsets that were
    deleted before they were read, and that a person let the drain go past: none of them is in the
    account, for none was delivered.
    """

    start: int
    end: int
    prior: int | None
    committed: int | None
    leader_epoch: int | None = None
    lost: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """Everything that a resume needs, and never a secret.

    ``topic_partitions`` is how many the topic had when the drain was planned.
    ``generation`` counts the writings of the plan; journals are named by it. ``claims`` holds for
    each selector over sub-keys the progress by partition: "all" what is finished and the account of
    all messages, others what is finished beyond that. Times are ISO 8601 in UTC. ``parked`` are the
    lanes (``repr`` of their keys) that wait behind a dead letter, in later runs too.
    ``parked_lanes`` tells of those and of all others that the last run left. ``redrive`` is there
    when the topic is one of dead letters, which the handler gets as what they were. ``latency`` is
    the handler's, over all runs. ``ruled`` is what ``rules`` did, those of earlier runs among them.
    ``state`` is where tasks write what they finish, and is there while a drain has tasks.
    ``handler_code`` is a digest of the handler's code when the drain last began, None when unknown.
    ``limits`` is what the brokers bear, which caps what is read and written.
    """

    drain_id: str
    created: str
    updated: str
    generation: int
    cluster_id: str
    bootstrap_servers: str
    client_config: str | None
    isolation: str
    topic: str
    topic_id: str
    topic_partitions: int
    group: str
    handler: str
    order: str
    partitions: Mapping[int, PartitionPlan]
    claims: Claims
    failures: FailureSettings = field(default_factory=FailureSettings)
    parked: tuple[str, ...] = ()
    parked_lanes: ParkedLanes = NONE_PARKED
    redrive: RedriveSettings | None = None
    latency: Latency | None = None
    rules: RuleSettings = field(default_factory=RuleSettings)
    ruled: RuleAccount = field(default_factory=RuleAccount)
    state: StateReference | None = None
    limits: CapCurve | None = None
    handler_code: str | None = None

    def watermark(self, partition: int) -> int:
        """The offset that is safe to commit."""
        return self.claims[ALL][partition].watermark

    @property
    def watermarks(self) -> dict[int, int]:
        return {partition: self.watermark(partition) for partition in self.partitions}

    @property
    def others(self) -> Claims:
        """The claims beside "all"."""
        return {selector: claim for selector, claim in self.claims.items() if selector != ALL}

    def elsewhere(self) -> Elsewhere | None:
        """What they have finished; None when there are none."""
        return Elsewhere(self.others, Places(Order(self.order))) if self.others else None

    def shared(self, partition: int) -> bool:
        """Whether one of them says something above the watermark."""
        watermark = self.watermark(partition)
        return any(end_of(claim[partition]) > watermark for claim in self.others.values())

    def finished_above(self, partition: int) -> int:
        """How many offsets above the watermark are known to be finished."""
        if self.shared(partition):
            return 0  # by all claims: the watermark alone is certain
        return sum(end - start for start, end in self.claims[ALL][partition].finished)

    def to_go(self, partition: int) -> int:
        """How many offsets are not known to be finished: holes are among them."""
        left = self.partitions[partition].end - self.watermark(partition)
        return max(0, left - self.finished_above(partition))

    @property
    def complete(self) -> bool:
        return all(self.watermark(n) >= part.end for n, part in self.partitions.items())

    @property
    def lost(self) -> dict[int, tuple[Range, ...]]:
        """By partition, what was deleted before it was read; only where something was."""
        return {number: part.lost for number, part in self.partitions.items() if part.lost}

    def gaps(self, log_starts: Mapping[int, int]) -> dict[int, tuple[Range, ...]]:
        """By partition, what is pending before the offset that its log starts at now."""
        found = {}
        for number, part in self.partitions.items():
            known = self.claims[ALL][number]
            gone = ((known.watermark, min(log_starts[number], part.end)),)
            if left := subtract(gone, known.finished):
                found[number] = left
        return found

    def past(self, gaps: Mapping[int, tuple[Range, ...]]) -> OffsetPlan:
        """The plan that goes on behind these, and names them as lost."""
        return replace(
            self,
            partitions={
                number: replace(part, lost=join_ranges((*part.lost, *gaps.get(number, ()))))
                for number, part in self.partitions.items()
            },
            claims={
                selector: {
                    number: progress.merge(replace(progress, finished=gaps[number]))
                    if number in gaps
                    else progress
                    for number, progress in claim.items()
                }
                for selector, claim in self.claims.items()
            },
        )

    def counts(self) -> tuple[Counts, Counts]:
        """Messages and sub-messages over all partitions."""
        messages, subs = Counts(), Counts()
        for claim in self.claims.values():
            for progress in claim.values():
                messages, subs = messages + progress.messages, subs + progress.sub_messages
        return messages, subs

    def settled(self) -> OffsetPlan:
        """The plan without what is pending, all accounts in that of "all"."""
        others = self.others
        known = {
            number: replace(
                progress,
                messages=progress.messages.settled(),
                sub_messages=sum(
                    (claim[number].sub_messages.settled() for claim in others.values()),
                    progress.sub_messages.settled(),
                ),
            )
            for number, progress in self.claims[ALL].items()
        }
        emptied = {
            selector: {n: replace(progress, sub_messages=Counts()) for n, progress in claim.items()}
            for selector, claim in others.items()
        }
        return replace(self, claims={ALL: known, **emptied})

    def merge(
        self,
        later: Mapping[int, Progress],
        parked: Iterable[str] = (),
        ruled: RuleAccount | None = None,
    ) -> OffsetPlan:
        """The plan with later records of its claim "all" added (see ``Progress.merge``)."""
        known = self.claims[ALL]
        merged = {n: p.merge(later[n]) if n in later else p for n, p in known.items()}
        return replace(
            self,
            claims={**self.claims, ALL: merged},
            parked=tuple(sorted({*self.parked, *parked})),
            ruled=self.ruled if ruled is None else self.ruled.merge(ruled),
        )

    def check(self) -> None:
        """Raises PlanRefused when the plan contradicts itself or the laws."""
        if self.generation < 0:
            raise _refuse(f"generation {self.generation} is below zero")
        if ALL not in self.claims:
            raise _refuse(f"it has no claim {ALL!r}")
        for selector, claim in self.claims.items():
            try:
                Claim.parse(selector)
            except ValueError as error:
                raise _refuse(str(error)) from None
            if set(claim) != set(self.partitions):
                raise _refuse(f"claim {selector!r} has not the same partitions as the plan")
            where = "" if selector == ALL else f"claim {selector}, "
            for number, progress in claim.items():
                _check_progress(f"{where}partition {number}", self.partitions[number], progress)
                if selector != ALL and progress.messages != Counts():
                    raise _refuse(f"{where}partition {number}: messages are counted in {ALL!r}")
        for number, part in self.partitions.items():
            offsets = (part.start, part.end, part.prior, part.committed)
            if any(offset is not None and offset < 0 for offset in offsets):
                raise _refuse(f"partition {number}: an offset is below zero")
            if part.lost and not (
                part.start <= part.lost[0][0] and part.lost[-1][1] <= self.watermark(number)
            ):
                raise _refuse(f"partition {number}: what is lost is not below the watermark")
            if part.committed is not None and part.committed > self.watermark(number):
                raise _refuse(
                    f"partition {number}: offset {part.committed} was committed, past the"
                    f" watermark {self.watermark(number)}"
                )
        _, subs = self.counts()
        skipped, dead = self.ruled.skipped_by.values(), self.ruled.dead_by.values()
        reasons = self.ruled.skipped_for.values()
        if sum(skipped) + sum(reasons) > subs.skipped or sum(dead) > subs.dead:
            raise _refuse("rules have skipped or given up more than was")

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with a digest over all of it.

        Raises PlanRefused when a name in it is no text.
        """
        body = self.as_json()
        try:
            body["digest"] = _digest(body)
        except TypeError as error:
            if "UTF-8" not in str(error):
                raise
            raise PlanRefused(
                f"the plan can't be written, for a name, path or rule in it is not UTF-8: {error}",
                hint="give the group, the handler, its path and the rules names in UTF-8",
            ) from error
        return orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def decode(cls, data: bytes) -> OffsetPlan:
        """Raises PlanRefused when the bytes are no plan, or not the plan that was written."""
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise _refuse(f"it is no JSON: cut short, or not a plan ({error})") from None
        if not isinstance(body, dict) or "format" not in body:
            raise _refuse("it is JSON, but no offset plan")
        if body["format"] != FORMAT:
            raise _refuse(f"it has format {body['format']!r}; this drainer reads {FORMAT!r}")
        if body.pop("digest", None) != _digest(body):
            raise _refuse("it was edited or damaged: its digest does not match its content")
        try:
            plan = cls._from_json(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _refuse(f"a field is missing or wrong: {error!r}") from None
        plan.check()
        return plan

    def as_json(self) -> dict[str, Any]:
        """The plan as the file has it, without the digest."""
        body = {
            "format": FORMAT,
            "drain_id": self.drain_id,
            "created": self.created,
            "updated": self.updated,
            "generation": self.generation,
            "cluster": {
                "id": self.cluster_id,
                "bootstrap_servers": self.bootstrap_servers,
                "client_config": self.client_config,
                "isolation": self.isolation,
            },
            "topic": {
                "name": self.topic,
                "id": self.topic_id,
                "partitions": self.topic_partitions,
            },
            "group": self.group,
            "handler": self.handler,
            "handler_code": self.handler_code,
            "order": self.order,
            "failures": self.failures.as_json(),
            "parked": list(self.parked),
            "parked_lanes": self.parked_lanes.as_json(),
            "redrive": None if self.redrive is None else self.redrive.as_json(),
            "rules": self.rules.as_json(),
            "ruled": self.ruled.as_json(),
            "partitions": {
                str(number): _partition_as_json(part) for number, part in self.partitions.items()
            },
            "claims": {
                selector: {str(number): encode_progress(p) for number, p in claim.items()}
                for selector, claim in self.claims.items()
            },
            "latency": None if self.latency is None else self.latency.as_json(),
            "state": None if self.state is None else self.state.as_json(),
        }
        if self.limits is not None:
            body["limits"] = self.limits.as_json()
        return body

    @classmethod
    def _from_json(cls, body: Mapping[str, Any]) -> OffsetPlan:
        cluster, topic = body["cluster"], body["topic"]
        isolation = cluster["isolation"]
        if isolation not in ISOLATIONS:
            raise ValueError(f"{isolation!r} is no isolation level")
        return cls(
            drain_id=fields.text(body["drain_id"]),
            created=fields.text(body["created"]),
            updated=fields.text(body["updated"]),
            generation=fields.whole(body["generation"]),
            cluster_id=fields.text(cluster["id"]),
            bootstrap_servers=fields.text(cluster["bootstrap_servers"]),
            client_config=fields.optional(fields.text, cluster["client_config"]),
            isolation=isolation,
            topic=fields.text(topic["name"]),
            topic_id=fields.text(topic["id"]),
            topic_partitions=fields.whole(topic["partitions"]),
            group=fields.text(body["group"]),
            handler=fields.text(body["handler"]),
            handler_code=fields.optional(fields.text, body["handler_code"]),
            order=Order(body["order"]).value,
            partitions={
                fields.number(n): _partition(part) for n, part in body["partitions"].items()
            },
            claims={
                selector: {fields.number(n): decode_progress(p) for n, p in claim.items()}
                for selector, claim in body["claims"].items()
            },
            failures=FailureSettings.from_json(body["failures"]),
            parked=fields.texts(body["parked"]),
            parked_lanes=ParkedLanes.from_json(body["parked_lanes"]),
            redrive=fields.optional(RedriveSettings.from_json, body["redrive"]),
            latency=fields.optional(Latency.from_json, body["latency"]),
            rules=RuleSettings.from_json(body["rules"]),
            ruled=RuleAccount.from_json(body["ruled"]),
            state=fields.optional(StateReference.from_json, body["state"]),
            limits=fields.optional(CapCurve.from_json, body.get("limits")),
        )


def encode_progress(progress: Progress) -> dict[str, Any]:
    """Progress as the plan and the journal write it."""
    body: dict[str, Any] = {
        "watermark": progress.watermark,
        "finished": encode_ranges(progress.finished),
        "partial": {str(offset): part.encode() for offset, part in progress.partial.items()},
        "messages": progress.messages.as_json(),
        "sub_messages": progress.sub_messages.as_json(),
    }
    body |= {outcome.value: encode_ranges(ranges) for outcome, ranges in progress.fates.items()}
    return body


def decode_progress(body: Mapping[str, Any]) -> Progress:
    """Raises KeyError, TypeError, ValueError or AttributeError when the body is no progress."""
    return Progress(
        watermark=fields.whole(body["watermark"]),
        finished=decode_ranges(fields.text(body["finished"])),
        partial={
            fields.number(n): Partial.decode(fields.text(part))
            for n, part in body["partial"].items()
        },
        messages=Counts.from_json(body["messages"]),
        sub_messages=Counts.from_json(body["sub_messages"]),
        fates={
            outcome: decode_ranges(fields.text(body[outcome.value]))
            for outcome in OTHERWISE
            if outcome.value in body
        },
    )


def _partition_as_json(part: PartitionPlan) -> dict[str, Any]:
    return {
        "start": part.start,
        "end": part.end,
        "prior": part.prior,
        "committed": part.committed,
        "leader_epoch": part.leader_epoch,
        "lost": encode_ranges(part.lost),
    }


def _partition(body: Mapping[str, Any]) -> PartitionPlan:
    return PartitionPlan(
        start=fields.whole(body["start"]),
        end=fields.whole(body["end"]),
        prior=fields.optional(fields.whole, body["prior"]),
        committed=fields.optional(fields.whole, body["committed"]),
        leader_epoch=fields.optional(fields.whole, body["leader_epoch"]),
        lost=decode_ranges(fields.text(body["lost"])),
    )


def _check_progress(where: str, part: PartitionPlan, progress: Progress) -> None:
    if not part.start <= progress.watermark <= max(part.start, part.end):
        raise _refuse(
            f"{where}: watermark {progress.watermark} is outside [{part.start}, {part.end}]"
        )
    if progress.finished and progress.finished[0][0] < progress.watermark:
        raise _refuse(f"{where}: finished ranges begin below the watermark {progress.watermark}")
    if progress.finished and progress.finished[-1][1] > part.end:
        raise _refuse(f"{where}: finished ranges go past the end {part.end}")
    finished = RangeSet(progress.finished)
    for offset in sorted(progress.partial):
        if not progress.watermark <= offset < part.end or offset in finished:
            raise _refuse(f"{where}: offset {offset} is pending in part and finished at once")
    accounts = (progress.messages, progress.sub_messages)
    if not all(account.possible for account in accounts):
        raise _refuse(f"{where}: a count is below zero")


def _refuse(reason: str) -> PlanRefused:
    return PlanRefused(f"the plan can't be trusted: {reason}", hint=_DAMAGED_HINT)


def _digest(body: Mapping[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
