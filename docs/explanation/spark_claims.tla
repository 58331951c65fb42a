---------------------------- MODULE spark_claims ----------------------------
(* The protocol by which the tasks and the drivers of one drain on Spark share its lanes.

   A backlog has the messages 1 .. Slices * PerSlice. Each message has one sub-message for each
   shard, and a shard is one lane. Drivers work one after the other, each in its own epoch. A driver
   gives each shard of a slice to a task. Spark may start a task again at any time, whatever
   happened to the attempts before: they may be dead, or at work, or stand still and wake up later.

   Time is a number of ticks that timers count down. Between two ticks, anything may happen in any
   order. A process that stands still is one that takes no step.

   The comment at each action names the function that it stands for. Paths begin at drainer/spark.
   docs/explanation/proofs.md says what the model leaves out. *)
EXTENDS Integers, Sequences, TLC

CONSTANTS
    Shards,      \* The shards, which are interchangeable.
    Drivers,     \* The number of drivers, of which each takes over from the one before.
    Slices,      \* The number of slices of the backlog.
    PerSlice,    \* The number of messages in a slice.
    Attempts,    \* The maximum number of attempts at one task, by driver and slice.
    Lease,       \* LeaseTimes.lease_s: a call may begin for so many ticks after a look.
    Cut,         \* LeaseTimes.cut_s: a call may go on for so many ticks after the lease.
    Without      \* The names of the guards that are switched off, to show that each is needed.

None == -1
Last == Slices * PerSlice
Tasks == (1 .. Drivers) \X (1 .. Slices) \X Shards
Ids ==  \* State.Attempt
    UNION {{d} \X {slice} \X Shards \X (1 .. Attempts[d][slice]) :
             d \in 1 .. Drivers, slice \in 1 .. Slices}

VARIABLES
    attempt,     \* What each attempt is doing, and its objects in the state.
    driver,      \* What each driver is doing.
    epoch,       \* The newest epoch in the state.
    plan,        \* The plan on disk: by shard, what is finished; and the epoch of its state.
    committed,   \* The committed offset of the group: all messages up to this one are finished.
    effect       \* By lane, the sub-message up to which the calls had their effect, in order.

vars == <<attempt, driver, epoch, plan, committed, effect>>

Max(set) == CHOOSE most \in set : \A each \in set : each <= most
Min(set) == CHOOSE least \in set : \A each \in set : each >= least
Has(guard) == guard \notin Without
First(slice) == (slice - 1) * PerSlice  \* The last message before the slice.
End(slice) == slice * PerSlice
Task(id) == <<id[1], id[2], id[3]>>
Lane(id) == id[3]

(* ``finished`` is known to the process alone; ``record`` is what its records in the state say. *)
Idle == [at |-> "nowhere", finished |-> 0, record |-> None, call |-> 0, lease |-> 0, wait |-> 0]

Init ==
    /\ attempt = [id \in Ids |-> Idle]
    /\ driver = [d \in 1 .. Drivers |->
         [at |-> "nowhere", wait |-> 0, base |-> [s \in Shards |-> 0],
          mark |-> [s \in Shards |-> 0], given |-> {}, listed |-> <<>>, fresh |-> 0]]
    /\ epoch = 0
    /\ plan = [finished |-> [s \in Shards |-> 0], epoch |-> 0]
    /\ committed = 0
    /\ effect = [s \in Shards |-> 0]

(* --- what is in the state --- *)

HasBegun(id) == attempt[id].at \notin {"nowhere", "checked"}
Begun(task) == {n \in 1 .. Attempts[task[1]][task[2]] : HasBegun(task \o <<n>>)}

\* State.report: the newest attempt that has written its first record counts, and no other.
Report(task) ==
    LET written == {n \in Begun(task) : attempt[task \o <<n>>].record # None} IN
    IF written = {} THEN 0 ELSE attempt[task \o <<Max(written)>>].record

\* State.ensure_epoch, and State.ensure_newest of an attempt that has begun.
IsEpoch(id) == Has("epoch") => id[1] = epoch
IsNewest(id) == IsEpoch(id) /\ (Has("newest") => id[4] = Max(Begun(Task(id))))

\* State._is_over: it has reported its end, or its process is known to be dead.
IsOver(id) == attempt[id].at \in {"ended", "dead"}

(* --- an attempt at a task --- *)

\* What no longer matters is forgotten, which makes states equal that do not differ in what follows.
Tidy(each) ==
    LET gone == each.at \in {"dead", "ended"} IN
    [each EXCEPT !.finished = IF gone THEN 0 ELSE @,
                 !.wait = IF each.at = "waits" THEN @ ELSE 0,
                 !.lease = IF gone \/ (each.call = 0 /\ @ <= Cut) THEN 0 ELSE @]
Becomes(id, changes) == attempt' = [attempt EXCEPT ![id] = Tidy(changes @@ @)]

\* State.begin, first half: the attempt looks whether its epoch is still the newest.
Check(id) ==
    /\ attempt[id].at = "nowhere" /\ IsEpoch(id)
    /\ <<id[2], id[3]>> \in driver[id[1]].given  \* handling._await_share
    /\ Becomes(id, [at |-> "checked"])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* State.begin, second half: it creates the object ``begun``, which ends all earlier attempts.
Begin(id) ==
    /\ attempt[id].at = "checked"
    /\ Becomes(id, [at |-> "waits", wait |-> Lease + Cut])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* State.await_earlier_attempts: it waits for the earlier attempts, and reads what they reported.
Await(id) ==
    LET earlier == {n \in Begun(Task(id)) : n < id[4]} IN
    /\ attempt[id].at = "waits" /\ IsNewest(id)
    /\ \/ attempt[id].wait = 0
       \/ \A n \in earlier : IsOver(Task(id) \o <<n>>)
       \/ ~Has("wait")
    /\ LET known == {First(id[2]), driver[id[1]].base[Lane(id)], Report(Task(id))} IN
       Becomes(id, [at |-> "knows", finished |-> Max(known)])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* Fence.guard: the first look of an attempt, after TaskRecords.go_on_from.
Start(id) ==
    /\ attempt[id].at = "knows" /\ IsNewest(id)
    /\ Has("first") => attempt[id].record # None
    /\ Becomes(id, [at |-> "works", lease |-> Lease + Cut])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* Fence._look: a look that succeeds renews the lease.
Look(id) ==
    /\ attempt[id].at = "works" /\ IsNewest(id) /\ attempt[id].lease < Lease + Cut
    /\ Becomes(id, [lease |-> Lease + Cut])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* Fence._look, State._wait: an attempt that finds a later one, or a later epoch, begins no calls.
Lose(id) ==
    /\ attempt[id].at \in {"waits", "knows", "works"} /\ ~IsNewest(id)
    /\ Becomes(id, IF attempt[id].at = "waits" THEN [at |-> "ended"]
                   ELSE [at |-> "lost", lease |-> Min({attempt[id].lease, Cut})])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* engine/coroutines.py and threads.py: a call begins only while the lease lasts.
Call(id) ==
    LET next == attempt[id].finished + 1 IN
    /\ attempt[id].at = "works" /\ attempt[id].call = 0 /\ next <= End(id[2])
    /\ Has("lease") => attempt[id].lease > Cut
    /\ Becomes(id, [call |-> next])
    /\ effect' = [effect EXCEPT ![Lane(id)] = Min({@, next - 1})]  \* It may be a step back.
    /\ UNCHANGED <<driver, epoch, plan, committed>>

\* Dispatcher.finish, in the engine of the task.
Return(id) ==
    /\ attempt[id].call # 0 /\ attempt[id].at \in {"works", "lost"}
    /\ Becomes(id, [call |-> 0, finished |-> attempt[id].call])
    /\ effect' = [effect EXCEPT ![Lane(id)] = attempt[id].call]
    /\ UNCHANGED <<driver, epoch, plan, committed>>

\* TaskRecords: what finished becomes visible in the state, however late, and
\* also after the attempt has lost its lease.
Record(id) ==
    /\ attempt[id].at \in {"knows", "works", "lost"}
    /\ attempt[id].record < attempt[id].finished
    /\ Becomes(id, [record |-> attempt[id].finished])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* TaskRecords.end: after its last record, the attempt reports that it is over.
Finish(id) ==
    /\ attempt[id].at \in {"works", "lost"} /\ attempt[id].call = 0
    /\ attempt[id].at = "works" => attempt[id].finished = End(id[2])
    /\ attempt[id].record = attempt[id].finished \/ attempt[id].finished = 0
    /\ Becomes(id, [at |-> "ended"])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

\* The process of an attempt is killed. If it has not begun to work, that does not matter: it may
\* stand still as well.
Kill(id) ==
    /\ attempt[id].at \in {"works", "lost"}
    /\ Becomes(id, [at |-> "dead", call |-> 0])
    /\ UNCHANGED <<driver, epoch, plan, committed, effect>>

(* --- a driver --- *)

Drives(d, changes) == driver' = [driver EXCEPT ![d] = changes @@ @]
Owns(d) == Has("owner") => \A later \in d + 1 .. Drivers : driver[later].at = "nowhere"

\* operations/group.py, locked; then ControlChannel.begin or state.take_over: the next driver gets
\* the plan and the lock, since the one before is dead or its session is over, and begins an epoch.
TakeOver(d) ==
    /\ driver[d].at = "nowhere" /\ Owns(d)
    /\ d > 1 => driver[d - 1].at # "nowhere"
    /\ Drives(d, [at |-> "waits", wait |-> Lease + Cut])
    /\ epoch' = d
    /\ UNCHANGED <<attempt, plan, committed, effect>>

\* State.await_earlier_drivers, then saved_plan.SavedPlan.load: the plan, and what tasks reported.
Load(d) ==
    LET Seen(s) == {Report(task) : task \in {t \in Tasks :
                      t[3] = s /\ t[1] < d /\ t[1] >= plan.epoch}}
        known == [s \in Shards |-> Max({plan.finished[s]} \union Seen(s))] IN
    /\ driver[d].at = "waits" /\ Owns(d)
    /\ \/ driver[d].wait = 0
       \/ \A id \in Ids : id[1] < d /\ HasBegun(id) => IsOver(id)
       \/ ~Has("wait of drivers")
    /\ Drives(d, [at |-> "works", wait |-> 0, base |-> known, mark |-> known])
    /\ UNCHANGED <<attempt, epoch, plan, committed, effect>>

\* Checkpointer.save: a plan is written only by the process that owns it.
Save(d) ==
    /\ driver[d].at = "works" /\ Owns(d)
    /\ plan' = [finished |-> driver[d].mark, epoch |-> d]
    /\ plan' # plan
    /\ UNCHANGED <<attempt, driver, epoch, committed, effect>>

\* Checkpointer._commit, GroupCommitter.commit: the plan's watermark, never a lower one.
Commit(d) ==
    LET found == IF Has("plan first") THEN plan.finished ELSE driver[d].mark
        watermark == Min({found[s] : s \in Shards}) IN
    /\ driver[d].at = "works" /\ Owns(d)
    /\ plan.epoch = d /\ watermark > committed
    /\ committed' = watermark
    /\ UNCHANGED <<attempt, driver, epoch, plan, effect>>

\* Aggregation.free, SliceRunner._give_to: a task may begin when its shard has nothing left in
\* earlier slices, and the plan on disk names the state.
Give(d, slice, s) ==
    /\ driver[d].at = "works" /\ Owns(d) /\ plan.epoch = d
    /\ <<slice, s>> \notin driver[d].given /\ driver[d].mark[s] < End(slice)
    /\ Has("free") => driver[d].mark[s] >= First(slice)
    /\ Drives(d, [given |-> driver[d].given \union {<<slice, s>>}])
    /\ UNCHANGED <<attempt, epoch, plan, committed, effect>>

\* State.news, first half: the driver lists the attempts at a task, and follows the newest.
List(d, slice, s) ==
    LET begun == Begun(<<d, slice, s>>) IN
    /\ driver[d].at = "works" /\ Owns(d) /\ driver[d].listed = <<>> /\ begun # {}
    /\ attempt[<<d, slice, s, Max(begun)>>].record > driver[d].mark[s]
    /\ Drives(d, [listed |-> <<d, slice, s, Max(begun)>>, fresh |-> Lease + Cut])
    /\ UNCHANGED <<attempt, epoch, plan, committed, effect>>

\* State.news, second half, and Aggregation.add_progress: it reads the records of that attempt.
Read(d) ==
    LET id == driver[d].listed IN
    /\ id # <<>>
    /\ LET counts == Has("fresh") => driver[d].fresh > 0
           mark == IF counts THEN Max({driver[d].mark[Lane(id)], attempt[id].record})
                   ELSE driver[d].mark[Lane(id)] IN
       Drives(d, [listed |-> <<>>, fresh |-> 0,
                  mark |-> [driver[d].mark EXCEPT ![Lane(id)] = mark]])
    /\ UNCHANGED <<attempt, epoch, plan, committed, effect>>

\* The driver is killed.
Die(d) ==
    /\ driver[d].at \in {"waits", "works"} /\ d < Drivers
    /\ Drives(d, [at |-> "dead", wait |-> 0, listed |-> <<>>, fresh |-> 0, mark |-> driver[d].base])
    /\ UNCHANGED <<attempt, epoch, plan, committed, effect>>

(* --- time --- *)

Down(ticks) == IF ticks = 0 THEN 0 ELSE ticks - 1

\* Fence._watch_lease: a process whose calls go on after the lease and ``Cut`` ends.
Aged(each) ==
    IF each.lease = 1 /\ each.call # 0
    THEN Tidy([each EXCEPT !.at = "dead", !.call = 0])
    ELSE Tidy([each EXCEPT !.lease = Down(@), !.wait = Down(@)])

Tick ==
    /\ attempt' = [id \in Ids |-> Aged(attempt[id])]
    /\ driver' = [d \in 1 .. Drivers |-> [driver[d] EXCEPT !.wait = Down(@), !.fresh = Down(@)]]
    /\ <<attempt', driver'>> # <<attempt, driver>>
    /\ UNCHANGED <<epoch, plan, committed, effect>>

OfAttempt(id) ==
    \/ Check(id) \/ Begin(id) \/ Await(id) \/ Start(id) \/ Look(id) \/ Lose(id)
    \/ Call(id) \/ Return(id) \/ Record(id) \/ Finish(id)
OfDriver(d) ==
    \/ TakeOver(d) \/ Load(d) \/ Save(d) \/ Commit(d) \/ Read(d)
    \/ \E slice \in 1 .. Slices, s \in Shards : Give(d, slice, s) \/ List(d, slice, s)

Next ==
    \/ \E id \in Ids : OfAttempt(id) \/ Kill(id)
    \/ \E d \in 1 .. Drivers : OfDriver(d) \/ Die(d)
    \/ Tick

Spec == Init /\ [][Next]_vars

(* --- what must be true --- *)

\* No two tasks are at work on a lane at once.
OneCallPerLane ==
    \A one, other \in Ids : attempt[one].call # 0 /\ attempt[other].call # 0 =>
        one = other \/ Lane(one) # Lane(other)

\* A lane may step back, but it never leaves anything out.
NothingLeftOut == \A id \in Ids : attempt[id].call <= effect[Lane(id)] + 1

\* What the plan has as finished was done, and no lane steps back below it.
PlanIsTrue == \A s \in Shards : plan.finished[s] <= effect[s]

\* The group's offset is never past unfinished work, nor past the plan on disk.
CommitIsSafe == \A s \in Shards : committed <= plan.finished[s] /\ committed <= effect[s]

\* TLC must find that this is wrong, because a drain can finish.
NeverDone == committed < Last

Symmetry == Permutations(Shards)
=============================================================================
