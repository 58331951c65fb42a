"""Every command with the least rights, and with each missing, on a broker that checks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.brokers import Broker
from scenarios.trust.case import Stage
from scenarios.trust.rights import ATTEMPTS, Attempt, strict_broker, try_right_of_tasks, try_rights


@pytest.fixture(scope="module")
def strict(kafka_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with strict_broker(tmp_path_factory.mktemp("strict")) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.command)
def test_the_least_rights_are_enough_and_each_missing_one_is_named(
    attempt: Attempt, strict: Broker, tmp_path: Path
) -> None:
    assert try_rights(Stage(strict, tmp_path), attempt)


@pytest.mark.long
def test_a_right_that_tasks_on_spark_lack_is_named(strict: Broker, tmp_path: Path) -> None:
    try_right_of_tasks(Stage(strict, tmp_path))
