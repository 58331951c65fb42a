"""How the sandbox speaks: through a callback, because printing is the terminal's business."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]


def unheard(text: str) -> None:
    """Take a line of progress that nobody waits for."""
