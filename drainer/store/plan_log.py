"""The records of a plan in a compacted topic, and who owns the plan according to them.

Kafka has no compare-and-set, so the order of the log decides. A process that wants to write appends
a bid, with an epoch above all that it knows, and reads to the end of the log. The first bid of an
epoch wins. Whoever finds that its bid was not the first, or that there is a higher epoch, does not
write any more.

Compaction may run at any moment, and removes any record that has a later one of the same key. So
the key of each record has its epoch and its process::

    NAME/EPOCH/OWNER/bid                        who took the plan, and when
    NAME/EPOCH/OWNER/plan/SLOT/PART             a part of the whole plan
    NAME/EPOCH/OWNER/journal/GENERATION/PIECE   what has finished since then

Why that is enough:

1. No two processes share a key. So whatever a process writes that has lost the plan without knowing
   it can only replace records of its own.
2. A bid is written once, and no tombstone follows it. So compaction never removes one, and the
   first bid of an epoch stays the first. Whoever has read the log up to some offset knows all
   bids below that, even if the log was compacted meanwhile. A bid takes about 200 bytes.
3. A process writes a plan into its two slots by turns, and each part names the number of the write
   and the digest of the whole. While one slot is half-written, the other has the plan before it. A
   write that failed is repeated in its own slot.
4. The plan is the one with the highest number, of the winner of the highest epoch that has a
   complete one, with the journal of the same process. Nothing depends on where these records are in
   the log, so nothing depends on which older records are still there. If some records are replaced
   while a process reads, it may see an older plan, or none that is complete. But then there is more
   to read, and a bid fails if what follows changes what the process knew.
5. Everything that a plan or a journal has as finished was finished, whoever wrote it. So a late
   record of a process that has lost the plan is never wrong. Once the next owner has written its
   plan, the record is ignored, and what it has as finished may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from drainer.errors import PlanRefused
from drainer.model.codec import Whole
from drainer.model.formats import PLAN_TOPIC
from drainer.store.journal import decode_line, encode_line

_ANOTHER = "Or name another plan with --plan."
PART_BYTES = 512 * 1024  # Less than brokers accept in a record by default, which is 1 MiB.
SLOTS = 2
DIGITS_MOST = 18  # A number in a key has at most this many. Python parses no more than 4,300.
_BID, _PLAN, _JOURNAL = "bid", "plan", "journal"


class Owner(NamedTuple):
    """A process that bids for a plan, and the epoch of its bid."""

    epoch: int
    token: str


@dataclass(frozen=True, slots=True)
class Bid:
    """The content of a bid. ``by`` is the person at a host, and ``at`` the time."""

    format: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class PartHead:
    """The first line of a part of a plan: the number of the write, and what makes it complete."""

    number: Whole
    parts: Whole
    digest: str


class KeyedRecord(NamedTuple):
    """A record of the topic. A tombstone has no value."""

    key: bytes
    value: bytes | None


class Snapshot(NamedTuple):
    """A complete plan: its bytes, the process that wrote it, and the number of the write."""

    owner: Owner
    number: int
    data: bytes


class PlanLog:
    """The records of one plan, taken in the order of the log. All readers come to the same plan."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The latest values, by owner and the rest of the key.
        self._values: dict[tuple[Owner, str], bytes] = {}
        self._bids: dict[Owner, Bid] = {}  # In the order of the log.
        self._snapshot: Snapshot | None = None
        self._is_known = False

    def take(self, record: KeyedRecord) -> None:
        """Take the next record. Raises PlanRefused if a newer version of drainer wrote it.

        Records of other plans are ignored, and so are records that drainer did not write.
        """
        key = _parsed(self.name, record.key)
        if key is None:
            return
        owner, rest = key
        self._is_known = False
        if record.value is None:
            self._values.pop(key, None)
        elif rest != _BID:
            self._values[key] = record.value
        elif owner not in self._bids:
            with suppress(ValueError):
                bid = decode_line(record.value, Bid)
                PLAN_TOPIC.ensure_read(bid.format, PlanRefused, _ANOTHER)
                self._bids[owner] = bid

    @property
    def epoch(self) -> int:
        """The highest epoch of all bids; 0 if there is none."""
        return max((owner.epoch for owner in self._bids), default=0)

    def winner(self, epoch: int) -> Owner | None:
        """Return whose bid was the first of an epoch."""
        return next((owner for owner in self._bids if owner.epoch == epoch), None)

    def bid(self, owner: Owner) -> Bid:
        return self._bids[owner]

    @property
    def snapshot(self) -> Snapshot | None:
        """The plan that counts; None if there is none, or if it is not complete yet."""
        if not self._is_known:
            self._snapshot, self._is_known = self._newest(), True
        return self._snapshot

    @property
    def version(self) -> object:
        """A value that changes with every record of the plan that counts; None without a plan."""
        found = self.snapshot
        return found and (found.owner, found.number, set(self._of(found.owner, _JOURNAL)))

    @property
    def is_cut(self) -> bool:
        """Whether there are parts of plans, but no complete plan."""
        return self.snapshot is None and any(rest.startswith(_PLAN) for _, rest in self._values)

    def journals(self, owner: Owner) -> dict[int, dict[int, bytes]]:
        """Return the pieces of a process's journals, by generation and number."""
        found: dict[int, dict[int, bytes]] = {}
        for rest, value in self._of(owner, _JOURNAL).items():
            generation, number = map(int, rest.split("/")[1:])
            found.setdefault(generation, {})[number] = value
        return dict(sorted(found.items()))

    def parts(self, owner: Owner, number: int, data: bytes) -> Iterator[KeyedRecord]:
        """Yield the records that write a plan. ``number`` is one more than at the last write."""
        pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        head = PartHead(number, len(pieces), sha256(data).hexdigest())
        for index, piece in enumerate(pieces):
            key = self._key(owner, f"{_PLAN}/{number % SLOTS}/{index}")
            yield KeyedRecord(key, encode_line(head) + piece)

    def bidding(self, owner: Owner, bid: Bid) -> KeyedRecord:
        """Return the record that bids for the plan."""
        return KeyedRecord(self._key(owner, _BID), encode_line(bid))

    def piece(self, owner: Owner, generation: int, number: int, lines: bytes) -> KeyedRecord:
        """Return the record of a piece of a journal."""
        return KeyedRecord(self._key(owner, f"{_JOURNAL}/{generation}/{number}"), lines)

    def tombstones(
        self, owner: Owner, below: int | None = None, *, whole: bool = False
    ) -> Iterator[KeyedRecord]:
        """Yield tombstones for what the complete plan of an owner has made useless.

        These are all records of lower epochs, and the owner's journals of generations ``below`` a
        given one, or all its journals. With ``whole``, the plan itself is buried, too. Bids stay.
        """
        for other, rest in self._values:
            is_own = other == owner
            kind, *more = rest.split("/")
            merged = kind == _JOURNAL and (below is None or int(more[0]) < below)
            if other.epoch < owner.epoch or (is_own and (merged or (whole and kind == _PLAN))):
                yield KeyedRecord(self._key(other, rest), None)

    def _newest(self) -> Snapshot | None:
        for epoch in sorted({owner.epoch for owner in self._bids}, reverse=True):
            owner = self.winner(epoch)
            assert owner is not None, "somebody has bid with this epoch"
            slots = (self._complete(owner, slot) for slot in range(SLOTS))
            if found := [each for each in slots if each is not None]:
                return max(found, key=lambda each: each.number)
        return None

    def _complete(self, owner: Owner, slot: int) -> Snapshot | None:
        """Return the plan in a slot; None if one of its parts is missing or of another write."""
        head, data, index = None, bytearray(), 0
        while head is None or index < head.parts:
            value = self._values.get((owner, f"{_PLAN}/{slot}/{index}"), b"")
            line, _, piece = value.partition(b"\n")
            try:
                found = decode_line(line + b"\n", PartHead)
            except ValueError:
                return None
            if head not in (None, found):
                return None
            head, index = found, index + 1
            data += piece
        if sha256(data).hexdigest() != head.digest:
            return None
        return Snapshot(owner, head.number, bytes(data))

    def _of(self, owner: Owner, kind: str) -> dict[str, bytes]:
        found = self._values.items()
        return {r: value for (o, r), value in found if o == owner and r.startswith(f"{kind}/")}

    def _key(self, owner: Owner, rest: str) -> bytes:
        return f"{self.name}/{owner.epoch}/{owner.token}/{rest}".encode()


def _parsed(name: str, key: bytes) -> tuple[Owner, str] | None:
    """Return the owner and the rest of a key of a plan; None if it is another key."""
    try:
        of, epoch, token, kind, *numbers = key.decode("ascii").split("/")
    except ValueError:
        return None
    is_known = len(numbers) == {_BID: 0, _PLAN: 2, _JOURNAL: 2}.get(kind)
    are_numbers = all(n.isdecimal() and len(n) <= DIGITS_MOST for n in (epoch, *numbers))
    if of != name or not is_known or not are_numbers:
        return None
    return Owner(int(epoch), token), "/".join((kind, *numbers))
