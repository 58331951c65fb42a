"""A terminal that is recorded while it is looked at, for pictures of it in the documentation."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from drainer.escape import json_text
from drainer.view.layout import safe
from drainer.view.terminal import Terminal

COLUMNS, ROWS = 100, 40


class RecordingTerminal(Terminal):
    """A terminal like any other, which is an SVG afterwards: in colour and ``COLUMNS`` wide,
    whatever the real one is.

    Of a live view the last frame is recorded. Questions are asked, but not recorded.
    """

    is_recorded = True

    def __init__(self, *settings: Any, **streams: Any) -> None:
        super().__init__(*settings, **streams)
        self._recorder = Console(
            file=io.StringIO(),
            width=COLUMNS,
            height=ROWS,
            record=True,
            force_terminal=True,
            color_system="truecolor",
            no_color=False,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def data(self, obj: Any) -> None:
        """Data goes to stdout as ever, and is recorded indented, as on a screen."""
        super().data(obj)
        self.keep(Text(json_text(obj, indent=True)))

    def show(self, renderable: RenderableType, *, urgent: bool = False) -> None:
        super().show(renderable, urgent=urgent)
        if urgent or not self.quiet:
            self.keep(renderable)

    def keep(self, renderable: RenderableType) -> None:
        renderable = safe(renderable)
        self._recorder.print(renderable, soft_wrap=True)

    def save_svg(self, path: Path, title: str) -> None:
        """Writes the recording; the title stands in the window's bar."""
        path.write_text(self._recorder.export_svg(title=title, clear=False), encoding="utf-8")
