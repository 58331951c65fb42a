"""The version of drainer, which the build takes from the tag and the commit."""

from __future__ import annotations

from importlib import import_module

try:
    # It is imported by its name, because checks of imports and types run without it, too.
    __version__: str = import_module("drainer._version").__version__
except ImportError:  # This is a checkout that was never installed.
    __version__ = "0+unknown"
