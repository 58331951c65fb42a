"""Extensions: optional modules, which drainer imports only when somebody uses them.

The core knows extensions only by the names below, so a drain in one process imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from drainer.errors import Refused

# What ``pip install drainer[…]`` adds: packages that a drain in one process does not need.
EXTRAS = {
    "spark": ("pyspark", "pyarrow", "pandas", "lz4"),
    "bucket": ("obstore",),
    "connect": ("grpc", "grpc_status", "zstandard"),
    "http": ("aiohttp",),
    "report": ("jinja2", "markupsafe"),
    "registry": ("google", "grpc_tools", "httpx2"),  # Confluent's client needs httpx2.
    "msk": ("aws_msk_iam_sasl_signer",),
}


class Extension(StrEnum):
    """The modules of extensions that the core calls."""

    ESTIMATE = "drainer.insight.cli.estimate"
    LIMITS = "drainer.limits.file"
    MSK = "drainer.kafka.msk"  # It logs in at AWS.
    PAYLOADS = "drainer.payloads.formats"  # It has the decoders that use a schema registry.
    RECEIPTS = "drainer.letters.receipts"  # It writes the receipts of a redrive to its topic.
    REDRIVING = "drainer.letters.redriving"  # It makes the handler of a redrive.
    SPARK = "drainer.spark.api"
    SPARK_STATE = "drainer.spark.state.state"  # It keeps what tasks and the driver share.
    BUCKET_PLAN = "drainer.store.plan_bucket"  # It keeps a plan in an object store.

    def load(self) -> Any:
        """Import the module. Raises ExtraMissing when its packages are not installed."""
        if self is Extension.SPARK:  # The other extensions check this when they are used.
            ensure_installed("spark", "Spark")
        return import_module(self)


def without_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the properties that begin with a prefix such as ``http.``, and cut it off."""
    found = properties.items()
    return {name.removeprefix(prefix): v for name, v in found if name.startswith(prefix)}


class ExtraMissing(Refused):
    """Raised when something is requested whose packages are not installed."""


def ensure_installed(extra: str, what: str) -> None:
    """Raise ExtraMissing if a package that ``what`` needs is not installed."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        error = ExtraMissing(
            f"{what} needs {', '.join(missing)}, which this installation lacks",
            hint=f"Run `pip install '.[{extra}]'` in the folder of drainer's source.",
        )
        # Programs that import drainer show a traceback, which has notes but no hint.
        error.add_note(error.hint or "")
        raise error
