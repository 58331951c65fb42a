"""Deliberate mutants: small changes, each of which breaks a law, and the tests that must notice.

``python tests/mutants.py [NAME...]`` applies them one at a time to a copy of the tree, runs the
tests named beside each until one fails, and prints which layer that was. It exits with 1 when a
mutant survives or can't be applied, or when these tests fail without any mutant. Run it after tests
were cut. In the gate, ``test_mutants.py`` checks that each mutant still applies.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 240  # for the tests of one mutant; longer means that it hangs, which is noticed too

# Hypothesis reports the first example that it finds: nobody reads the least one here.
UNSHRUNK = """
from hypothesis import Phase, settings
settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate], deadline=None)
settings.load_profile("unshrunk")
"""


@dataclass(frozen=True)
class Mutant:
    """``text`` stands once in ``file``; the tests are tried in their order, the fastest first."""

    name: str
    law: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


LANES, LAWS = "tests/core/test_lanes.py", "tests/core/test_laws.py"
DISPATCH, LEDGER = "tests/core/test_dispatch.py", "tests/core/test_ledger.py"
PROGRESS, CLAIMS = "tests/core/test_progress.py", "tests/core/test_claims.py"
BUNDLES, RULES = "tests/core/test_bundles.py", "tests/core/test_rules.py"
FAILURES, BREAKER = "tests/core/test_failures.py", "tests/core/test_breaker.py"
OUTAGE, ADMISSION = "tests/core/test_outage.py", "tests/core/test_admission.py"
LETTERS = "tests/core/test_dead_letter.py"
POLICY, OUTSIDE = "tests/engine/test_failure_policy.py", "tests/engine/test_outside_trouble.py"
DRAIN, STOPPING = "tests/engine/test_local_drain.py", "tests/engine/test_stopping.py"
BOUNDS, ENDS = "tests/engine/test_engine_bounds.py", "tests/engine/test_drains_end.py"
JOURNAL, PLAN_FILE = "tests/store/test_journal.py", "tests/store/test_plan_file.py"
PLAN_FORMAT = "tests/store/test_plan_format.py"
SURVEY = "tests/core/test_survey.py"
GATHERING = "tests/core/test_gathering.py"
READING, FETCH = "tests/kafka/test_reading.py", "tests/kafka/test_fetch.py"
BACKLOG, COMMIT = "tests/kafka/test_backlog.py", "tests/kafka/test_commit.py"

MUTANTS = [
    # --- order ---
    Mutant(
        "lane-runs-two",
        "order",
        "drainer/core/lanes.py",
        "        if sub.lane is ALONE_RUNNING:\n",
        "        if sub.lane is None:\n",
        (LANES, LAWS),
    ),
    Mutant(
        "several-keys-head-one-lane",
        "order, several sub-keys",
        "drainer/core/lanes.py",
        "            if not turn.behind:\n",
        "            if turn.behind == 1:\n",
        (LANES, LAWS),
    ),
    Mutant(
        "coldest-lane-first",
        "hottest lane first",
        "drainer/core/lanes.py",
        "            rank = self._filled.bit_length() - 1\n",
        "            rank = (self._filled & -self._filled).bit_length() - 1\n",
        (LANES, LAWS),
    ),
    Mutant(
        "worker-stays-on-cold-lane",
        "hottest lane first",
        "drainer/core/lanes.py",
        "and lane.waiting.bit_length() >= self._filled.bit_length()",
        "and lane.waiting.bit_length() >= 1",
        (LANES, LAWS),
    ),
    Mutant(
        "lane-of-each-partition",
        "order, lanes across partitions",
        "drainer/core/dispatch.py",
        "            elif sub.keys is None:\n                push(sub, sub.key)\n",
        "            elif sub.keys is None:\n                push(sub, (partition, sub.key))\n",
        (DISPATCH, LAWS),
    ),
    Mutant(
        "barrier-does-not-wait",
        "order, barrier",
        "drainer/core/dispatch.py",
        "            if first is not sub.message or not _is_next(sub):\n",
        "            if first is None:\n",
        (DISPATCH, LAWS),
    ),
    Mutant(
        "barrier-ignores-its-own-message",
        "order, barrier",
        "drainer/core/dispatch.py",
        "    return not before or (part is not None and"
        " (part.bits | part.elsewhere) & before == before)\n",
        "    return True\n",
        (DISPATCH, RULES),
    ),
    Mutant(
        "barrier-holds-nothing",
        "order, barrier",
        "drainer/core/dispatch.py",
        "            gate.running = True\n",
        "            gate.running = False\n",
        (DISPATCH, LAWS),
    ),
    # --- commit ---
    Mutant(
        "watermark-one-too-far",
        "commit",
        "drainer/core/ledger.py",
        "self.watermark = pending[0].offset if pending else self.position",
        "self.watermark = pending[0].offset + 1 if pending else self.position",
        (LEDGER, LAWS),
    ),
    Mutant(
        "commit-before-the-plan",
        "commit",
        "drainer/engine/checkpointer.py",
        "        self._call = self._runtime.blocking_call(self._file.write, self.plan)\n",
        "        if commit:\n            await self._commit()\n"
        "        self._call = self._runtime.blocking_call(self._file.write, self.plan)\n",
        (f"{STOPPING}::test_one_signal_lets_what_is_in_the_handler_finish",),
    ),
    Mutant(
        "commit-of-another-drains-group",
        "commit",
        "drainer/engine/lifecycle.py",
        "lost is None and not isinstance(cause, NOT_OURS) and not self._work.doubtful\n",
        "lost is None and not self._work.doubtful\n",
        (f"{OUTSIDE}::test_a_source_that_fails_ends_the_drain_with_its_reason",),
    ),
    Mutant(
        "commit-that-moves-back",
        "commit",
        "drainer/core/progress.py",
        "        watermark = max(self.watermark, later.watermark)\n",
        "        watermark = later.watermark\n",
        (PROGRESS,),
    ),
    # --- conservation ---
    Mutant(
        "dead-not-counted",
        "conservation",
        "drainer/core/ledger.py",
        "        self.subs_otherwise[outcome] += 1\n",
        "        self.subs_otherwise[outcome] += outcome is not Outcome.DEAD\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "message-has-the-last-fate",
        "conservation",
        "drainer/core/ledger.py",
        "        part.fate = part.fate.or_worse(outcome)\n",
        "        part.fate = outcome\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "pending-counted-as-read-twice",
        "conservation",
        "drainer/core/progress.py",
        "        return replace(self, read=self.finished, pending=0)\n",
        "        return replace(self, pending=0)\n",
        (PROGRESS,),
    ),
    Mutant(
        "account-not-checked-at-the-end",
        "conservation",
        "drainer/engine/outcome.py",
        "    if not (messages.conserved and subs.conserved):\n",
        "    if False:\n",
        (ENDS,),
    ),
    # --- holes ---
    Mutant(
        "hole-at-the-end-is-waited-for",
        "holes",
        "drainer/core/ledger.py",
        "            self.watermark = self.position\n",
        "            pass\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "empty-message-stays",
        "holes",
        "drainer/core/ledger.py",
        "                self.watermark = offset + 1\n",
        "                self.watermark = offset\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "position-before-its-messages",
        "holes",
        "drainer/engine/pump.py",
        "            moved = True\n            if not self._deliver_some():\n",
        "            moved = True\n"
        "            for partition, position in self._batch.reached.items():\n"
        "                self._dispatcher.skip_to(partition, position)\n"
        "            if not self._deliver_some():\n",
        (f"{DRAIN}::test_a_drain_handles_everything_once_and_commits_its_end",),
    ),
    # --- journal, plan and what is folded into it ---
    Mutant(
        "journal-lacks-a-message",
        "journal",
        "drainer/core/ledger.py",
        "            finished = [offset for offset in self._changed_finished"
        " if offset >= watermark]\n",
        "            finished = [offset for offset in self._changed_finished"
        " if offset > watermark + 1]\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "journal-lacks-parts",
        "journal",
        "drainer/core/ledger.py",
        "                self._changed_partial.append(message)\n",
        "                pass\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "journal-tells-a-part-once",
        "journal",
        "drainer/core/ledger.py",
        "                message.part.changed = False\n",
        "                pass\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "journal-goes-on-past-a-full-disk",
        "journal",
        "drainer/store/journal.py",
        "        self._untaken = self._untaken[written:]\n        if self._untaken:\n",
        '        self._untaken, left = b"", self._untaken[written:]\n        if left:\n',
        (JOURNAL,),
    ),
    Mutant(
        "journal-takes-spoilt-records",
        "journal",
        "drainer/store/journal.py",
        '    if not line.endswith(b"\\n") or checksum != b"%08x" % zlib.crc32(body):\n',
        '    if not line.endswith(b"\\n"):\n',
        (JOURNAL,),
    ),
    Mutant(
        "journal-with-a-gap-is-taken",
        "journal",
        "drainer/store/plan_file.py",
        "            if generation > written.generation and head.follows > reached:\n",
        "            if False:\n",
        (JOURNAL,),
    ),
    Mutant(
        "journal-of-another-drain-is-taken",
        "journal",
        "drainer/store/plan_file.py",
        "            if head is not None and head.drain_id != written.drain_id:\n",
        "            if False:\n",
        (JOURNAL,),
    ),
    Mutant(
        "journal-removed-while-it-is-needed",
        "journal",
        "drainer/store/plan_file.py",
        "        self._remove_journals(below=plan.generation)\n",
        "        self._remove_journals()\n",
        (PLAN_FILE,),
    ),
    Mutant(
        "fold-forgets-whole-messages",
        "fold",
        "drainer/core/progress.py",
        "            if known is not None and partial[offset].is_whole:\n",
        "            if False:\n",
        (
            "tests/core/test_gathering.py::test_a_message_that_two_attempts_finished_between_them_leaves_a_plan_that_can_be_read",
        ),
    ),
    Mutant(
        "edited-plan-is-taken",
        "plan refused when damaged",
        "drainer/core/plan.py",
        '        digest = body.pop("digest", None)\n',
        '        body.pop("digest", None)\n        digest = _digest(body)\n',
        (PLAN_FORMAT, PLAN_FILE),
    ),
    Mutant(
        "plan-behind-its-commit-is-taken",
        "plan refused when damaged",
        "drainer/core/plan.py",
        "            if part.committed is not None and part.committed > self.watermark(number):\n",
        "            if False:\n",
        (PLAN_FORMAT, PLAN_FILE),
    ),
    # --- resume ---
    Mutant(
        "resume-forgets-parked-lanes",
        "resume",
        "drainer/core/dispatch.py",
        "        self.lanes = Lanes(self._rest, self.parked.copy())\n",
        "        self.lanes = Lanes(self._rest)\n",
        (DISPATCH, LAWS),
    ),
    Mutant(
        "resume-forgets-fates",
        "resume",
        "drainer/core/ledger.py",
        "        part.fate = fate_of(message.offset, self._earlier_fates)\n",
        "        part.fate = DONE\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "resume-takes-another-split",
        "resume",
        "drainer/core/ledger.py",
        "        known.insist_same(message, message.sub_keys)\n",
        "",
        (LEDGER, LAWS),
    ),
    Mutant(
        "resume-repeats-finished-messages",
        "resume",
        "drainer/core/ledger.py",
        " and not (self.resumed and offset in self._earlier)",
        "",
        (LEDGER, LAWS),
    ),
    Mutant(
        "resume-repeats-what-claims-finished",
        "resume",
        "drainer/core/claims.py",
        "                done |= bits[number] & 1 << index\n",
        "                pass\n",
        (CLAIMS,),
    ),
    # --- failure policy ---
    Mutant(
        "one-retry-too-few",
        "failure policy, retries",
        "drainer/policy/failures.py",
        "        spent = failing.failures > settings.retries\n",
        "        spent = failing.failures >= max(1, settings.retries)\n",
        (FAILURES,),
    ),
    Mutant(
        "no-retries-means-no-patience",
        "failure policy, --retries 0 in an outage",
        "drainer/policy/failures.py",
        "            patience_s = 0.0 if known_bad else self.patience_s(done)\n",
        "            patience_s = 0.0 if known_bad or not settings.retries"
        " else self.patience_s(done)\n",
        (f"{OUTSIDE}::test_an_outage_without_retries_gives_nothing_up",),
    ),
    Mutant(
        "retry-before-its-time",
        "failure policy, retries",
        "drainer/policy/admission.py",
        "        while self._heap and self._heap[0][0] <= now_s:\n",
        "        while self._heap:\n",
        (ADMISSION,),
    ),
    Mutant(
        "breaker-never-opens",
        "failure policy, breaker",
        "drainer/policy/breaker.py",
        "        if len(self._failures) < FAILURES:\n",
        "        if len(self._failures) <= FAILURES:\n",
        (BREAKER,),
    ),
    Mutant(
        "breaker-opens-among-successes",
        "failure policy, breaker",
        "drainer/policy/breaker.py",
        "        if SHARE * (FAILURES + succeeded) > FAILURES:\n",
        "        if False:\n",
        (BREAKER,),
    ),
    Mutant(
        "breaker-closed-by-anyone",
        "failure policy, half-open",
        "drainer/policy/breaker.py",
        "        if not self.open or sub is not self._probe:\n",
        "        if not self.open:\n",
        (BREAKER,),
    ),
    Mutant(
        "many-probes-at-once",
        "failure policy, half-open",
        "drainer/policy/breaker.py",
        "        return self._probe_at_s if self.open and self._probe is None else None\n",
        "        return self._probe_at_s if self.open else None\n",
        (BREAKER,),
    ),
    Mutant(
        "all-come-back-at-once",
        "failure policy, half-open",
        "drainer/policy/breaker.py",
        "        if not self._may_come_back and at_work:\n",
        "        if False:\n",
        (OUTAGE,),
    ),
    Mutant(
        "doubt-without-end",
        "failure policy, --max-doubt",
        "drainer/policy/failures.py",
        "            return settings.max_doubt_s\n",
        "            return inf\n",
        (OUTAGE,),
    ),
    Mutant(
        "never-in-doubt",
        "failure policy, --max-doubt",
        "drainer/policy/failures.py",
        "        if chance < CERTAIN:\n            return inf\n",
        "        if chance < 0:\n            return inf\n",
        (OUTAGE,),
    ),
    Mutant(
        "one-more-than-max-dead",
        "failure policy, --max-dead",
        "drainer/policy/failures.py",
        "            return given_up > self.count\n",
        "            return given_up > self.count + 1\n",
        (FAILURES,),
    ),
    Mutant(
        "rate-not-kept",
        "failure policy, --rate",
        "drainer/policy/admission.py",
        "        if sub is not None and self._rate is not None:\n            self._rate.start()\n",
        "",
        (ADMISSION,),
    ),
    # --- dead letters ---
    Mutant(
        "dead-before-the-letter-is-safe",
        "dead letters",
        "drainer/engine/failures.py",
        "        self._sink.send(sub, error, told)\n",
        "        self._sink.send(sub, error, lambda failure: None)\n"
        "        self._written(None, dead)\n",
        (f"{POLICY}::test_a_letter_that_is_not_acknowledged_is_pending_and_its_lane_waits",),
    ),
    Mutant(
        "lane-goes-on-behind-a-dead-letter",
        "dead letters, --after-dead park",
        "drainer/engine/failures.py",
        "        if self._settings.after_dead is AfterDead.PARK:\n",
        "        if False:\n",
        (f"{POLICY}::test_a_lane_parked_behind_a_dead_letter_stays_so_in_the_next_run",),
    ),
    Mutant(
        "letter-has-another-identity",
        "dead letters, told apart after a redrive",
        "drainer/policy/dead_letter.py",
        "        former.index if former is not None else sub.index,\n",
        "        sub.index,\n",
        (LETTERS,),
    ),
    Mutant(
        "letters-go-round-for-ever",
        "dead letters, redrives are counted",
        "drainer/policy/dead_letter.py",
        "min(former.redrives + 1, COUNT_MOST)",
        "min(former.redrives, COUNT_MOST)",
        (LETTERS,),
    ),
    Mutant(
        "redrive-keeps-the-old-leader",
        "dead letters, a redrive after a new leader",
        "drainer/letters/redrive.py",
        "replace(part, end=log.end, leader_epoch=log.leader_epoch)",
        "replace(part, end=log.end)",
        (
            "tests/letters/test_redriving.py::test_a_plan_reaches_on_to_the_end_that_a_new_leader_gave_the_log",
        ),
    ),
    # --- what comes from a person ---
    Mutant(
        "a-file-that-anybody-wrote-is-trusted",
        "trusted files",
        "drainer/ownership.py",
        "    if mode & stat.S_IWOTH:\n",
        "    if mode & stat.S_IWOTH & stat.S_IWGRP:\n",
        ("tests/test_ownership.py",),
    ),
    Mutant(
        "silence-means-yes",
        "confirmation",
        "drainer/cli/answer.py",
        "    if answer is None:\n",
        "    if answer is None and not question:\n",
        ("tests/cli_units/test_answer.py",),
    ),
    Mutant(
        "the-resume-prints-a-secret",
        "secrets, in the command to resume",
        "drainer/cli/draining.py",
        "    if is_secret(name) or hides(name, value) or _LOGIN.search(value):\n",
        "    if is_secret(name) or hides(name, value):\n",
        ("tests/cli_units/test_resuming.py",),
    ),
    # --- rules ---
    Mutant(
        "one-key-is-enough",
        "rules",
        "drainer/policy/rules/rule_filter.py",
        "        return all(key_text(key) in wanted for key in sub.keys)\n",
        "        return any(key_text(key) in wanted for key in sub.keys)\n",
        (RULES,),
    ),
    Mutant(
        "skipped-counted-as-done",
        "rules",
        "drainer/policy/rules/rule_filter.py",
        "                message.ledger.finish(message, index, Outcome.SKIPPED)\n",
        "                message.ledger.finish(message, index)\n",
        (RULES,),
    ),
    Mutant(
        "limit-asks-again-after-a-resume",
        "rules, --limit-per-key",
        "drainer/policy/rules/rule_filter.py",
        "        if message.offset < self._asked_below.get(message.partition, 0) or (\n",
        "        if (\n",
        (RULES,),
    ),
    Mutant(
        "limit-counts-barriers",
        "rules, --limit-per-key",
        "drainer/policy/rules/rule_filter.py",
        "        if self._limit is None or isinstance(sub, Barrier):\n",
        "        if self._limit is None:\n",
        (RULES,),
    ),
    Mutant(
        "limit-forgets-what-the-journal-is-not-told",
        "rules, --limit-per-key",
        "drainer/policy/rules/rule_filter.py",
        "        self._news.update(open_)\n",
        "",
        (RULES,),
    ),
    Mutant(
        "limit-counts-any-number-of-keys",
        "bounded memory",
        "drainer/policy/rules/rule_filter.py",
        "        return self._limit is not None and len(self._limit.counts) > LIMITED_KEYS_MOST\n",
        "        return False\n",
        (RULES,),
    ),
    # --- bounded memory ---
    Mutant(
        "buffer-ignored",
        "bounded memory",
        "drainer/engine/pump.py",
        "            and self._dispatcher.pending_bytes < self._capacity_bytes\n",
        "",
        (f"{BOUNDS}::test_pending_memory_stays_below_the_buffer",),
    ),
    Mutant(
        "stale-entries-kept",
        "bounded memory",
        "drainer/core/lanes.py",
        "            if self._promotions > STALE_MIN + 2 * len(self._lanes):\n",
        "            if False:\n",
        (LANES, LAWS),
    ),
    Mutant(
        "finished-messages-kept",
        "bounded memory",
        "drainer/core/ledger.py",
        "        self._pending = deque(m for m in self._pending if m.left)\n",
        "        self._pending = deque(self._pending)\n",
        (LEDGER, LAWS),
    ),
    Mutant(
        "parked-messages-kept-whole",
        "bounded memory",
        "drainer/core/ledger.py",
        "        message.let_go()\n",
        "",
        (LEDGER, LAWS),
    ),
    # --- workers ---
    Mutant(
        "wake-up-lost",
        "no worker idle without need",
        "drainer/engine/coroutines.py",
        "                if self._sleepers and self._lanes.ready:\n",
        "                if False:\n",
        (f"{DRAIN}::test_all_that_a_finish_makes_ready_starts_at_once",),
    ),
    Mutant(
        "wake-up-lost-in-a-pause",
        "no worker idle without need",
        "drainer/engine/coroutines.py",
        "  # and takes no other one into the pause\n                    self.wake()\n",
        "\n",
        (f"{DRAIN}::test_all_that_a_finish_makes_ready_starts_at_once",),
    ),
    Mutant(
        "more-workers-than-the-limit",
        "concurrency",
        "drainer/engine/coroutines.py",
        "        self._surplus = max(0, too_many)\n",
        "        self._surplus = 0\n",
        ("tests/engine/test_auto_concurrency.py::test_no_more_begin_than_the_limit_of_the_moment",),
    ),
    Mutant(
        "cancelled-counts-as-done",
        "stopping",
        "drainer/engine/coroutines.py",
        "        self._next = self._finish = _forget\n",
        "",
        (f"{STOPPING}::test_what_a_swallowed_cancellation_ends_is_not_done",),
    ),
    Mutant(
        "rate-forgets-what-comes-later",
        "no worker idle without need",
        "drainer/engine/local.py",
        "        self._workers.wake()\n        if self._failures.holding_back:\n"
        "            self._failures.idle()\n",
        "        self._workers.wake()\n",
        (f"{ENDS}::test_with_a_rate_what_comes_later_is_started_when_its_time_has_come",),
    ),
    Mutant(
        "thread-that-came-back-is-lost",
        "stopping",
        "drainer/engine/local.py",
        "        if isinstance(cause, ThreadsOverdue) and self.dispatcher.complete:\n",
        "        if False:\n",
        (f"{POLICY}::test_a_thread_that_returns_while_the_drain_ends_is_waited_for",),
    ),
    # --- Spark: what tasks did, added up ---
    Mutant(
        "fold-counts-again",
        "conservation, on Spark",
        "drainer/core/merge.py",
        "                sub_messages=known.sub_messages + subs - held[1],\n",
        "                sub_messages=known.sub_messages + subs,\n",
        ("tests/core/test_folding.py", GATHERING),
    ),
    Mutant(
        "stretch-done-by-one-claim",
        "commit, on Spark",
        "drainer/spark/aggregation.py",
        "    for progress in reported:\n        own =",
        "    for progress in reported[:1]:\n        own =",
        (GATHERING,),
    ),
    Mutant(
        "late-attempt-counts",
        "conservation, on Spark",
        "drainer/spark/aggregation.py",
        "            if late:\n                now[number]",
        "            if not late:\n                now[number]",
        (GATHERING,),
    ),
    Mutant(
        "piece-left-out",
        "conservation, on Spark",
        "drainer/spark/waves.py",
        "            self._lefts[number] = (end, self._lefts[number][1])\n",
        "            self._lefts[number] = (end + 1, self._lefts[number][1])\n",
        ("tests/core/test_waves.py",),
    ),
    # --- limits of brokers ---
    Mutant(
        "every-verdict-believed",
        "limits: one trial that lies",
        "drainer/limits/search/search.py",
        "LIES = 0.08 ",
        "LIES = 1e-6 ",
        ("tests/core/limits/test_search.py",),
    ),
    Mutant(
        "safe-below-the-rate",
        "limits: a rate that was not reached is never safe",
        "drainer/limits/search/overload.py",
        "    if sent >= (1 - PACE_SHORTFALL_MOST) * wanted:\n",
        "    if sent >= 0:\n",
        ("tests/core/limits/test_overload.py",),
    ),
    Mutant(
        "overload-not-ended",
        "limits: on a shared cluster overload ends a trial",
        "drainer/limits/trials.py",
        "            return now_s - since_s >= SURE_S\n",
        "            return False\n",
        ("tests/operations/test_trials.py",),
    ),
    Mutant(
        "most-exceeded",
        "limits: --max-mb-per-s",
        "drainer/limits/search/boundary.py",
        "        pace = self.bytes_per_s_most / self.settings.max_producers / message_bytes\n",
        "        pace = 2 * self.bytes_per_s_most / self.settings.max_producers / message_bytes\n",
        ("tests/operations/test_trials.py",),
    ),
    Mutant(
        "any-topic-removed",
        "limits: nothing but a test topic is removed",
        "drainer/limits/kafka/topic.py",
        "    if strangers := [name for name in names if not _TOPIC.fullmatch(name)]:\n",
        "    if strangers := [name for name in names if not name.startswith(PREFIX)]:\n",
        ("tests/kafka/test_limits_topic.py",),
    ),
    # --- lock loss and stop signals ---
    Mutant(
        "commit-without-the-lock",
        "lock loss",
        "drainer/engine/checkpointer.py",
        "        if self._lock.lost is not None:\n",
        "        if False:\n",
        (f"{OUTSIDE}::test_a_lock_lost_between_the_tries_of_the_last_commit_ends_them",),
    ),
    Mutant(
        "commit-with-a-lock-in-doubt",
        "lock loss",
        "drainer/engine/checkpointer.py",
        "        if self._lock.unsure_since_s is not None:\n",
        "        if False:\n",
        (f"{OUTSIDE}::test_nothing_is_committed_while_the_lock_is_not_confirmed",),
    ),
    Mutant(
        "lock-loss-not-seen",
        "lock loss",
        "drainer/engine/lifecycle.py",
        "            if lock.lost is not None:\n",
        "            if False:\n",
        (f"{STOPPING}::test_a_cancelled_handler_that_goes_on_is_given_nothing_more",),
    ),
    Mutant(
        "starts-with-a-lock-in-doubt",
        "lock loss",
        "drainer/engine/lifecycle.py",
        "            await self._work.look(paused=lock.unsure_since_s is not None)\n",
        "            await self._work.look(paused=False)\n",
        (f"{POLICY}::test_nothing_is_started_while_the_lock_is_not_confirmed",),
    ),
    Mutant(
        "sighup-is-asking-twice",
        "stop signals",
        "drainer/engine/lifecycle.py",
        '        if name != "SIGHUP":\n',
        "        if name:\n",
        (f"{STOPPING}::test_a_sighup_beside_another_signal_is_not_asking_twice",),
    ),
    Mutant(
        "second-signal-not-heard",
        "stop signals",
        "drainer/engine/lifecycle.py",
        "                self.forced.set()\n",
        "                pass\n",
        (f"{STOPPING}::test_two_signals_stop_at_once_and_the_journal_has_the_rest",),
    ),
    Mutant(
        "second-signal-waits-for-ever",
        "stop signals",
        "drainer/engine/lifecycle.py",
        "            await asyncio.wait((task,), timeout=AT_ONCE_S)\n",
        "            await asyncio.wait((task,))\n",
        (f"{STOPPING}::test_two_signals_stop_at_once_and_the_journal_has_the_rest",),
    ),
    Mutant(
        "overdue-thread-counts-as-running",
        "stopping",
        "drainer/engine/failures.py",
        "        for sub in _members(work):\n            self._dispatcher.hold(sub)\n",
        "        for sub in _members(work):\n",
        (f"{POLICY}::test_a_thread_that_never_returns_ends_the_drain_when_all_else_is_done",),
    ),
    Mutant(
        "a-bad-one-fails-its-whole-call",
        "bundles",
        "drainer/engine/failures.py",
        "        for lead in bundler.give_back(bundle, split=not away):\n",
        "        for lead in bundler.give_back(bundle, split=False):\n",
        (
            "tests/engine/test_bundles.py::test_the_bad_ones_of_a_batch_are_found_and_the_others_are_done",
        ),
    ),
    # --- bundles ---
    Mutant(
        "barrier-in-company",
        "bundles, barrier",
        "drainer/core/bundles.py",
        "            or isinstance(bundle.members[0], Barrier)\n",
        "",
        (BUNDLES,),
    ),
    Mutant(
        "folds-other-sub-keys",
        "bundles",
        "drainer/core/bundles.py",
        "    if later.keys is not None or first.keys is not None or first.key != later.key:\n",
        "    if later.keys is not None or first.keys is not None:\n",
        (BUNDLES,),
    ),
    Mutant(
        "coalesce-gives-another-sub-key",
        "bundles",
        "drainer/core/bundles.py",
        "    if into.key != first.key or into.keys is not None:\n",
        "    if False:\n",
        (BUNDLES,),
    ),
    Mutant(
        "given-back-in-reverse",
        "bundles",
        "drainer/core/lanes.py",
        "        for follower in reversed(followers):\n",
        "        for follower in followers:\n",
        (BUNDLES,),
    ),
    Mutant(
        "folded-one-is-forgotten",
        "bundles",
        "drainer/core/bundles.py",
        "            for follower in followers:\n                finish(follower)\n",
        "            for follower in followers[1:]:\n                finish(follower)\n",
        (BUNDLES,),
    ),
    Mutant(
        "clusters-are-lost-in-a-merge",
        "survey",
        "drainer/insight/sketch.py",
        "        self.counts += other.counts\n",
        "        self.counts = other.counts\n",
        (SURVEY,),
    ),
    Mutant(
        "a-sample-is-as-sure-as-the-whole",
        "survey",
        "drainer/insight/sketch.py",
        "    variance = (1 - fraction) * count",
        "    variance = (1 - fraction) / count",
        (SURVEY,),
    ),
    Mutant(
        "the-later-limit-of-retention-counts",
        "retention",
        "drainer/insight/retention.py",
        "        return min(found, default=None)\n",
        "        return max(found, default=None)\n",
        ("tests/core/test_retention.py",),
    ),
    Mutant(
        "a-schedule-swaps-what-shares-a-sub-key",
        "certify",
        "drainer/certify/schedule.py",
        "        return not set(self.keys).isdisjoint(other.keys)\n",
        "        return self.keys == other.keys\n",
        ("tests/testing_kit/test_schedule.py",),
    ),
    Mutant(
        "an-estimate-forgets-the-hottest-lane",
        "estimate",
        "drainer/insight/forecast/forecast.py",
        "        LANE: serial_s,\n",
        "        LANE: 0.0,\n",
        ("tests/core/test_workload.py",),
    ),
    Mutant(
        "a-resume-is-offered-for-a-wrong-account",
        "no surprise, views",
        "drainer/engine/status.py",
        "        over = self.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS, EXIT_UNRESUMABLE)\n",
        "        over = self.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS)\n",
        ("tests/view/test_summary.py",),
    ),
    Mutant(
        "a-commit-past-the-watermark-looks-fine",
        "commit, views",
        "drainer/view/summary.py",
        "    if part.committed != part.watermark and part.watermark > part.start:\n",
        "    if part.committed is None and part.watermark > part.start:\n",
        ("tests/view/test_summary.py",),
    ),
    Mutant(
        "text-from-elsewhere-steers-the-terminal",
        "hostile text",
        "drainer/view/layout.py",
        "        line.append(printable(text), STYLES[tone])\n",
        "        line.append(text, STYLES[tone])\n",
        ("tests/view/test_hostile.py",),
    ),
    Mutant(
        "text-from-elsewhere-is-markup",
        "hostile text",
        "drainer/view/report/page.py",
        "        autoescape=True,\n",
        "        autoescape=False,\n",
        ("tests/view/test_report.py",),
    ),
    Mutant(
        "quiet-hides-what-is-wrong",
        "no surprise, views",
        "drainer/view/terminal.py",
        "urgent=level >= logging.WARNING)",
        "urgent=False)",
        ("tests/view/test_terminal.py",),
    ),
    Mutant(
        "a-report-replaces-any-file",
        "no surprise, views",
        "drainer/view/report/file.py",
        "        if beginning and MARK not in beginning:\n",
        "        if not beginning and MARK not in beginning:\n",
        ("tests/view/test_report_file.py",),
    ),
    Mutant(
        "lanes-get-any-number-of-names",
        "bounded memory, metrics",
        "drainer/metrics/collector.py",
        "            if len(self._lanes) >= LANES_MOST:\n",
        "            if len(self._lanes) >= 10 * LANES_MOST:\n",
        ("tests/metrics/test_collector.py",),
    ),
    # --- Kafka ---
    Mutant(
        "reads-past-the-end",
        "the backlog is a frozen range",
        "drainer/kafka/reader.py",
        "        if last >= end:\n",
        "        if False:\n",
        (READING,),
    ),
    Mutant(
        "hole-at-the-end-is-not-noticed",
        "holes",
        "drainer/kafka/reader.py",
        "            if offset > self.open[partition]:\n",
        "            if False:\n",
        (READING,),
    ),
    Mutant(
        "recreated-topic-is-read-on",
        "a recreated topic is another one",
        "drainer/kafka/reader.py",
        "        if self._log.topic_ids.get(self._topic, self._topic_id) != self._topic_id:\n",
        "        if False:\n",
        (f"{FETCH}::test_a_topic_that_is_recreated_meanwhile_ends_it",),
    ),
    Mutant(
        "commit-over-another",
        "commit",
        "drainer/kafka/commit.py",
        "                elif offset not in allowed:\n",
        "                elif False:\n",
        (COMMIT,),
    ),
    Mutant(
        "group-moved-backwards",
        "commit",
        "drainer/kafka/backlog.py",
        "        if known is not None and start < known:\n",
        "        if False:\n",
        (BACKLOG,),
    ),
    Mutant(
        "lock-held-by-two",
        "lock",
        "drainer/kafka/lock.py",
        "            if names <= {self.client_id}:\n",
        "            if self.client_id in names:\n",
        ("tests/kafka/test_lock.py",),
    ),
    Mutant(
        "plan-not-synced",
        "plan on disk",
        "drainer/store/atomic_file.py",
        "            os.fsync(descriptor)\n",
        "            pass\n",
        (f"{PLAN_FILE}::test_the_plan_is_synced_before_it_takes_its_name",),
    ),
]


class Copy:
    """A copy of the tree in a temporary folder, and the tests that run in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in ("drainer", "tests", "scenarios"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "unshrunk.py").write_text(UNSHRUNK)
        self._times = count(1_000_000_000)

    def write(self, file: str, text: str) -> None:
        path = self._folder / file
        path.write_text(text, "utf-8")
        # Python tells by second and size whether what it has compiled is up to date.
        now = next(self._times)
        os.utime(path, (now, now))

    def failed_test(self, tests: Iterable[str], timeout_s: float = TIMEOUT_S) -> str | None:
        """The first test that fails, or "timeout"; None when all pass."""
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "unshrunk", "-o", "addopts="]
        words += ["-p", "no:cacheprovider", "-m", "not long", "-n", "0", *tests]
        process = subprocess.Popen(
            words,
            cwd=self._folder,
            env=os.environ | {"PYTHONPATH": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout"
        if process.returncode == 0:
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        if process.returncode != 1 or found is None:
            raise SystemExit(output)
        return found[1]


def mutated(mutant: Mutant) -> str | None:
    """The text of its file with the mutant; None when it doesn't apply."""
    text = (ROOT / mutant.file).read_text("utf-8")
    if text.count(mutant.text) != 1:
        return None
    return text.replace(mutant.text, mutant.replacement)


def layer_of(test: str) -> str:
    """``core`` of ``tests/core/test_lanes.py::test_…``."""
    return test.split("/")[1] if "/" in test else test


def run(mutants: Iterable[Mutant], copy: Copy) -> bool:
    """Prints a line for each mutant; whether all were noticed."""
    well = True
    for mutant in mutants:
        began = monotonic()
        text = mutated(mutant)
        noticed = None
        if text is not None:
            copy.write(mutant.file, text)
            noticed = copy.failed_test(mutant.tests)
            copy.write(mutant.file, (ROOT / mutant.file).read_text("utf-8"))
        told = "does not apply" if text is None else "SURVIVES"
        well = well and noticed is not None
        print(
            f"{mutant.name:36} {mutant.law:42} {layer_of(noticed) if noticed else told:14}"
            f" {monotonic() - began:6.1f} s",
            flush=True,
        )
    return well


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    unknown = set(names) - {mutant.name for mutant in chosen}
    if unknown:
        print(f"there is no mutant named {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="drainer-mutants-") as folder:
        copy = Copy(Path(folder))
        tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
        failed = copy.failed_test(tests, TIMEOUT_S * 10)
        if failed is not None:
            print(f"without any mutant, {failed} fails", file=sys.stderr)
            return 1
        return 0 if run(chosen, copy) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
