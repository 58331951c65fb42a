"""Where the tests of Spark run: on a master, or on a server of Spark Connect."""

from __future__ import annotations

import os

import pytest

# A master, or "connect" for a server of Spark Connect. By default, a task that fails is tried once
# more.
ON = os.environ.get("DRAINER_TEST_SPARK", "local[2,2]")
classic = pytest.mark.skipif(ON == "connect", reason="needs a SparkContext")
local = pytest.mark.skipif(not ON.startswith("local["), reason="needs a local session")
connect = pytest.mark.skipif(ON != "connect", reason="needs a server of Spark Connect")
