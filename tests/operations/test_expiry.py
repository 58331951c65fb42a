"""How long the group's offsets stand, as far as it can be known."""

from __future__ import annotations

import pytest

from operations.conftest import MESSAGES, Story


def warned(story: Story) -> list[str]:
    return [text for text in story.prepared().action.warnings if "may expire" in text]


def test_a_group_that_handled_fresh_records_is_not_warned_of(story: Story) -> None:
    story.put_group(10)
    assert warned(story) == []


def test_a_group_that_may_have_been_empty_for_long_is_warned_of(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it handled is older than offsets are kept."""
    monkeypatch.setattr(story.cluster, "offsets_kept_s", lambda: 0.001)
    assert warned(story) == [], "there is no offset that could expire"
    story.put_group(10)
    assert len(warned(story)) == 1


def test_a_finished_drain_says_until_when_its_offsets_stand(story: Story) -> None:
    """Of a group that never had members they are kept from their commit on."""
    story.put_group(10)
    [note] = story.drain(story.prepared()).notes
    assert "stands at least until" in note


def test_of_a_group_that_had_members_it_says_until_when_they_stand_at_most(story: Story) -> None:
    """They are kept from when its last consumer left, and no broker tells when that was."""
    story.topic.live_member(story.group).close()
    story.put_group(10)
    [note] = story.drain(story.prepared()).notes
    assert f"group {story.group} stand until" in note
    assert "at most" in note
    assert story.committed == MESSAGES
