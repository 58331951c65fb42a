"""Results for programs, which ``print`` and notebooks show as pages."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar


class Shown:
    """A result that is shown as the page that a command prints for it. ``repr`` has all its fields.

    ``_page`` names the function that makes the page of it, as ``module:function``. The module is
    imported when a page is needed, because results lie below the views.
    """

    __slots__ = ()
    _page: ClassVar[str]

    def __init_subclass__(cls) -> None:
        # IPython prefers the ``__repr__`` of a class to the ``_repr_pretty_`` of its base.
        cls._repr_pretty_ = cls._repr_pretty_  # type: ignore[method-assign]

    def __str__(self) -> str:
        module, _, function = self._page.partition(":")
        page = getattr(import_module(module), function)(self)
        found: str = import_module("drainer.view.program").text(page)
        return found

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
