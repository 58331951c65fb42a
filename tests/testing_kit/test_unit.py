"""Unit tests of a handler without Kafka: its messages, sub-messages, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import drainer
from drainer import Context, Handler, Message, SubMessage, testing
from drainer.errors import Halted, HandleFailed, Refused, SplitFailed
from drainer.testing import Result

from .handlers import Documents


def run(handler: Any, *values: Any, **options: Any) -> Result:
    return asyncio.run(testing.run(handler, testing.messages(values), **options))


class TooMany(Exception):
    """An error as clients raise it for HTTP 429."""

    status_code = 429


class OnTheLoop(Documents):
    """Raises what the sub-key names; errors that request another attempt, at the first one."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.requested = set[object]()

    async def handle(self, sub: SubMessage) -> None:
        self.work(sub)

    def work(self, sub: SubMessage) -> None:
        error = {
            "later": drainer.Retry("busy", after=3600),
            "429": TooMany("slow down"),
            "old": drainer.Skip("too old"),
            "bad": drainer.GiveUp("CHECK violated"),
            "bug": KeyError("title"),
            "away": ConnectionError("no route"),
        }.get(str(sub.key))
        again = isinstance(error, drainer.Retry | TooMany)
        if error is None or (again and sub.key in self.requested):
            return
        self.requested.add(sub.key)
        raise error


class OnThreads(OnTheLoop):
    def handle(self, sub: SubMessage) -> None:  # type: ignore[override]
        self.work(sub)


class InBatches(OnTheLoop):
    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        for sub in subs:
            self.work(sub)


class OpensAndCloses(Handler):
    """Has both as coroutines."""

    async def open(self, context: Context) -> None:
        self.life = [f"open {context.concurrency} {dict(context.options)}"]

    def handle(self, sub: SubMessage) -> None:
        self.life.append("handle")

    async def close(self) -> None:
        self.life.append("close")


def test_a_message_is_made_of_nothing_or_of_what_is_named() -> None:
    empty, made = testing.message(), testing.message([1], offset=7, headers=[("trace", b"t")])

    assert (empty.topic, empty.partition, empty.offset) == ("orders", 0, 0)
    assert (empty.key, empty.value, empty.timestamp) == (None, None, None)
    assert (made.offset, made.value, made.headers) == (7, b"[1]", [("trace", b"t")])
    assert testing.message(headers={"trace": "t"}).headers == made.headers
    values = [testing.message(value).value for value in ("é", b"\xff", {"a": [1]})]
    assert values == ["é".encode(), b"\xff", b'{"a":[1]}']
    assert testing.message("a", "key").key == b"key"


@pytest.mark.parametrize("one", ["one text", b"one text"])
def test_one_text_is_no_list_of_messages(one: Any) -> None:
    with pytest.raises(TypeError, match="for one value, use message"):
        testing.messages(one)


def test_options_are_text_as_the_command_line_gives_them() -> None:
    context = testing.context(url="http://localhost", size=5)

    assert context.options == {"url": "http://localhost", "size": "5"}


def test_split_gives_sub_messages_as_handle_receives_them() -> None:
    message = testing.message(["a", None], offset=3)

    subs = testing.split(Documents, message)

    assert [sub.key for sub in subs] == ["a", None]
    assert [sub.index for sub in subs] == [0, 1]
    assert [sub.id.split(":")[1:] for sub in subs] == [["0", "3", "0"], ["0", "3", "1"]]
    assert {sub.attempt for sub in subs} == {1}
    assert {sub.message for sub in subs} == {message}


def test_split_without_a_method_gives_the_message_under_its_key() -> None:
    (sub,) = testing.split(OpensAndCloses, testing.message("v", "k"))

    assert (sub.key, sub.payload) == (b"k", b"v")


def test_split_raises_what_the_method_raises_and_rejects_what_a_drain_rejects() -> None:
    class Odd(Documents):
        def split(self, message: Message) -> Iterator[SubMessage]:
            if message.value is None:
                raise drainer.Skip("deleted")
            yield SubMessage(1.5)

    with pytest.raises(drainer.Skip, match="deleted"):
        testing.split(Odd, testing.message())
    with pytest.raises(SplitFailed, match="unstable type: float"):
        testing.split(Odd, testing.message("x"))


def test_a_sub_message_that_was_not_delivered_names_the_source_of_its_id() -> None:
    with pytest.raises(RuntimeError, match=r"drainer\.testing\.split"):
        _ = SubMessage("a").id


@pytest.mark.parametrize("handler", [OnTheLoop, OnThreads, InBatches])
def test_a_run_reports_what_became_of_each_sub_message(handler: type[Handler]) -> None:
    keys = ["ok", "later", "429", "old", "bad", "bug", "away"]

    result = run(handler, keys)

    assert {sub.key for sub in result.done} == {"ok", "later", "429"}
    assert [(sub.key, str(error)) for sub, error in result.skipped] == [("old", "too old")]
    given_up = {sub.key: type(error) for sub, error in result.given_up}
    assert given_up == {"bad": drainer.GiveUp, "bug": KeyError, "away": ConnectionError}
    reasons = {str(error) for _, error in result.retried}
    assert reasons == {"busy", "HTTP 429"}


def test_a_message_that_split_rejects_is_reported_and_the_rest_is_done() -> None:
    class Picky(Documents):
        def split(self, message: Message) -> Iterator[SubMessage]:
            if message.value == b"[]":
                raise drainer.Skip("empty")
            return super().split(message)

    result = run(Picky, "not JSON", [], ["a"])

    assert [sub.message.offset for sub in result.done] == [2]
    assert [(sub.message.offset, str(e)) for sub, e in result.skipped] == [(1, "empty")]
    ((rejected, error),) = result.given_up
    assert (rejected.message.offset, type(error).__name__) == (0, "JSONDecodeError")


def test_no_more_calls_run_at_once_than_allowed() -> None:
    class Counting(Documents):
        running, most = 0, 0

        async def handle(self, sub: SubMessage) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1

    handler = Counting()

    run(handler, *[["a", "b", "c", "d"]] * 5, concurrency=3)

    assert handler.most == 3


def test_open_and_close_may_be_coroutines_and_get_the_options() -> None:
    handler = OpensAndCloses()

    run(handler, "v", options={"size": 5}, concurrency=4)

    assert handler.life == ["open 4 {'size': '5'}", "handle", "close"]


def test_several_partitions_may_take_turns() -> None:
    messages = [testing.message(["a"], offset=n, partition=n % 2) for n in range(6)]

    result = asyncio.run(testing.run(Documents, messages))

    assert sorted(sub.message.offset for sub in result.done) == list(range(6))


def test_nothing_to_handle_is_fine() -> None:
    assert run(Documents) == Result()


def test_messages_with_one_offset_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"offsets must rise.*drainer\.testing\.messages"):
        asyncio.run(testing.run(Documents, [testing.message(["a"]), testing.message(["b"])]))


def raising(name: str, error: Exception) -> type[Handler]:
    def method(self: Handler, *_: object) -> None:
        raise error

    return type("Raising", (OnThreads,), {name: method})


@pytest.mark.parametrize(
    ("name", "error", "ends", "printed"),
    [
        ("handle", drainer.Fatal("no index"), HandleFailed, "no index"),
        ("handle", drainer.Retry("busy"), HandleFailed, r"100 attempts ended with Retry\('busy'\)"),
        ("split", drainer.Fatal("no schema"), SplitFailed, "no schema"),
        ("open", OSError("no port"), Refused, "no port"),
        ("close", OSError("not flushed"), Halted, "not flushed"),
    ],
)
def test_what_ends_a_drain_is_raised(
    name: str, error: Exception, ends: type[Exception], printed: str
) -> None:
    with pytest.raises(ends, match=printed):
        run(raising(name, error), ["a"])


def test_a_run_that_is_cancelled_begins_nothing_more() -> None:
    tests: list[asyncio.Future[Result]] = []

    class Hangs(Documents):
        begun = 0

        async def handle(self, sub: SubMessage) -> None:
            self.begun += 1
            tests[0].cancel()
            await asyncio.Event().wait()

    handler = Hangs()

    async def main() -> None:
        run = testing.run(handler, testing.messages([["a"]] * 5))
        tests.append(asyncio.ensure_future(run))
        with pytest.raises(asyncio.CancelledError):
            await tests[0]
        assert asyncio.get_running_loop().get_exception_handler() is None

    asyncio.run(main())
    assert handler.begun == 1


@pytest.mark.parametrize("kind", [drainer.Retry, drainer.Skip, drainer.GiveUp])
@pytest.mark.parametrize("reason", [5, ValueError("bad"), None])
def test_a_reason_that_is_not_text_is_a_type_error(kind: Any, reason: object) -> None:
    with pytest.raises(TypeError, match="the reason must be text") as refused:
        kind(reason)
    assert ("a delay is after=" in str(refused.value)) == (kind is drainer.Retry)


@pytest.mark.parametrize("after_s", [float("nan"), float("inf")])
def test_a_time_to_retry_at_is_a_number(after_s: float) -> None:
    with pytest.raises(ValueError, match="after="):
        drainer.Retry("later", after=after_s)
