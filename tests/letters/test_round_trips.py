"""Letters that are written again and again: each stays of the unit that was given up first.

The machine sends letters through drains, redrives to a handler, to their source, to a topic and to
a parking topic, in any order. A step may be killed before it is known to be done: it comes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from builders import a_plan
from drainer.letters.foreign import REDRIVES, reader
from drainer.letters.originals import completed
from drainer.message import Message, Origin, SubMessage, Unsplit
from drainer.model.terms import RedriveSettings
from drainer.policy.dead_letter import DeadLetter, Letter, dead_letter
from drainer.policy.redrive import SOURCE, LeftAlone, Redriven, split_letter
from drainer.split.splitting import split_or_reject

ORDERS = Origin("orders", "orders-id", 0)
KEEPS, LEAVES_PAYLOAD, LEAVES_ALL = range(3)  # what the topic of a letter has room for
ROOM = st.sampled_from([KEEPS, KEEPS, LEAVES_PAYLOAD, LEAVES_ALL])
READ = reader({})


@dataclass(frozen=True)
class Written:
    """A record of a dead-letter topic, and what it is a letter of: a message, or a part of it."""

    record: Message
    offset: int  # of the message in its source
    index: int | None  # None for the whole of it
    redrives: int
    attempts: int


def documents(message: Message) -> Iterator[SubMessage]:
    for document in json.loads(message.value or b""):
        yield SubMessage(document["id"], document)


def rejecting(message: Message) -> Iterator[SubMessage]:
    raise ValueError("not yet")


def pieces(value: bytes) -> list[tuple[str, object]]:
    return [(each["id"], each) for each in json.loads(value)]


class RoundTrips(RuleBasedStateMachine):
    letters = Bundle("letters")

    @initialize()
    def begin(self) -> None:
        self.source: list[Message] = []
        self.records = 0
        for _ in range(2):
            self.append(0)

    def append(self, redrives: int, value: bytes | None = None) -> None:
        at = len(self.source)
        value = value or json.dumps([{"id": f"{at}-{n}"} for n in range(3)]).encode()
        headers = [("trace", b"%d" % at)] + [(REDRIVES, b"%d" % redrives)] * bool(redrives)
        self.source.append(Message(ORDERS, at, b"customer", value, 1_000 + at, headers))

    def write(self, letter: DeadLetter, room: int, of: Written) -> Written:
        if room != KEEPS:
            letter = letter.without_payload()
        if room == LEAVES_ALL:
            letter = letter.smaller() or letter
        self.records += 1
        origin = Origin("dead", "dead-id", 0)
        headers = list(letter.headers)
        record = Message(origin, self.records, letter.key, letter.value, 9_000, headers)
        written = replace(of, record=record)
        self.ensure_same(written)
        return written

    def given_up(self, sub: SubMessage, attempts: int, former: Letter | None) -> DeadLetter:
        return dead_letter(
            sub,
            reason="failed",
            error=ValueError("no"),
            attempts=attempts,
            terms=a_plan(group="indexer", handler="shop:Reindex", drain_id="d").terms,
            time="2026-03-14T18:02:12.104+00:00",
            former=former,
        )

    def read(self, record: Message) -> Letter:
        """The letter, completed as by the record that it names."""
        letter = READ(record)
        if not letter.lacks_message:
            return letter
        return completed(record, letter, self.source[letter.message_offset])

    def ensure_same(self, written: Written) -> None:
        letter, message = self.read(written.record), self.source[written.offset]
        assert letter.is_message == (written.index is None)
        assert (letter.topic, letter.message_offset) == ("orders", written.offset)
        assert letter.index == (written.index or 0)
        assert (letter.redrives, letter.attempts) == (written.redrives, written.attempts)
        assert (letter.message_key, letter.timestamp) == (b"customer", message.timestamp)
        assert letter.headers == (("trace", b"%d" % written.offset),)

    @rule(target=letters, data=st.data(), room=ROOM)
    def split_fails(self, data: st.DataObject, room: int) -> Written:
        message = data.draw(st.sampled_from(self.source))
        [unit] = split_or_reject(rejecting, message)
        unit.message, unit.index = message, 0
        return self.write(self.given_up(unit, 0, None), room, self.first(message, None, 0))

    @rule(target=letters, data=st.data(), index=st.integers(0, 2), room=ROOM)
    def handle_fails(self, data: st.DataObject, index: int, room: int) -> Written:
        message = data.draw(st.sampled_from(self.source))
        sub = list(documents(message))[index]
        sub.message, sub.index = message, index
        return self.write(self.given_up(sub, 1, None), room, self.first(message, index, 1))

    @rule(target=letters, data=st.data())
    def another_tool_wrote_it(self, data: st.DataObject) -> Written:
        message = data.draw(st.sampled_from(self.source))
        place = {"topic": b"orders", "partition": b"0", "offset": b"%d" % message.offset}
        named = [(f"kafka_dlt-original-{name}", value) for name, value in place.items()]
        time = ("kafka_dlt-original-timestamp", (message.timestamp or 0).to_bytes(8, "big"))
        letter = DeadLetter(message.key, message.value, (*message.headers, *named, time))
        return self.write(letter, KEEPS, self.first(message, None, 0))

    def first(self, message: Message, index: int | None, attempts: int) -> Written:
        redrives = int(dict(message.headers).get(REDRIVES) or 0)
        return Written(message, message.offset, index, redrives, attempts)

    @rule(target=letters, written=letters, room=ROOM, rejects=st.booleans(), dies=st.integers(0, 2))
    def redrive_to_the_handler_fails(
        self, written: Written, room: int, rejects: bool, dies: int
    ) -> Written:
        """Redrive to a handler that fails; after a kill the letter comes again, from the bundle."""
        subs = self.redriven(written, None, rejects=rejects)
        if isinstance(subs[0], Unsplit):
            of = replace(written, redrives=written.redrives + 1)
            return self.write(self.given_up(subs[0], written.attempts, subs[0].letter), room, of)
        expected = pieces(self.source[written.offset].value or b"")
        if written.index is not None:
            expected = expected[written.index :][:1]
        assert [(sub.key, sub.payload) for sub in subs] == expected, "each document, in its place"
        sub = subs[dies % len(subs)]
        assert isinstance(sub, Redriven)
        of = Written(
            written.record,
            written.offset,
            sub.begin().index,
            written.redrives + 1,
            written.attempts + 1,
        )
        return self.write(self.given_up(sub.original, of.attempts, sub.letter), room, of)

    @rule(target=letters, written=letters, room=ROOM, to=st.sampled_from([SOURCE, "other"]))
    def redrive_to_a_topic_fails(self, written: Written, room: int, to: str) -> Written:
        [sub] = self.redriven(written, to)
        if isinstance(sub, LeftAlone):
            assert written.index is not None, "only parts are for a handler alone"
            return written
        assert isinstance(sub, Redriven)
        of = replace(written, redrives=written.redrives + 1, attempts=written.attempts + 1)
        return self.write(self.given_up(sub.original, of.attempts, sub.letter), room, of)

    @rule(written=letters)
    def redrive_to_the_source(self, written: Written) -> None:
        [sub] = self.redriven(written, SOURCE)
        if isinstance(sub, Redriven):
            value = sub.letter.message().value
            assert value == self.source[written.offset].value
            self.append(written.redrives + 1, value)

    def redriven(self, written: Written, to: str | None, rejects: bool = False) -> list[SubMessage]:
        def split(message: Message) -> list[SubMessage]:
            return split_or_reject(rejecting if rejects else documents, message)

        redrive = RedriveSettings(max_redrives=1_000, to=to)
        own = split if to is None else None
        return list(split_letter(redrive, written.record, split=own, read=self.read))


TestRoundTrips = RoundTrips.TestCase
TestRoundTrips.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=15
)
