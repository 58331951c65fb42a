"""Runs ``drainer`` without writing plans and committing while it drains, to measure what these
cost."""

from __future__ import annotations

import asyncio

from drainer.cli import main
from drainer.engine.checkpointer import Checkpointer


async def never(self: Checkpointer) -> None:
    await asyncio.Event().wait()


if __name__ == "__main__":
    Checkpointer._keep_plan = never  # type: ignore[method-assign]  # noqa: SLF001
    main()
