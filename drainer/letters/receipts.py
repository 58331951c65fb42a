"""Receipts: what redrives did above their group's offset, kept in the dead-letter topic itself.

A redrive writes one to each partition when it begins, and one to each where it leaves letters when
it ends. So the next redrive knows from Kafka alone what is done, wherever it runs. A receipt lies
behind the letters that it is about: once the group's offset has passed it, all of them are done.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

from msgspec import Meta

from drainer.core import codec
from drainer.core.claims import ALL
from drainer.core.codec import JsonRecord, Whole
from drainer.core.identity import identify
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Range, Ranges, encode_ranges, intersect, join_ranges
from drainer.engine.loop import event_loop
from drainer.errors import DrainerError, PlanRefused, RecordNotWritten, Refused, RightMissing
from drainer.escape import command, printable
from drainer.handler import Fatal
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.kafka.spans import Span
from drainer.kafka.writer import TopicWriter
from drainer.letters.reading import read_letters
from drainer.message import Message
from drainer.operations.engine import HeldDrain
from drainer.policy.dead_letter import FORMAT as LETTER
from drainer.store.plan_file import absolute

FORMAT = "drainer-redriven/1"  # the header that holds all of it
RANGES_EACH = 10_000  # some 200 KB, below what topics take in a record
RANGES_MOST = 1_000_000  # of a partition: 100 MB
WRITE_S = 30.0

UNKNOWN_ELSEWHERE = (
    "without WRITE on {topic} drainer can't note there what it redrives: only this plan knows, and"
    " a redrive with another plan may repeat letters"
)

Text = Annotated[str, Meta(max_length=4096)]
RangesBy = Mapping[int, Sequence[Range]]  # by partition


@dataclass(frozen=True, slots=True)
class Receipt(JsonRecord):
    """What a redrive says of the partition that the receipt lies in.

    Attributes:
        group, topic_id: of the redrive; a copy of the topic has another id.
        drain_id: of the redrive.
        host, plan: where its plan is.
        end: of its letters in this partition.
        ended: whether it has ended; its other receipts say that it runs, or was killed.
        finished: offsets that nothing is left to do of.
    """

    group: Text
    topic_id: Text
    drain_id: Text
    host: Text
    plan: Text
    end: Whole
    ended: bool
    finished: Ranges = ()

    def as_json(self) -> dict[str, Any]:
        return {**codec.builtins(self), "finished": encode_ranges(self.finished)}


@dataclass(frozen=True, slots=True)
class Receipts:
    """What the receipts in some spans of a dead-letter topic say, as one group sees them.

    Attributes:
        finished: offsets by partition that its redrives finished, and those of the receipts.
        begun: by partition, the last redrive that began there and has not ended.
    """

    finished: RangesBy
    begun: Mapping[int, Receipt]

    def running(self, committed: Mapping[int, int | None]) -> Receipt | None:
        """A redrive that has not ended, unless the group's offsets say that nothing is left."""
        for number, receipt in self.begun.items():
            if (committed.get(number) or 0) < receipt.end:
                return receipt
        return None

    def insist_ended(self, committed: Mapping[int, int | None], *known: str) -> None:
        """Raises PlanRefused if a redrive has not ended, except for those of a ``known`` plan."""
        receipt = self.running(committed)
        if receipt is not None and receipt.drain_id not in known:
            host, resume = printable(receipt.host), command("resume", printable(receipt.plan))
            raise PlanRefused(
                f"the redrive {printable(receipt.drain_id)} of group {receipt.group} has not ended:"
                " only its plan knows what it redrove",
                hint=f"Wait for it, or resume it on {host}: {resume}. Or add --accept-repeats: what"
                " it redrove above the group's offset runs again.",
            )


def read_receipt(message: Message) -> Receipt | None:
    """The receipt that a record of a dead-letter topic is; None for anything else."""
    with suppress(ValueError):
        for name, value in message.headers:
            if name == LETTER:  # a receipt that was drained, and died
                return None
            if name == FORMAT:
                return codec.decode(value or b"", Receipt)
    return None


def read_receipts(cluster: Cluster, topic: str, group: str, spans: Sequence[Span]) -> Receipts:
    """What these spans hold. Raises Refused for more than redrives write, and as ``read_letters``.

    A receipt is believed for what lies before it in its partition.
    """
    topic_id = cluster.topic(topic).topic_id
    finished: dict[int, list[Range]] = defaultdict(list)
    begun: dict[int, Receipt] = {}
    for message in read_letters(cluster, topic, spans):
        if (receipt := read_receipt(message)) is None:
            continue
        number, offset = message.partition, message.offset
        ranges = finished[number]
        ranges.append((offset, offset + 1))
        if (receipt.group, receipt.topic_id) == (group, topic_id):
            ranges += intersect(receipt.finished, ((0, offset),))
            if not receipt.ended:
                begun[number] = receipt
            elif number in begun and begun[number].drain_id == receipt.drain_id:
                del begun[number]
        if len(ranges) > RANGES_MOST:
            ranges[:] = _few(join_ranges(ranges), topic, number)
    return Receipts({n: join_ranges(ranges) for n, ranges in finished.items()}, begun)


def finished_in(cluster: Cluster, plan: OffsetPlan) -> dict[int, Sequence[Range]]:
    """What the plan of a redrive says is finished, by partition.

    Reads the letters that are left if a part of them is in a class or was a task's. Raises Refused
    if that makes too many ranges.
    """
    known = plan.claims[ALL].items()
    found = {
        n: [*([(0, each.watermark)] if each.watermark else []), *each.finished] for n, each in known
    }
    elsewhere = plan.elsewhere()
    if elsewhere is not None and plan.redrive is not None:
        for message in read_letters(cluster, plan.topic, unfinished(plan, logs_of(cluster, plan))):
            subs = list(plan.redrive.split(message))
            identify(message, subs)
            if elsewhere.finished(message, subs):
                ranges, offset = found[message.partition], message.offset
                ranges.append((offset, offset + 1))
                if len(ranges) > RANGES_MOST:
                    ranges[:] = _few(join_ranges(ranges), plan.topic, message.partition)
    return {n: join_ranges(ranges) for n, ranges in found.items()}


def taking_in(
    plan: OffsetPlan, finished: RangesBy, logs: Mapping[int, LogBounds] | None = None
) -> OffsetPlan:
    """The plan with what is known to be finished; with ``logs``, it ends behind what directly
    follows its letters and is finished."""
    claim, parts = dict(plan.claims[ALL]), dict(plan.partitions)
    for number in finished.keys() & parts.keys():
        part, known = parts[number], claim[number]
        ranges = join_ranges(finished[number])
        end = next((last for first, last in ranges if first <= part.end < last), part.end)
        if logs is not None and end > part.end:
            part = replace(part, end=end, leader_epoch=logs[number].leader_epoch)
            parts[number] = part
        ranges = intersect(ranges, ((known.watermark, part.end),))
        claim[number] = known.merge(replace(known, finished=ranges))
    return replace(plan, partitions=parts, claims={**plan.claims, ALL: claim})


def logs_of(cluster: Cluster, plan: OffsetPlan) -> Mapping[int, LogBounds]:
    """The logs of its partitions, as they are now."""
    return cluster.log_bounds(plan.topic, tuple(plan.partitions), plan.isolation)


def unfinished(plan: OffsetPlan, logs: Mapping[int, LogBounds]) -> list[Span]:
    """What is left of a plan's partitions, and is still there."""
    return [
        Span(n, max(plan.watermark(n), logs[n].start), min(part.end, logs[n].end))
        for n, part in plan.partitions.items()
    ]


@contextmanager
def keeping(held: HeldDrain, *, resumes: bool) -> Iterator[HeldDrain]:
    """The redrive, with what others have finished by now, and its receipts in the topic.

    Raises Refused, with nothing handled, if a redrive has not ended or a receipt can't be written.
    """
    cluster, before = held.cluster, held.plan
    logs = logs_of(cluster, before)
    starts = {n: part.end for n, part in before.partitions.items()}  # prepare() has read the rest
    if resumes:
        starts = {n: before.watermark(n) for n, part in before.partitions.items()}
    plan, upto = _caught_up(held, before, starts, logs)
    written = _begin(held, plan)
    if written:
        plan, _ = _caught_up(held, plan, upto, logs_of(cluster, plan))
    if plan != before:
        held.file.write(plan)
    try:
        yield replace(held, plan=plan)
    except DrainerError:
        if plan != before and held.file.load().plan == plan:  # nothing was handled
            held.file.write(before)
        raise
    finally:
        if written:
            _end(held)
        else:
            held.say(UNKNOWN_ELSEWHERE.format(topic=plan.topic))


def _caught_up(
    held: HeldDrain, plan: OffsetPlan, starts: Mapping[int, int], logs: Mapping[int, LogBounds]
) -> tuple[OffsetPlan, dict[int, int]]:
    """The plan with what receipts from these offsets on say, and where that ended."""
    spans = [Span(n, max(start, logs[n].start), logs[n].end) for n, start in starts.items()]
    found = read_receipts(held.cluster, plan.topic, plan.group, spans)
    found.insist_ended(plan.committed, plan.drain_id)
    return taking_in(plan, found.finished, logs), {n: log.end for n, log in logs.items()}


def _begin(held: HeldDrain, plan: OffsetPlan) -> bool:
    open_ = [n for n, part in plan.partitions.items() if plan.watermark(n) < part.end]
    receipt = _receipt(held, plan)
    try:
        _write(held, {n: [replace(receipt, end=plan.partitions[n].end)] for n in open_})
    except RightMissing:
        return False
    return True


def _end(held: HeldDrain) -> None:
    try:
        plan = held.file.load().plan
        if plan.drain_id != held.plan.drain_id or plan.state is not None:
            return  # it was never begun; or tasks may be at work: only a resume can tell
        receipts: dict[int, list[Receipt]] = {}
        for number, ranges in finished_in(held.cluster, plan).items():
            end = plan.partitions[number].end
            if plan.watermark(number) < end:
                receipt = replace(_receipt(held, plan), end=end)
                parts = range(0, max(1, len(ranges)), RANGES_EACH)
                each = [Ranges(ranges[at : at + RANGES_EACH]) for at in parts]
                receipts[number] = [replace(receipt, finished=part) for part in each]
                receipts[number][-1] = replace(receipts[number][-1], ended=True)
        _write(held, receipts)
    except DrainerError as error:
        held.say(
            f"could not note in {held.plan.topic} what was redriven ({error}): to redrive the rest,"
            " use this plan"
        )


def _receipt(held: HeldDrain, plan: OffsetPlan) -> Receipt:
    host, place = socket.gethostname(), str(absolute(held.file.path))
    return Receipt(plan.group, plan.topic_id, plan.drain_id, host, place, 0, ended=False)


def _write(held: HeldDrain, receipts: Mapping[int, Sequence[Receipt]]) -> None:
    """Returns when all in-sync replicas have them, those of a partition in their order.

    Raises RightMissing without WRITE on the topic; Refused.
    """
    if not receipts:
        return
    topic = held.plan.topic
    writer = TopicWriter(held.cluster.settings, topic)

    async def write_to(number: int, each: Sequence[Receipt]) -> None:
        for receipt in each:
            header = FORMAT, codec.encode(receipt.as_json())
            await writer.write(None, partition=number, headers=[header])

    async def write_all() -> None:
        await asyncio.gather(*(write_to(n, each) for n, each in receipts.items()))

    try:
        with event_loop() as loop:
            loop.run_until_complete(asyncio.wait_for(write_all(), WRITE_S))
    except (Fatal, RecordNotWritten, TimeoutError) as error:
        reason = str(error) or f"no acknowledgement within {WRITE_S:.0f} s"
        raise Refused(
            f"can't write a receipt to {topic}: {reason}", hint="Try again when the broker answers."
        ) from error
    finally:
        writer.close()


def _few(ranges: Sequence[Range], topic: str, partition: int) -> Sequence[Range]:
    if len(ranges) > RANGES_MOST // 2:
        raise Refused(
            f"what was redriven of {topic}/{partition} is in over {RANGES_MOST // 2:,} pieces",
            hint="Redrive the rest with the plan of that redrive.",
        )
    return ranges
