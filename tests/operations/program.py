"""A program that drains, reports when it has begun, and what ended it: bootstrap, topic, plan.

It drains inside an event loop of its own, as a notebook does, if there is another argument.
"""

from __future__ import annotations

import asyncio
import sys
import time

import drainer


class Slow(drainer.Handler):
    def handle(self, sub: drainer.SubMessage) -> None:
        print("begun", flush=True) if sub.message.offset == 0 else None
        time.sleep(0.1)


def main() -> None:
    bootstrap, topic, plan = sys.argv[1:4]
    try:
        drainer.drain(
            topic=topic,
            group=f"g-{topic}",
            handler=Slow,
            client={"bootstrap.servers": bootstrap},
            from_="earliest",
            plan=plan,
        )
    except KeyboardInterrupt as error:
        cause = error.__cause__
        assert isinstance(cause, drainer.DrainerError)
        way = error.__notes__[-1].split()[0]
        print("KeyboardInterrupt", type(cause).__name__, cause.summary.status, way)


async def cell() -> None:
    main()


if __name__ == "__main__":
    asyncio.run(cell()) if sys.argv[4:] else main()
