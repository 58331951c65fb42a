"""The demo plays from start to finish, prints what it found, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafka.topic import eventually

SMALL = ("--messages", "60", "--concurrency", "1000")  # three rounds of updates


@pytest.mark.long
def test_the_demo_is_interrupted_resumed_and_verified(bootstrap: str, tmp_path: Path) -> None:
    words = ("demo", "-b", bootstrap, *SMALL)

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
    admin = AdminClient({"bootstrap.servers": bootstrap})
    eventually(
        lambda: (
            not any(name.startswith("drainer-demo") for name in admin.list_topics(timeout=5).topics)
        ),
        "the demo's topic is gone",
    )
