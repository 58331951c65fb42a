"""Checks of what travels to Spark's tasks: a handler that needs more is only warned."""

from __future__ import annotations

import pytest

from drainer import Handler, testing
from drainer.testing import Effort, Finding, Level

from . import handlers

pytestmark = pytest.mark.usefixtures("no_other_process")


def found(handler: type[Handler]) -> dict[str, Finding]:
    sample = testing.messages([["a", ["b", "c"], None], ["a"]])
    certificate = testing.certify(handler, sample, handlers.state, effort=Effort(examples=1))
    assert not certificate.broken
    return {each.check: each for each in certificate.findings}


def test_a_handler_that_reads_the_value_gets_a_warning() -> None:
    warned = found(handlers.ReadsTheValue)["travels"]

    assert warned.level is Level.WARN
    assert "ValueNotShipped" in warned.text
    assert "orders/0/0[0]" in warned.text
    assert "whole_messages" in str(warned.hint)
    assert found(handlers.Declares)["travels"].level is Level.OK


def test_a_payload_that_can_t_be_sent_is_named() -> None:
    findings = found(handlers.SendsNothing)

    assert findings["payloads"].level is Level.WARN
    assert "orders/0/0[0]" in findings["payloads"].text
    assert "cannot pickle this" in findings["payloads"].text
    assert findings["travels"].level is Level.UNCHECKED
