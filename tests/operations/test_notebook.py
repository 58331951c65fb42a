"""The functions for programs in a notebook, in a real kernel of IPython and on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from time import monotonic
from typing import Any

import pytest

from kafka.topic import Topic

pytestmark = pytest.mark.long  # A kernel takes seconds to start.
WAIT_S = 60
MESSAGES = 40
DEFINED = """
import asyncio
import drainer

class Slow(drainer.Handler):
    async def handle(self, sub):
        print("handling", sub.message.offset)
        await asyncio.sleep(0.1)

class Stuck(drainer.Handler):
    async def handle(self, sub):
        print("handling", sub.message.offset)
        await asyncio.sleep(600)

where = {where!r}
patient = drainer.LocalSettings(grace_s=600)  # One interrupt waits this long for calls in flight.
"""


@dataclass
class Ran:
    """What one cell printed, showed and raised."""

    printed: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    error: str | None = None


class Notebook:
    """A notebook whose cells run in a kernel."""

    def __init__(self, client: Any, interrupt: Callable[[], None]) -> None:
        self._client, self._interrupt = client, interrupt

    def run(self, code: str, *, interrupt_at: str | None = None, times: int = 1) -> Ran:
        """Run a cell; interrupt it so many times once it has printed ``interrupt_at``."""
        asked, until_s, ran = self._client.execute(code), monotonic() + WAIT_S, Ran()
        while monotonic() < until_s:
            try:
                message = self._client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    ran.printed += content["text"]
                case "execute_result":
                    ran.shown = content["data"]
                case "error":
                    ran.error = content["ename"]
                case "status" if content["execution_state"] == "idle":
                    return ran
            if interrupt_at is not None and interrupt_at in ran.printed:
                interrupt_at = None
                for _ in range(times):
                    self._interrupt()
        pytest.fail(f"the cell has not ended after {WAIT_S} s: {code}: {ran.printed}")


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    from jupyter_client.manager import start_new_kernel  # noqa: PLC0415 - of the extra for long tests

    manager, client = start_new_kernel(startup_timeout=WAIT_S)
    try:
        yield Notebook(client, manager.interrupt_kernel)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_drain_in_a_notebook_is_interrupted_resumed_and_shown(
    notebook: Notebook, bootstrap: str, topic_name: str, tmp_path: Path
) -> None:
    topic, client = Topic(bootstrap, topic_name), {"bootstrap.servers": bootstrap}
    topic.produce([str(n) for n in range(MESSAGES)], key=b"one lane")
    where = {"topic": topic.name, "group": "g", "client": client, "from_": "earliest"}
    plan = str(tmp_path / "plan.json")
    try:
        assert notebook.run(DEFINED.format(where=where)).error is None

        drained = f"drainer.drain(handler=Slow, plan={plan!r}, **where)"
        stopped = notebook.run(drained, interrupt_at="handling 2")
        assert (stopped.error, "handling 30" in stopped.printed) == ("KeyboardInterrupt", False)

        resumed = (
            f"drainer.resume({plan!r}, client=where['client'], settings=patient, handler={{}})"
        )
        at_once = notebook.run(resumed.format("Stuck"), interrupt_at="handling", times=2)
        assert at_once.error == "KeyboardInterrupt"

        ended = notebook.run(f"summary = {resumed.format('Slow')}\nprint(summary)\nsummary")
        assert ended.printed.count("handling") < MESSAGES
        assert "✓ Drained: 40 messages, 40 sub-messages\n" in ended.printed
        assert "✓ Drained: 40 messages" in ended.shown["text/plain"]
        assert ended.shown.keys() == {"text/plain"}
        named = notebook.run("[name for name in ('drain', 'inspect') if name in dir(drainer)]")
        assert named.shown["text/plain"] == "['drain', 'inspect']"

        estimated = notebook.run(
            "drainer.estimate(handler='count', latency='10ms', **where).seconds"
        )
        assert 0.1 < float(estimated.shown["text/plain"]) < 2
        assert notebook.run("drainer.inspect(**where).messages").shown["text/plain"] == "40"
    finally:
        topic.discard()
