"""The latency of a handler as an earlier drain of it measured it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from drainer.errors import UsageError
from drainer.insight.forecast.distribution import Distribution

_IN_REPORT = re.compile(r"<script[^>]*application/json[^>]*>(.*?)</script>", re.DOTALL)
_HINT = (
    "take the plan of a drain that has handled something, what `drainer run --json` printed, or"
    " what it wrote with --report"
)


def latency_from(path: Path) -> Distribution:
    """Reads ``latency`` of a plan, of a drain's ``--json``, or of a report, which holds that.

    Raises UsageError when the file can't be read or has none.
    """
    try:
        text = path.read_text(encoding="utf-8")
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
    for piece in _IN_REPORT.findall(text) or [text, *text.splitlines()]:
        try:
            found.append(json.loads(piece))
        except ValueError:
            continue
    return found


def _measured(data: Any) -> dict[str, Any] | None:
    latency = data.get("latency") if isinstance(data, dict) else None
    return latency if isinstance(latency, dict) and latency.get("percentiles_s") else None
