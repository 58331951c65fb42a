"""The latency of a handler as an earlier drain of it measured it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from drainer.core.distribution import Distribution
from drainer.errors import UsageError

_HINT = "take the plan of a drain that has handled something, or what `drainer run --json` printed"
_EMBEDDED = re.compile(
    r"<script[^>]*type=[\"']?application/json[\"']?[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE
)


def latency_from(path: Path) -> Distribution:
    """Reads ``latency`` of a plan, of a drain's ``--json``, or of a report that holds one of these.

    Raises UsageError when the file can't be read or has none.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--latency-from {path} can't be read: {error}", hint=_HINT) from None
    found = [measured for each in _objects(text) if (measured := _measured(each)) is not None]
    if not found:
        raise UsageError(f"--latency-from {path} holds no measured latency", hint=_HINT)
    try:
        mean_s = found[0].get("mean_s")
        return Distribution.from_percentiles(
            found[0]["percentiles_s"], None if mean_s is None else float(mean_s)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"--latency-from {path}: its latency makes no sense: {error}", hint=_HINT
        ) from None


def _objects(text: str) -> list[Any]:
    found = []
    for piece in (text, *_EMBEDDED.findall(text), *text.splitlines()):
        try:
            found.append(json.loads(piece))
        except ValueError:
            continue
    return found


def _measured(data: Any) -> dict[str, Any] | None:
    # At the top, or one level down: a report holds a summary beside other things.
    for each in (data, *(data.values() if isinstance(data, dict) else ())):
        if isinstance(each, dict) and isinstance(each.get("latency"), dict):
            latency: dict[str, Any] = each["latency"]
            if latency.get("percentiles_s"):
                return latency
    return None
