-- Ways of breaking what must hold, each after a line "-- <the check that must find it>: <what is wrong>".
-- Each is run on a session with three runs: the first has ended, with the messages 1 input, 2 answer with
-- the calls note and send, 3 their results, 4 answer; the other two are queued.  There is another session,
-- without anything.  The first block is run before each of the others: what no constraint refuses is
-- the one thing that could come about.

-- unrefused: by any constraint
alter table runs drop constraint owned_exactly_when_running,
                 drop constraint finished_exactly_when_terminal,
                 drop constraint queued_is_not_cancelled,
                 drop constraint failed_exactly_with_a_code,
                 drop constraint runs_session_id_session_seq_key,
                 drop constraint runs_check;
alter table messages drop constraint messages_session_id_seq_key,
                     drop constraint messages_run_id_turn_role_key;
drop index runs_one_running;

-- one_running_run: two at once
update runs
   set state = 'running', owner_id = gen_random_uuid(), lease_expires_at = now() + interval '1 minute',
       claim_epoch = 1, started_at = now()
 where session_seq > 1;

-- seq: a gap
update messages set seq = 9 where seq = 4;

-- seq: a repeat
update messages set seq = 3 where seq = 4;

-- seq: a message that is not there
update sessions set last_seq = last_seq + 1;

-- seq: a message too many
update sessions set last_seq = last_seq - 1 where last_seq > 0;

-- seq: the first is gone
delete from messages where seq = 1;

-- line: a gap
update runs set session_seq = 9 where session_seq = 3;

-- line: a repeat
update runs set session_seq = 2 where session_seq = 3;

-- line: a place left out
update sessions set next_run_seq = next_run_seq + 1;

-- line: a run is gone
delete from runs where session_seq = 2;

-- ownership: running without an owner
update runs set state = 'running', lease_expires_at = now() where session_seq = 2;

-- ownership: running without a lease
update runs set state = 'running', owner_id = gen_random_uuid() where session_seq = 2;

-- ownership: owned while queued
update runs set owner_id = gen_random_uuid() where session_seq = 2;

-- ownership: a lease after the end
update runs set lease_expires_at = now() where session_seq = 1;

-- ownership: an end while queued
update runs set finished_at = now() where session_seq = 2;

-- ownership: queued and cancelled
update runs set cancel_requested_at = now() where session_seq = 2;

-- claims: never started, and yet it ended
update runs set started_at = null where session_seq = 1;

-- claims: started without a claim
update runs set started_at = now() where session_seq = 2;

-- claims: succeeded without a claim
update runs set claim_epoch = 0, started_at = null where session_seq = 1;

-- stuck_runs: a lease that nobody sweeps
update runs
   set state = 'running', owner_id = gen_random_uuid(), lease_expires_at = now() - interval '6 minutes',
       claim_epoch = 1, started_at = now()
 where session_seq = 2;

-- ends: at no time
update runs set finished_at = null where session_seq = 1;

-- ends: with a turn that is not finished
update runs set iterations = iterations + 1 where session_seq = 1;

-- ends: cancelled by nobody
update runs set state = 'cancelled' where session_seq = 1;

-- ends: a code without failure
update runs set error_code = 'internal', error = '' where session_seq = 1;

-- ends: failed without a code
update runs set state = 'failed', stopped_by = 'x' where session_seq = 1;

-- ends: failed, and nothing stopped it
update runs set state = 'failed', error_code = 'internal', error = '' where session_seq = 1;

-- final_messages: none
update runs set final_message_id = null;

-- final_messages: a user's
update runs set final_message_id = (select id from messages where seq = 3) where session_seq = 1;

-- final_messages: of a turn before the last
update runs set final_message_id = (select id from messages where seq = 2) where session_seq = 1;

-- final_messages: half of one
update messages set partial = true where seq = 4;

-- final_messages: another run's
update runs set final_message_id = (select id from messages where seq = 4) where session_seq = 2;

-- last_words: a message after the end
update messages set created_at = now() + interval '1 minute' where seq = 2;

-- last_words: an end before the last message
update runs set finished_at = finished_at - interval '1 hour' where session_seq = 1;

-- messages: not a list of blocks
update messages set content = '{}' where seq = 4;

-- messages: in another session than its run
update messages set session_id = (select id from sessions where last_seq = 0) where seq = 4;

-- messages: half an answer of a run that is live
insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content, partial)
select gen_random_uuid(), tenant_id, session_id, 5, id, 1, 'assistant', '[]', true
  from runs
 where session_seq = 2;

-- messages: half an answer of nobody's
update messages set partial = true, run_id = null, turn = null where seq = 4;

-- turns: no input
delete from messages where seq = 1;

-- turns: no answer
delete from messages where seq = 2;

-- turns: no results
delete from messages where seq = 3;

-- turns: no last answer
delete from messages where seq = 4;

-- turns: nothing at all
delete from messages;

-- turns: a gap
update messages set turn = 3 where seq = 4;

-- turns: an answer before the first turn
update messages set turn = 0 where seq = 2;

-- turns: two answers in one
update messages set turn = 1 where seq = 4;

-- turns: finished ones that are not there
update runs set iterations = 4, resume_turn = 4 where session_seq = 1;

-- turns: more than resume_turn and the open one
update runs set iterations = 0, resume_turn = 0 where session_seq = 1;

-- turns: the open one of a live run has a reply
insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content)
select gen_random_uuid(), tenant_id, session_id, 5 + place, id, turn, role, '[]'
  from runs, (values (0, 0, 'user'), (1, 1, 'assistant'), (2, 1, 'user')) as told (place, turn, role)
 where session_seq = 2;

-- turns: a finished one of a live run has none
insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content)
select gen_random_uuid(), tenant_id, session_id, 5 + place, id, turn, role, '[]'
  from runs, (values (0, 0, 'user'), (1, 1, 'assistant')) as told (place, turn, role)
 where session_seq = 2;
update runs set iterations = 1, resume_turn = 1 where session_seq = 2;

-- turn_order: results before their calls
update messages set seq = 5 - seq where seq in (2, 3);

-- turn_order: a message of nobody's between calls and results
update messages set seq = seq + 1 where seq > 2;
insert into messages (id, tenant_id, session_id, seq, role, content)
select gen_random_uuid(), tenant_id, session_id, 3, 'user', '[]'
  from messages
 where seq = 2;

-- run_order: a message of the first run after one of the second
update messages set seq = 5 where seq = 4;
insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content)
select gen_random_uuid(), tenant_id, session_id, 4, id, 0, 'user', '[]'
  from runs
 where session_seq = 2;

-- run_times: started although the one ahead of it waits
update runs set started_at = now(), claim_epoch = 1 where session_seq = 3;

-- run_times: started before the one ahead of it had ended
update runs
   set started_at = (select finished_at from runs where session_seq = 1) - interval '2 seconds',
       claim_epoch = 1
 where session_seq = 2;

-- results: none
update messages set content = '[]' where seq = 3;

-- results: one is missing
update messages set content = json_build_array(content -> 0) where seq = 3;

-- results: one twice, another not at all
update messages set content = json_build_array(content -> 0, content -> 0) where seq = 3;

-- results: one too many
update messages set content = json_build_array(content -> 0, content -> 1, content -> 1) where seq = 3;

-- results: in another order
update messages set content = json_build_array(content -> 1, content -> 0) where seq = 3;

-- results: of no call
update messages set content = '[{"type": "text", "text": "hello"}]' where seq = 2;

-- results: of calls that cannot be read
update messages set content = '{}' where seq = 2;

-- results: synthetic, and twice
update messages
   set content = json_build_array(content -> 0, content -> 0), synthetic = true
 where seq = 3;

-- results: synthetic, and of no call
update messages
   set content = '[{"type": "tool_result", "tool_use_id": "x"}]', synthetic = true
 where seq = 3;

-- usage: more than the answers'
update runs set usage = '{"input_tokens": 1000, "output_tokens": 1000}' where session_seq = 1;

-- usage: nothing
update runs set usage = '{}' where session_seq = 1;

-- usage: an answer that says nothing of it
update messages set usage = null where seq = 2;

-- usage: of a kind that no answer has
update runs set usage = '{"output_tokens": 1}' where session_seq = 2;

-- usage: less than the answers', although it failed
update runs
   set usage = '{}', state = 'failed', error_code = 'internal', error = ''
 where session_seq = 1;

-- effects: of a call that was not made
update tool_effects set ordinal = 5;

-- effects: of another call
update tool_effects set ordinal = 0;

-- effects: of another tool
update tool_effects set tool = 'note';

-- effects: of another call's id
update tool_effects set call_id = 'x';

-- effects: of a turn that is not there
update tool_effects set turn = 3;

-- audit: nothing on record
delete from audit_events where action = 'run.create';

-- audit: of another trace
update runs set trace_id = repeat('a', 32) where session_seq = 1;

-- audit: of something else
update audit_events set target_id = gen_random_uuid() where action = 'run.create';
