"""The functions for programs, on a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import drainer
from drainer.engine.control import Change, Stop
from drainer.errors import Halted, Interrupted, PlanRefused, PlanUnready, Signalled, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import GroupLock
from drainer.model.option import Concurrency
from drainer.model.resuming import Resuming
from drainer.model.terms import Unkeyed
from drainer.store.plan_file import PlanFile
from drainer.view.plan import plan_page
from drainer.view.program import text
from kafka.topic import Topic

MESSAGES = 40
SCRIPT = Path(__file__).with_name("program.py")
SLOW = f"{Path(__file__).parents[1]}/{__name__}:Slow"  # As a command in any folder names it.


class Slow(drainer.Handler):
    """Takes its time, so that a drain can be stopped half-way."""

    handled: list[str]

    async def handle(self, sub: drainer.SubMessage) -> None:
        await asyncio.sleep(0.02)
        self.handled.append(sub.id)


class Broken(drainer.Handler):
    """Handles the first message, and fails at all others."""

    def handle(self, sub: drainer.SubMessage) -> None:
        if sub.message.offset:
            raise ValueError("no such document")


class LateToFail(drainer.Handler):
    """Fails at the first message, when it has handled others."""

    def split(self, message: drainer.Message) -> list[drainer.SubMessage]:
        return [drainer.SubMessage(key=message.offset)]

    async def handle(self, sub: drainer.SubMessage) -> None:
        if sub.message.offset == 0:
            await asyncio.sleep(0.5)
            raise ValueError("no such document")


class Nesting(drainer.Handler):
    """Drains for another group when it is opened, on the event loop of its own drain."""

    inner: dict[str, Any]
    found: str

    async def open(self, context: drainer.Context) -> None:
        Nesting.found = drainer.drain(handler=Slow, **self.inner).status

    async def handle(self, sub: drainer.SubMessage) -> None: ...


@pytest.fixture
def backlog(bootstrap: str, topic_name: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Arguments of a drain of a new topic, whose messages are one lane."""
    topic = Topic(bootstrap, topic_name)
    topic.produce([str(n) for n in range(MESSAGES)], key=b"one")
    Slow.handled = []
    yield {
        "topic": topic.name,
        "group": f"g-{topic.name}",
        "client": {"bootstrap.servers": bootstrap},
        "from_": "earliest",
        "plan": tmp_path / "plan.json",
    }
    topic.discard()


def test_a_drain_returns_its_summary_and_reports_its_status(backlog: dict[str, Any]) -> None:
    seen: list[drainer.Status] = []
    summary = drainer.drain(handler=Slow, on_status=seen.append, **backlog)
    assert (summary.status, summary.messages.done, summary.conserved) == ("done", MESSAGES, True)
    assert len(Slow.handled) == len(set(Slow.handled)) == MESSAGES
    assert seen[-1].topic == backlog["topic"]
    again = drainer.drain(handler=Slow, or_resume=True, **backlog)
    assert (again.messages, again.ended_before) == (summary.messages, summary.history[-1].at)
    assert len(Slow.handled) == MESSAGES
    assert drainer.drain(handler=Slow, **backlog | {"from_": "committed"}).status == "empty"


def test_a_failed_drain_raises_its_cause_with_the_hint_and_the_way_to_resume(
    backlog: dict[str, Any],
) -> None:
    with pytest.raises(Halted) as caught:
        drainer.drain(handler=Broken, **backlog)
    assert caught.value.summary.status == "halted"
    hint, resume = caught.value.__notes__[::-1]
    assert hint == f"hint: {caught.value.hint}"
    assert "resume with failures.on_failure park or dead-letter" in hint
    assert resume.startswith("resume: drainer resume ")
    with pytest.raises(PlanRefused) as refused:
        drainer.drain(handler=Slow, **backlog)
    assert refused.value.__notes__ == [f"hint: {refused.value.hint}"]
    assert not isinstance(refused.value, Interrupted)
    summary = drainer.resume(backlog["plan"], client=backlog["client"], handler=Slow)
    assert (summary.status, len(Slow.handled)) == ("done", MESSAGES - 1)


def test_a_resume_of_a_running_drain_says_so_before_it_looks_at_the_group(
    backlog: dict[str, Any], cluster: Cluster
) -> None:
    with pytest.raises(Halted):
        drainer.drain(handler=Broken, **backlog)
    running = PlanFile(backlog["plan"])
    running.acquire()
    # A drain that runs may commit between the two moments at which another process reads its plan
    # and the group's offsets.
    cluster.alter_committed(backlog["group"], backlog["topic"], {0: MESSAGES})
    try:
        with pytest.raises(PlanUnready, match="another drainer process uses") as caught:
            drainer.resume(backlog["plan"], client=backlog["client"], handler=Slow)
    finally:
        running.release()
    assert "drainer stop" in (caught.value.hint or "")


def test_a_handler_that_only_the_program_has_is_resumed_by_the_program(
    backlog: dict[str, Any],
) -> None:
    class Local(Broken): ...

    settings = drainer.LocalSettings(concurrency=5, grace_s=2, deadline="2099-01-02T08:00Z")
    with pytest.raises(Halted) as caught:
        drainer.drain(handler=Local, settings=settings, **backlog)

    plan = str(backlog["plan"])
    call, place = str(caught.value.summary.resume), "in the program that defines Local"
    assert call.startswith(f"drainer.resume({plan!r}, client=…, handler=Local, settings=")
    assert caught.value.__notes__[0] == f"resume: {call} ({place})"
    assert f"{call}\n  {place}" in str(caught.value.summary)
    with pytest.raises(PlanRefused) as again:
        drainer.drain(handler=Local, **backlog)
    assert (again.value.hint or "").endswith(f"To resume it: `{call}` ({place})")
    with pytest.raises(UsageError) as refused:
        drainer.resume(plan, client=backlog["client"])
    assert "`drainer plan show PLAN` prints the call that resumes" in (refused.value.hint or "")
    assert call in text(plan_page(PlanFile(backlog["plan"]).load().plan, plan))
    assert "put the class into a file: handler FILE.py:Local" in (refused.value.hint or "")

    run: dict[str, Any] = {"client": backlog["client"], "Local": Slow}
    seen: list[drainer.Status] = []
    call = call.replace("client=…", "client=client, on_status=on_status")
    summary = eval(call, {"drainer": drainer, "on_status": seen.append, **run})
    assert (summary.status, seen[0].limits.concurrency) == ("done", 5)
    assert PlanFile(backlog["plan"]).load().plan.terms.handler == SLOW


def test_the_command_to_resume_repeats_the_settings_of_the_drain(backlog: dict[str, Any]) -> None:
    control = drainer.Control()

    def change_and_stop(status: drainer.Status) -> None:
        changed = status.limits.concurrency == 30
        control.request(Stop() if changed else Change({"concurrency": 30}), by="ana")

    secret = {"log": "here.log", "api_token": "s3cret"}
    settings = drainer.LocalSettings(concurrency=20, grace_s=5, options=secret)
    with pytest.raises(Signalled) as caught:
        drainer.drain(
            handler=Slow, settings=settings, control=control, on_status=change_and_stop, **backlog
        )

    options = "--concurrency 30 --tune grace=5s --set log=here.log"
    command = f"drainer resume {backlog['plan']} --handler {SLOW} {options}"
    assert caught.value.summary.resume == command
    note = f"resume: {command} (add --set api_token=… as before)"
    assert note in caught.value.__notes__
    assert PlanFile(backlog["plan"]).load().plan.account.resuming == Resuming(
        tuple(options.split()), ("--set api_token=…",), "process", "30"
    )


def test_a_resume_of_a_misspelt_plan_names_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "orders.indexer.plan.json").touch()
    with pytest.raises(PlanRefused, match="does not exist") as caught:
        drainer.resume(tmp_path / "orders.indxer.plan.json", client={"bootstrap.servers": "h:1"})
    assert f"Did you mean {tmp_path / 'orders.indexer.plan.json'}?" in (caught.value.hint or "")


def test_an_exception_of_the_callback_stops_the_drain_safely_and_is_raised(
    backlog: dict[str, Any],
) -> None:
    def fail(status: drainer.Status) -> None:
        if status.progress.messages.done:
            raise LookupError("the dashboard is gone")

    with pytest.raises(LookupError, match="the dashboard is gone"):
        drainer.drain(handler=Slow, on_status=fail, **backlog)
    assert 0 < len(Slow.handled) < MESSAGES
    drainer.resume(backlog["plan"], client=backlog["client"], handler=Slow)
    assert len(Slow.handled) == len(set(Slow.handled)) == MESSAGES


def test_a_drain_outside_of_the_main_thread_leaves_signals_alone(backlog: dict[str, Any]) -> None:
    found: list[Any] = []
    before = signal.getsignal(signal.SIGTERM)

    def look(status: drainer.Status) -> None:
        found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=lambda: drainer.drain(handler=Slow, on_status=look, **backlog))
    thread.start()
    thread.join()
    assert len(Slow.handled) == MESSAGES
    assert set(found) == {before}


def test_the_settings_of_a_drain_apply_whatever_its_control_was_made_with(
    backlog: dict[str, Any],
) -> None:
    control, seen = drainer.Control(drainer.LocalSettings()), list[int]()
    settings = drainer.LocalSettings(concurrency=3)
    drainer.drain(
        handler=Slow,
        settings=settings,
        control=control,
        on_status=lambda status: seen.append(status.limits.concurrency),
        **backlog,
    )
    assert set(seen) == {3}


def test_a_control_is_for_one_drain(backlog: dict[str, Any]) -> None:
    control = drainer.Control()
    drainer.drain(handler=Slow, control=control, **backlog)
    with pytest.raises(UsageError, match="this Control has controlled a drain before") as caught:
        drainer.drain(handler=Slow, control=control, **backlog | {"from_": "committed"})
    assert caught.value.hint == "Make one per drain."
    assert len(Slow.handled) == MESSAGES


def test_a_preview_may_end_it_before_anything_is_touched(backlog: dict[str, Any]) -> None:
    def refuse(preview: drainer.Preview) -> None:
        raise LookupError(f"{preview.offsets} are too many")

    with pytest.raises(LookupError, match=f"{MESSAGES} are too many"):
        drainer.drain(handler=Slow, on_preview=refuse, **backlog)
    assert not Slow.handled
    assert not backlog["plan"].exists()


def test_each_warning_of_the_preview_is_told_before_anything_is_touched(
    backlog: dict[str, Any],
) -> None:
    told: list[str] = []
    with pytest.raises(Halted):
        drainer.drain(handler=LateToFail, on_message=told.append, **backlog)
    assert [each for each in told if "does not exist" in each]  # The group is new.
    again = backlog["plan"].with_name("again.json")
    restart = {"plan": again, "from_": "committed-or-earliest"}

    def refuse(text: str) -> None:
        told.append(text)
        if "unfinished drain" in text:
            raise LookupError

    with pytest.raises(LookupError):
        drainer.drain(handler=Slow, on_message=refuse, **backlog | restart)
    assert told[-1].startswith(f"warning: {backlog['plan']} has an unfinished drain of this group")
    assert not again.exists()
    assert not Slow.handled
    seen: list[drainer.Preview] = []
    of_resume: list[str] = []
    drainer.resume(
        backlog["plan"],
        client=backlog["client"],
        handler=Slow,
        on_preview=seen.append,
        on_message=of_resume.append,
    )
    assert of_resume[: len(seen[0].warnings)] == [f"warning: {each}" for each in seen[0].warnings]


def test_a_program_that_takes_no_messages_finds_the_warnings_in_its_log(
    backlog: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    drainer.drain(handler=Slow, **backlog)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [each for each in warned if "does not exist" in each]
    assert all(each.startswith("warning: ") for each in warned)


def test_an_expression_that_makes_no_sense_is_refused_before_anything_is_touched(
    backlog: dict[str, Any],
) -> None:
    for first in (["payload.n =="], "payload.n =="):
        with pytest.raises(UsageError, match=r"payload\.n =="):
            drainer.drain(handler=Slow, first=first, **backlog)
    with pytest.raises(UsageError, match="an object of Slow, and not a class"):
        drainer.drain(handler=Slow(), **backlog)  # type: ignore[arg-type]
    assert not backlog["plan"].exists()


@pytest.mark.parametrize(
    ("given", "text", "hint"),
    [
        ({"from_": "yesterday"}, "from_ 'yesterday' is not", "2026"),
        ({"commit": False, "from_": "committed"}, "commit=False drains a range", "from_ @TIME"),
        ({"client": {}}, "no bootstrap servers", "Give bootstrap.servers in client."),
        (
            {"client": {"bootstrap_servers": "localhost:1"}},
            "no bootstrap servers",
            "Did you mean bootstrap.servers by bootstrap_servers?",
        ),
    ],
    ids=["from", "commit", "client", "misspelt"],
)
def test_an_error_names_arguments_and_no_options(
    backlog: dict[str, Any], given: dict[str, Any], text: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        drainer.drain(handler=Slow, **backlog | given)
    assert hint in (caught.value.hint or "")
    assert "--" not in f"{caught.value} {caught.value.hint}"
    where = {name: backlog[name] for name in ("topic", "group", "client")}
    with pytest.raises(UsageError, match=r"^latency: 10 of what\?"):
        drainer.estimate(handler="count", latency="10", **where)


def test_the_plan_keeps_the_client_s_file_of_a_resume(
    backlog: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(Halted):
        drainer.drain(handler=Broken, **backlog)
    client = tmp_path / "client.properties"
    client.write_text("".join(f"{name}={text}\n" for name, text in backlog["client"].items()))
    client.chmod(0o600)
    drainer.resume(backlog["plan"], client=client, handler=Slow)
    assert json.loads(backlog["plan"].read_text())["client_config"] == str(client)


def test_cancelling_a_task_stops_its_drain_safely(backlog: dict[str, Any]) -> None:
    async def cancel_and_resume() -> drainer.Summary:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def look(status: drainer.Status) -> None:
            if status.progress.messages.done:
                loop.call_soon_threadsafe(begun.set)

        task = asyncio.create_task(
            drainer.drain_async(handler=Slow, on_status=look, control=None, **backlog)
        )
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert 0 < len(Slow.handled) < MESSAGES
        return await drainer.resume_async(backlog["plan"], client=backlog["client"], handler=Slow)

    assert asyncio.run(cancel_and_resume()).status == "done"
    assert len(Slow.handled) == len(set(Slow.handled)) == MESSAGES


@pytest.mark.parametrize("where", [[], ["in a loop"]], ids=["", "in a loop"])
@pytest.mark.parametrize(
    "later", [pytest.param([], marks=pytest.mark.long), [signal.SIGTERM]], ids=["", "and SIGTERM"]
)
def test_ctrl_c_stops_a_drain_safely_and_is_raised(
    backlog: dict[str, Any], bootstrap: str, later: list[signal.Signals], where: list[str]
) -> None:
    program = subprocess.Popen(
        [sys.executable, str(SCRIPT), bootstrap, backlog["topic"], str(backlog["plan"]), *where],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    for number in (signal.SIGINT, *later):
        os.kill(program.pid, number)
    rest, _ = program.communicate(timeout=60)
    assert rest.splitlines() == ["KeyboardInterrupt Signalled interrupted resume:"]
    done = drainer.resume(backlog["plan"], client=backlog["client"], handler="count").messages.done
    assert done == MESSAGES


@pytest.mark.parametrize("at", [(Cluster, "topic"), (GroupLock, "acquire")], ids=["checks", "lock"])
def test_ctrl_c_in_a_running_event_loop_stops_what_precedes_the_drain(
    backlog: dict[str, Any], monkeypatch: pytest.MonkeyPatch, at: tuple[type, str]
) -> None:
    def press(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(*at, press)

    async def cell() -> None:
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises((KeyboardInterrupt, Interrupted), match="interrupted"):
            drainer.drain(handler=Slow, **backlog)
        assert signal.getsignal(signal.SIGINT) is before

    asyncio.run(cell())
    assert (Slow.handled, backlog["plan"].exists()) == ([], False)


def test_everything_works_inside_a_running_event_loop(backlog: dict[str, Any]) -> None:
    """A cell of a notebook runs in the event loop of its kernel, and so does a web service."""
    where = {name: backlog[name] for name in ("topic", "group", "client", "from_")}

    async def cell() -> None:
        inspection = drainer.inspect(handler="count", **where)
        assert sum(part.messages for part in inspection.partitions) == MESSAGES
        estimate = drainer.estimate(handler="count", latency="100ms", **where)
        assert 0.9 * MESSAGES * 0.1 < estimate.seconds < 1.5 * MESSAGES * 0.1 + 1
        with pytest.raises(Halted, match="no such document"):
            drainer.drain(handler=Broken, **backlog)
        resumed = drainer.resume(backlog["plan"], client=backlog["client"], handler=Nesting)
        assert (resumed.status, Nesting.found) == ("done", "done")

    Nesting.inner = backlog | {
        "group": f"{backlog['group']}-2",
        "plan": backlog["plan"].parent / "2",
    }
    asyncio.run(cell())
    assert len(Slow.handled) == MESSAGES


def test_an_expression_or_a_partition_may_be_one_text(backlog: dict[str, Any]) -> None:
    where = {name: backlog[name] for name in ("topic", "group", "client", "from_")}
    found = drainer.inspect(handler="count", partitions="0", skip="key == 'one'", **where)
    assert found.skew is not None
    assert [(each.name, each.count) for each in found.skew.rules] == [("key == 'one'", MESSAGES)]
    assert drainer.estimate(handler="count", latency="1ms", partitions="0", **where).seconds
    with pytest.raises(UsageError, match=r"^skip: there is no k"):
        drainer.inspect(handler="count", skip=["k"], **where)
    with pytest.raises(UsageError, match=r"^partitions: '0,1' is not a whole number"):
        drainer.drain(handler="count", partitions="0,1", **backlog)
    summary = drainer.drain(handler="count", partitions="0", first="key == 'one'", **backlog)
    assert summary.messages.done == MESSAGES


def test_a_setting_may_be_the_text_that_a_command_takes() -> None:
    running = drainer.LocalSettings(concurrency="auto", deadline="2099-01-02T08:00Z", grace_s="1m")
    assert Concurrency.of(running.concurrency).is_auto
    assert (running.grace_s, running.deadline) == (60, datetime(2099, 1, 2, 8, tzinfo=UTC))
    failures = drainer.FailureSettings(on_failure="dead-letter", rate="5k/s", skip="payload.n > 1")
    assert failures.on_failure is drainer.OnFailure.DEAD_LETTER
    assert (failures.rate, failures.skip) == (5_000, ("payload.n > 1",))
    for wrong in (None, 100):
        with pytest.raises(UsageError, match=f"max_failures is {wrong}, and not Limit"):
            drainer.FailureSettings(max_failures=wrong)  # type: ignore[arg-type]
    payloads = drainer.PayloadSettings("lines", keys="payload.id", unkeyed="one-lane")
    assert payloads == drainer.PayloadSettings("lines", ("payload.id",), unkeyed=Unkeyed.ONE_LANE)
    with pytest.raises(UsageError, match="'any' is not one of own-lane, one-lane"):
        drainer.PayloadSettings(unkeyed="any")
    with pytest.raises(UsageError, match="'letter' is not one of halt, dead-letter"):
        drainer.FailureSettings(on_failure="letter")
