"""The version of drainer, which the build takes from the tag and the commit."""

from __future__ import annotations

try:
    from drainer._version import __version__
except ImportError:  # This is a checkout that was never installed.
    __version__ = "0+unknown"

__all__ = ["__version__"]
