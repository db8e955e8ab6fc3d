-- The ledger of calls that must not just run twice.  Each statement takes the run's row, locked, if it
-- is still this claim's and the call is of its open turn; everything after derives from it; and it
-- returns no row when the fence did not hold.  No message is stored, so the session is not locked:
-- the calls of a turn run side by side, and wait for each other no longer than a statement takes.

-- name: begin_call
-- Record that a call is about to start, unless an earlier execution did: then what there is, as it is.
-- The update changes nothing, but makes the row come back, also one that was committed only while this
-- statement waited for the fence; whose it is, its begin_id tells.
with fence as materialized (
    select id
      from runs
     where id = $run_id
       and owner_id = $owner_id and claim_epoch = $claim_epoch
       and resume_turn = $turn - 1
       for no key update
)
insert into tool_effects (run_id, turn, ordinal, call_id, tool, effects, state, begin_id)
select id, $turn, $ordinal, $call_id, $tool, $effects, 'started', $begin_id
  from fence
    on conflict (run_id, turn, ordinal) do update set begin_id = tool_effects.begin_id
returning effects, result, begin_id = $begin_id as new;

-- name: read_call
-- What an earlier execution left of a call; read only, so without the fence.
select effects, result from tool_effects where run_id = $run_id and turn = $turn and ordinal = $ordinal;

-- name: finish_call
-- Record what a call that was begun came to.
with fence as materialized (
    select id
      from runs
     where id = $run_id
       and owner_id = $owner_id and claim_epoch = $claim_epoch
       and resume_turn = $turn - 1
       for no key update
)
update tool_effects
   set state = 'finished', result = $result
  from fence
 where run_id = fence.id and turn = $turn and ordinal = $ordinal
returning ordinal;
