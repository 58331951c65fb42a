"""Tasks that may not die unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


def spawn(
    work: Coroutine[object, object, None], name: str, failed: Callable[[BaseException], None]
) -> asyncio.Task[None]:
    """Runs ``work`` as a task; an exception that ends it is told to ``failed``."""
    task = asyncio.create_task(work, name=name)

    def tell(ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            failed(error)

    task.add_done_callback(tell)
    return task
