"""Receipts: records in a dead-letter topic about the letters that a redrive has finished.

A redrive writes a receipt to each of its partitions when it begins, and another one when it ends.
So the next redrive learns from Kafka alone which letters are finished, on whatever machine it runs.
The group's offset would not be enough: it expires, and letters below finished ones may be left.

A receipt lies behind the letters that it is about. Once the group's offset is behind the receipt,
all of these letters are finished.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, NoReturn

from msgspec import Meta

from drainer.core.other_claims import other_claims
from drainer.engine.loop import event_loop
from drainer.errors import (
    DrainerError,
    OtherFormat,
    PlanRefused,
    RecordNotWritten,
    Refused,
    RightMissing,
)
from drainer.handler import Fatal
from drainer.kafka.cluster import Cluster
from drainer.kafka.writer import TopicWriter
from drainer.letters.reading import read_letters
from drainer.loading.loader import LoadedHandler
from drainer.message import Message
from drainer.model import codec
from drainer.model.claims import ALL
from drainer.model.codec import JsonRecord, Whole
from drainer.model.formats import RECEIPT
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range, Ranges, encode_ranges, intersect, join_ranges
from drainer.model.sub_messages import identify_or_reject
from drainer.operations.engine import LocalContext
from drainer.policy.dead_letter import HEADER
from drainer.split.splitting import Prepare
from drainer.store.place import absolute, parse_place
from drainer.store.plan_file import plan_at
from drainer.text.escape import command, printable

# A receipt has at most this many ranges. They take about 200 KB, which every topic accepts.
RANGES_EACH = 10_000
RECEIPT_BYTES_MOST = 1024 * 1024  # No receipt is as large as this.
# At most this many ranges of one partition are kept in memory. They take about 100 MB.
RANGES_MOST = 1_000_000
WRITE_S = 30.0
SHOWN = 200  # The characters of a receipt that an error quotes.
# The number of letters that are prepared at once, and their bytes.
PREPARED_MOST, PREPARED_BYTES = 2_000, 16 * 1024 * 1024

ONLY_HERE = (
    "without WRITE on {} drainer can't record redriven letters there: a redrive with another plan"
    " may repeat letters"
)

_Text = Annotated[str, Meta(max_length=4096)]
_Finished = Mapping[int, Sequence[Range]]  # The offsets of finished letters, by partition.


@dataclass(frozen=True, slots=True)
class Receipt(JsonRecord):
    """A record in a dead-letter topic about the letters of one redrive in the same partition.

    Attributes:
        topic_id: the id of the dead-letter topic. A copy of the topic has a different id.
        drain_id: the id of the redrive.
        host, plan: the place of the redrive's plan.
        end: the offset in this partition at which the redrive's backlog ends.
        ended: whether the redrive has ended.
        finished: the offsets of the letters that the redrive has finished.
    """

    group: _Text
    topic_id: _Text
    drain_id: _Text
    host: _Text
    plan: _Text
    end: Whole
    ended: bool
    finished: Ranges = ()

    @property
    def is_of_plan_here(self) -> bool:
        """Whether the plan is a file on this machine that no other user could have written."""
        if self.host != socket.gethostname() or "://" in self.plan:
            return False
        try:
            return plan_at(parse_place(self.plan)).load().plan.terms.drain_id == self.drain_id
        except Exception:  # Whoever wrote the receipt may have named any file.
            return False

    def as_json(self) -> dict[str, Any]:
        return {**codec.builtins(self), "finished": encode_ranges(self.finished)}


@dataclass(frozen=True, slots=True)
class RedriveProgress:
    """The letters that redrives of a group have finished, by the group's offsets and receipts.

    Attributes:
        finished: the offsets of these letters and of the receipts, by partition.
        running: the receipt of a redrive that has not ended, whose letters ``finished`` may lack.
    """

    group: str
    finished: _Finished
    running: Receipt | None = None

    def ensure_ended(self, *known: str) -> None:
        """Ensure that no redrive goes on, except those whose drain id is among ``known``.

        Raises PlanRefused.
        """
        if (running := self.running) is not None and running.drain_id not in known:
            anyway = "To redrive anyway, which may repeat letters, add --accept-repeats."
            if running.is_of_plan_here:
                hint = f"Wait for it, or resume it: `{command('resume', running.plan)}`. {anyway}"
            else:
                hint = f"Find who runs redrives of this topic, and resume the plan there. {anyway}"
            raise PlanRefused(
                f"the redrive {quoted(running.drain_id)} of group {self.group} has not ended,"
                " by a receipt, which every user with WRITE on the topic can make up: only its plan"
                f" lists its redriven letters, on {quoted(running.host)} at {quoted(running.plan)}",
                hint=hint,
            )


def quoted(text: str) -> str:
    """Return a text of a receipt as an error quotes it: cut, and without control characters."""
    return printable(text[:SHOWN])


def read_receipt(message: Message) -> Receipt | None:
    """Return the receipt in a record of a dead-letter topic; None if the record is not one.

    Raises OtherFormat if a newer drainer wrote the receipt: its letters must not be redriven again.
    """
    with suppress(ValueError):
        for name, value in message.headers:
            if name == HEADER:  # This is the dead letter of a message that was a receipt.
                return None
            if name.startswith(RECEIPT.family):
                RECEIPT.ensure_read(name, OtherFormat)
                short = len(value or b"") <= RECEIPT_BYTES_MOST
                return codec.decode(value or b"", Receipt) if short else None
    return None


def redrive_progress(
    cluster: Cluster, topic: str, group: str, since: Mapping[int, int] | None = None
) -> RedriveProgress:
    """Find the letters that redrives of a group have finished, by receipts from ``since`` on.

    A receipt counts only for the letters before it in its partition. Raises Refused if the receipts
    have more ranges than redrives write, and the errors of ``read_letters``.
    """
    found = cluster.topic(topic)
    committed = {n: at or 0 for n, at in cluster.committed(group, topic, found.partitions).items()}
    finished: dict[int, list[Range]] = {n: [(0, at)] * bool(at) for n, at in committed.items()}
    begun: dict[int, Receipt] = {}
    for message in read_letters(cluster, topic, since=since or committed):
        if (receipt := read_receipt(message)) is None:
            continue
        number, offset = message.partition, message.offset
        _add(finished[number], [(offset, offset + 1)], message)
        if (receipt.group, receipt.topic_id) != (group, found.topic_id):
            continue
        _add(finished[number], intersect(receipt.finished, ((0, offset),)), message)
        if not receipt.ended:
            if receipt.end <= offset:  # A genuine receipt lies behind its letters.
                begun[number] = receipt
        elif number in begun and begun[number].drain_id == receipt.drain_id:
            del begun[number]
    running = (receipt for n, receipt in begun.items() if committed[n] < receipt.end)
    joined = {n: join_ranges(ranges) for n, ranges in finished.items()}
    return RedriveProgress(group, joined, next(running, None))


def finished_in(cluster: Cluster, plan: OffsetPlan, handler: LoadedHandler) -> _Finished:
    """Find the letters that a redrive has finished, according to its plan.

    A priority class, or a task on Spark, may have finished some sub-messages of a letter whose
    others are unfinished. Then this reads the letters that are left, and splits them with the
    redrive's handler. Raises Refused if there are too many ranges, or if an original can't be read.
    """
    known = plan.account.claims[ALL].items()
    found = {n: [r for r in ((0, each.watermark), *each.finished) if r[1]] for n, each in known}
    others, split, prepare = other_claims(plan), handler.split_letter, handler.prepare
    if others is not None and split is not None and prepare is not None:
        letters = read_letters(cluster, plan.terms.topic, since=plan.account.watermarks)
        ends = {number: plan.account.partitions[number].end for number in found}
        left = (each for each in letters if each.offset < ends.get(each.partition, 0))
        for message in _prepared(left, prepare):
            number, offset = message.partition, message.offset
            subs, _ = identify_or_reject(message, split(message))
            if others.finished(message, subs) == (1 << len(subs)) - 1:
                _add(found[number], [(offset, offset + 1)], message)
    return {n: join_ranges(ranges) for n, ranges in found.items()}


def _prepared(letters: Iterator[Message], prepare: Prepare) -> Iterator[Message]:
    def refuse(seconds: float, why: str) -> NoReturn:
        raise Refused(why, hint="Try again once it answers.")

    while left := list(_part_of(letters)):
        while left:
            count = prepare(left, refuse)
            yield from left[:count]
            del left[:count]


def _part_of(letters: Iterator[Message]) -> Iterator[Message]:
    size = 0
    for letter in islice(letters, PREPARED_MOST):
        yield letter
        size += letter.size
        if size >= PREPARED_BYTES:
            return


def taking_in(plan: OffsetPlan, finished: _Finished) -> OffsetPlan:
    """Return the plan in which these letters count as finished."""
    claim = dict(plan.account.claims[ALL])
    for number, known in plan.account.claims[ALL].items():
        left = ((known.watermark, plan.account.partitions[number].end),)
        ranges = intersect(finished.get(number, ()), left)
        claim[number] = known.merge(replace(known, finished=ranges))
    claims = {**plan.account.claims, ALL: claim}
    return OffsetPlan(plan.terms, replace(plan.account, claims=claims))


@contextmanager
def keeping(redrive: LocalContext, *, resumes: bool) -> Iterator[LocalContext]:
    """Write the receipts of a redrive at its beginning and at its end.

    The block gets the redrive with a plan that has what other redrives have finished by now. Raises
    Refused before anything is handled, if another redrive has not ended or if a receipt can't be
    written.
    """
    before = redrive.plan
    ends = {n: part.end for n, part in before.account.partitions.items()}
    # For a new redrive, prepare_redrive() has read the receipts up to the end of its backlog. For a
    # resume, they have not been read.
    plan = _caught_up(redrive, before, before.account.watermarks if resumes else ends)
    open_ = [n for n in plan.account.partitions if plan.account.watermark(n) < ends[n]]
    noted = True
    try:
        try:
            _write(redrive, {n: [_receipt(redrive, ends[n])] for n in open_})
        except RightMissing:
            noted = False
        plan = _caught_up(redrive, plan, ends)
        if plan != before:
            redrive.file.write(plan)
        yield replace(redrive, plan=plan)
    except (DrainerError, KeyboardInterrupt):
        if redrive.file.load().plan == plan:  # Nothing was handled.
            redrive.file.write(before)
        raise
    finally:
        _end(redrive, open_, noted=noted)


def _caught_up(redrive: LocalContext, plan: OffsetPlan, since: Mapping[int, int]) -> OffsetPlan:
    """Return the plan with the letters that newer receipts report as finished.

    Its end moves behind these receipts.
    """
    found = redrive_progress(redrive.cluster, plan.terms.topic, plan.terms.group, since)
    found.ensure_ended(plan.terms.drain_id)
    logs = redrive.cluster.log_ends(plan.terms.topic, plan.account.partitions)
    parts = dict(plan.account.partitions)
    for number, part in plan.account.partitions.items():
        for first, last in found.finished[number]:
            if first <= part.end < last:
                _, epoch = logs[number]
                parts[number] = replace(part, end=last, leader_epoch=epoch)
    longer = OffsetPlan(plan.terms, replace(plan.account, partitions=parts))
    return taking_in(longer, found.finished)


def _end(redrive: LocalContext, open_: Sequence[int], *, noted: bool) -> None:
    try:
        plan = redrive.file.load().plan
        if plan.terms.drain_id != redrive.plan.terms.drain_id or plan.account.state is not None:
            return  # Tasks on Spark may still be at work. Only a resume finds out.
        receipts: dict[int, list[Receipt]] = {}
        finished = finished_in(redrive.cluster, plan, redrive.handler)
        for number, ranges in finished.items():
            if number in open_:
                *parts, last = (
                    Ranges(ranges[at : at + RANGES_EACH])
                    for at in range(0, max(1, len(ranges)), RANGES_EACH)
                )
                end = plan.account.partitions[number].end
                receipts[number] = [_receipt(redrive, end, part) for part in parts]
                receipts[number].append(_receipt(redrive, end, last, ended=True))
        if noted:
            _write(redrive, receipts)
        elif not plan.account.complete:
            redrive.print_line(ONLY_HERE.format(plan.terms.topic))
    except DrainerError as error:
        redrive.print_line(
            f"could not record the redriven letters in {redrive.plan.terms.topic}; only this plan"
            f" has them: {error}"
        )


def _receipt(
    redrive: LocalContext, end: int, finished: Ranges = (), *, ended: bool = False
) -> Receipt:
    terms, place = redrive.plan.terms, str(absolute(redrive.file.path))
    ids = (terms.group, terms.topic_id, terms.drain_id)
    return Receipt(*ids, socket.gethostname(), place, end, ended, finished)


def _write(redrive: LocalContext, receipts: Mapping[int, Sequence[Receipt]]) -> None:
    """Write receipts in order within each partition. All in-sync replicas have them afterwards.

    Raises RightMissing without WRITE on the topic, and Refused if they can't be written.
    """
    if not receipts:
        return
    writer = TopicWriter(redrive.cluster.settings, redrive.plan.terms.topic)

    async def write_to(number: int, each: Sequence[Receipt]) -> None:
        for receipt in each:
            header = str(RECEIPT), codec.encode(receipt.as_json())
            await writer.write(None, partition=number, headers=[header])

    async def write_all() -> None:
        async with asyncio.timeout(WRITE_S):
            await asyncio.gather(*(write_to(n, each) for n, each in receipts.items()))

    try:
        with event_loop() as loop:
            loop.run_until_complete(write_all())
    except (Fatal, RecordNotWritten, TimeoutError) as error:
        reason = str(error) or f"no acknowledgement within {WRITE_S:.0f} s"
        hint = "Try again when the broker answers."
        raise Refused(f"can't write a receipt to {writer.topic}: {reason}", hint=hint) from error
    finally:
        writer.close()


def _add(ranges: list[Range], more: Iterable[Range], message: Message) -> None:
    ranges += more
    if len(ranges) > RANGES_MOST:
        ranges[:] = join_ranges(ranges)
        if len(ranges) > RANGES_MOST // 2:
            raise Refused(
                f"up to {message}, the redriven letters are in over {RANGES_MOST // 2:,} ranges",
                hint="Redrive the rest with the plan of that redrive, or start again with --group.",
            )
