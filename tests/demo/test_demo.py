"""The demo plays from start to finish, prints what it found, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drainer.kafka.cluster import Cluster
from kafka.topic import eventually

SMALL = ("--messages", "60", "--concurrency", "1000")  # three rounds of updates


@pytest.mark.long
def test_the_demo_is_interrupted_resumed_and_verified(cluster: Cluster, tmp_path: Path) -> None:
    words = ("demo", "-b", cluster.settings.bootstrap_servers, *SMALL)

    done = subprocess.run(
        [sys.executable, "-m", "drainer", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for part in (
        "60 messages, one key, 3,000 updates",
        "partition order",
        "key order",
        "sub-key order",
        "Stopped on request; no data lost",
        "✓ Drained: 60 messages, 3,000 sub-messages",
        "none of them twice",
        "no document was updated out of order",
        "drainer, measured",
    ):
        assert part in done.stdout + done.stderr
    assert not [*tmp_path.iterdir()]
    eventually(
        lambda: not any(name.startswith("drainer-demo") for name in cluster.topic_names()),
        "the demo's topic is gone",
    )
