"""The in-process engine: an event loop, a fetch thread, and workers that last for the whole drain.

A drain ends when everything is finished, a person interrupts it, the handler fails, or something
outside makes it unsafe to go on. In each case, the plan has what is finished.
"""

from __future__ import annotations

import asyncio
from signal import Signals
from typing import Any

from drainer.core.dispatch import Dispatcher
from drainer.engine.lifecycle import Lifecycle
from drainer.engine.loop import event_loop
from drainer.engine.outcome import Ending
from drainer.engine.pipeline import Pipeline
from drainer.engine.ports import DrainContext, Ports
from drainer.engine.signals import signals_to
from drainer.engine.watchdog import Watchdog
from drainer.errors import HandleFailed, StopSignal
from drainer.handler import Context
from drainer.host.calls import has_running_loop, in_a_thread
from drainer.model.option import Concurrency
from drainer.model.status import Summary
from drainer.text.mask import describe


class LocalDrain:
    """One run of a drain in this process, from a plan on disk to a summary.

    The caller may pass a dispatcher. If it does not, the context's pass makes one.

    Attributes:
        pipeline: the parts that move the sub-messages; None before the handler is open.
    """

    def __init__(
        self, context: DrainContext, ports: Ports, dispatcher: Dispatcher | None = None
    ) -> None:
        self._context = context
        self._ports = ports
        self._ending = Ending()
        self.dispatcher = dispatcher or context.this_pass.dispatcher(
            context.plan, context.handler.selects, follows=ports.log is not None
        )
        self.pipeline: Pipeline | None = None

    def run(self) -> Summary:
        """Drain until the drain ends, and return how it ended.

        Raises Refused if the handler can't be opened, and the errors of ``Lifecycle.run``.
        """
        runtime = self._context.runtime
        loop = runtime.new_event_loop()

        def drain() -> Summary:
            with event_loop(lambda: loop):
                return self.run_on(loop)

        with runtime.interpreter():
            if not has_running_loop():
                # While the handler is opened, a signal must not end the process at once: the drain
                # has a plan by then, and takes it back if nothing was handled.
                with signals_to(lambda number, _: self._on_signal(Signals(number).name)):
                    return drain()
            # Only the main thread gets signals, and it will wait for the thread that drains.
            with runtime.stop_signals(loop, self._on_signal, self._context.give_up):
                return in_a_thread(drain).result()

    def run_on(self, loop: asyncio.AbstractEventLoop) -> Summary:
        """Drain on an event loop that the caller uses again afterwards."""
        main = loop.create_task(self.run_here())
        main.add_done_callback(lambda _: loop.stop())
        while not main.done():
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                pressed = isinstance(error, KeyboardInterrupt) and self._ending.on_signal is None
                if main.done() or pressed:
                    raise
                # asyncio raises these here if any task raises them. The drain itself goes on.
                self._on_loop_exception(loop, {"exception": error, "task": main})
            else:
                if not main.done():
                    self._ending.end(
                        HandleFailed(
                            "the handler stopped drainer's event loop with loop.stop()",
                            hint="Remove that call. To halt the drain, raise drainer.Fatal.",
                        )
                    )
        return main.result()

    async def run_here(self) -> Summary:
        """Drain on the running event loop, and replace its exception handler."""
        asyncio.get_running_loop().set_exception_handler(self._on_loop_exception)
        with Watchdog() as watchdog:
            await self._open_handler()
            self.pipeline = pipeline = Pipeline(
                self._context, self._ports, self.dispatcher, self._ending, watchdog
            )
            life = Lifecycle(self._context, pipeline, pipeline.checkpointer, self._ending)
            return await life.run()

    def calls(self) -> int:
        """Return how many calls are in flight. Any thread may call this."""
        return 0 if self.pipeline is None else self.pipeline.calls()

    def start_no_more(self) -> None:
        """Begin no more calls. Calls in flight go on."""
        if self.pipeline is not None:
            self.pipeline.start_no_more()

    async def _open_handler(self) -> None:
        context, plan, handler = self._context, self._context.plan, self._context.handler
        concurrency = Concurrency.of(context.running.concurrency)
        await handler.open(
            Context(
                topic=plan.terms.topic,
                group=plan.terms.group,
                drain_id=plan.terms.drain_id,
                concurrency=concurrency.most_for(threads=not handler.is_async),
                options=context.options,
                write_to=self._ports.write_to,
                extras=self._ports.extras,
            ),
            context.runtime.blocking_call,
        )

    def _on_signal(self, name: str) -> None:
        if self._ending.on_signal is None:  # The handler is being opened.
            raise StopSignal(f"interrupted by {name}")
        self._ending.on_signal(name)

    def _on_loop_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # The loop reports an exception of a callback, or of a task that nobody awaits. If the
        # report has no exception, it is only a remark.
        error = context.get("exception")
        if isinstance(error, BaseException):
            if "task" in context or "future" in context:
                error = HandleFailed(
                    f"a task of the handler failed: {describe(error)}",
                    hint="Await every task inside handle(): its return means done.",
                    cause=error,
                )
            self._ending.end(error)
