-- What must hold whenever anybody looks: each check returns the rows that violate it, as session, run
-- and a short text without content; none is the good answer.
-- Every invariant is one session's own, and holds at every commit, so each check is right in whatever
-- snapshot it sees.  All but one take a page of sessions, after $after up to and with $last: a large
-- database is gone through in statements that are short and hold nothing up.
-- A message's place among its run's is turn * 2, and one more for the user's: the input is 1, then the
-- answer of turn 1 is 2, its reply (results, or a gate's feedback) 3, and so on.

-- name: list_session_page
-- The sessions to check next.
select id
  from sessions
 where id > $after
 order by id
 limit $limit;

-- name: check_one_running_run
-- A session has one running run at most.
select session_id, null::uuid as run_id, count(*) || ' runs are running at once' as what
  from runs
 where session_id > $after and session_id <= $last
   and state = 'running'
 group by session_id
having count(*) > 1;

-- name: check_seq
-- The messages of a session are numbered from 1 to its last_seq, without a gap or a repeat.
select sessions.id as session_id, null::uuid as run_id,
       format('%s messages with %s numbers up to %s; last_seq is %s', stored.messages, stored.numbers,
              stored.highest, last_seq) as what
  from sessions,
       lateral (select count(*) as messages, count(distinct seq) as numbers,
                       coalesce(max(seq), 0) as highest
                  from messages
                 where session_id = sessions.id) as stored
 where sessions.id > $after and sessions.id <= $last
   and (stored.messages <> last_seq or stored.numbers <> last_seq or stored.highest <> last_seq);

-- name: check_line
-- The runs of a session are numbered from 1 up to its next_run_seq, without a gap or a repeat.
select sessions.id as session_id, null::uuid as run_id,
       format('%s runs with %s places up to %s; the next is to be %s', line.runs, line.places,
              line.highest, next_run_seq) as what
  from sessions,
       lateral (select count(*) as runs, count(distinct session_seq) as places,
                       coalesce(max(session_seq), 0) as highest
                  from runs
                 where session_id = sessions.id) as line
 where sessions.id > $after and sessions.id <= $last
   and (line.runs, line.places, line.highest) <> (next_run_seq - 1, next_run_seq - 1, next_run_seq - 1);

-- name: check_ownership
-- Owner and lease are there exactly while a run is running; a live run has no end, and a queued one is
-- not to be cancelled.
select session_id, id as run_id, problem.what
  from runs,
       lateral (values
           (state = 'running' and owner_id is null, 'it is running without an owner'),
           (state = 'running' and lease_expires_at is null, 'it is running without a lease'),
           (state <> 'running' and owner_id is not null, 'it is owned, but not running'),
           (state <> 'running' and lease_expires_at is not null, 'it has a lease, but is not running'),
           (state in ('queued', 'running') and finished_at is not null, 'it has ended, but is live'),
           (state = 'queued' and cancel_requested_at is not null, 'it is cancelled, but queued')
       ) as problem (there, what)
 where session_id > $after and session_id <= $last
   and problem.there;

-- name: check_claims
-- A run has started exactly when it was claimed, and nothing comes of one that was not but a cancel.
select session_id, id as run_id,
       format('it is %s after %s claims, and was first claimed %s', state, claim_epoch,
              coalesce(started_at::text, 'never')) as what
  from runs
 where session_id > $after and session_id <= $last
   and ((claim_epoch = 0) <> (started_at is null)
        or claim_epoch = 0 and state not in ('queued', 'cancelled'));

-- name: check_stuck_runs
-- Somebody sweeps: no lease has lapsed for longer than $patience.
select session_id, id as run_id, 'its lease lapsed at ' || lease_expires_at || ', and no sweep has taken the run back' as what
  from runs
 where session_id > $after and session_id <= $last
   and state = 'running'
   and lease_expires_at < now() - $patience::interval;

-- name: check_ends
-- What holds of every run that has ended: all its turns are finished, and the row says how and why.
select session_id, id as run_id, problem.what
  from runs,
       lateral (values
           (finished_at is null, 'it has ended, but not at any time'),
           (resume_turn <> iterations,
            format('it has ended with resume_turn %s and iterations %s', resume_turn, iterations)),
           (state = 'cancelled' and cancel_requested_at is null, 'no cancel was requested'),
           ((state = 'failed') <> (error_code is not null), 'state and error_code disagree'),
           (state = 'failed' and stopped_by = '', 'it failed, and nothing stopped it')
       ) as problem (there, what)
 where session_id > $after and session_id <= $last
   and state in ('succeeded', 'failed', 'cancelled')
   and problem.there;

-- name: check_final_messages
-- A run that succeeded has a final message: its last turn's answer, whole.  Whatever a run has as its
-- final message is an answer of its own.
select runs.session_id, runs.id as run_id,
       format('it has %s, and its final message is %s', state,
              case when final.id is null then 'none'
                   else format('%s of turn %s', final.role, final.turn) end) as what
  from runs
  left join messages as final on final.id = runs.final_message_id and final.run_id = runs.id
 where runs.session_id > $after and runs.session_id <= $last
   and (state = 'succeeded' or final_message_id is not null)
   and not coalesce(final.role = 'assistant'
                    and (state <> 'succeeded' or final.turn = iterations and not final.partial), false);

-- name: check_last_words
-- No message of a run but a synthetic one is newer than its end.
select runs.session_id, runs.id as run_id,
       format('its message %s is of %s, and it ended at %s', messages.seq, messages.created_at,
              finished_at) as what
  from runs
  join messages on messages.run_id = runs.id
 where runs.session_id > $after and runs.session_id <= $last
   and messages.created_at > finished_at
   and not synthetic;

-- name: check_messages
-- A message is a list of blocks, and in the session of its run; what arrived of an answer that was cut
-- short is stored with the end of its run only.
select messages.session_id, messages.run_id, format('message %s: %s', seq, problem.what) as what
  from messages
  left join runs on runs.id = messages.run_id,
       lateral (values
           (json_typeof(content) <> 'array', 'it is no list of blocks'),
           (runs.session_id <> messages.session_id, 'its run is another session''s'),
           (partial and coalesce(runs.state in ('queued', 'running'), true),
            'it is partial, but its run has not ended')
       ) as problem (there, what)
 where messages.session_id > $after and messages.session_id <= $last
   and problem.there;

-- name: check_turns
-- The turns of a run are dense and the finished ones whole: each up to the last has one answer, each
-- before the last one reply, and the last is resume_turn or the one after it.  While a run is live, its
-- finished turns have replies and the open one has none.
with stored as (
    select run_id, max(turn) as last_turn,
           coalesce(array_agg(turn order by turn) filter (where role = 'assistant'), '{}') as answers,
           coalesce(array_agg(turn order by turn) filter (where role = 'user'), '{}') as replies
      from messages
     where session_id > $after and session_id <= $last
       and run_id is not null
     group by run_id
)
select runs.session_id, runs.id as run_id,
       format('it is %s with %s turns finished; stored are answers %s and user messages %s', state,
              resume_turn, coalesce(answers, '{}'), coalesce(replies, '{}')) as what
  from runs
  left join stored on stored.run_id = runs.id
 where runs.session_id > $after and runs.session_id <= $last
   and case when stored.run_id is null then resume_turn > 0
            else answers <> array(select generate_series(1, last_turn))
                 or replies <> array(select generate_series(0, last_turn))
                    and replies <> array(select generate_series(0, last_turn - 1))
                 or last_turn not in (resume_turn, resume_turn + 1)
                 or state in ('queued', 'running') and cardinality(replies) <> resume_turn + 1 end;

-- name: check_turn_order
-- The messages of a run are in the order of its turns, and a reply that is not synthetic follows its
-- answer at once.
with placed as (
    select session_id, run_id, seq, turn, role, synthetic,
           turn * 2 + (role = 'user')::int as place,
           lag(turn * 2 + (role = 'user')::int) over of_run as place_before,
           lag(seq) over of_run as seq_before
      from messages
     where session_id > $after and session_id <= $last
       and run_id is not null
    window of_run as (partition by run_id order by seq)
)
select session_id, run_id,
       format('message %s, %s of turn %s, is not where it belongs', seq, role, turn) as what
  from placed
 where place <= place_before
    or role = 'user' and turn > 0 and not synthetic and (place_before, seq_before) <> (place - 1, seq - 1);

-- name: check_run_order
-- The runs of a session were executed in its line's order, one after the other: their messages do not
-- interleave.
with placed as (
    select messages.session_id, messages.run_id, seq, session_seq,
           max(session_seq) over (partition by messages.session_id order by seq
                                  rows between unbounded preceding and 1 preceding) as latest
      from messages
      join runs on runs.id = messages.run_id
     where messages.session_id > $after and messages.session_id <= $last
       and not synthetic
)
select session_id, run_id,
       format('message %s is of run %s of the line, after one of run %s', seq, session_seq, latest) as what
  from placed
 where session_seq < latest;

-- name: check_run_times
-- No run was started while one ahead of it in the line was live.  A second is allowed for: a statement's
-- time is that of its beginning, which may be before the commit that made it possible.
with line as (
    select session_id, id, started_at,
           max(coalesce(finished_at, 'infinity')) over (
               partition by session_id order by session_seq
               rows between unbounded preceding and 1 preceding) as free_at
      from runs
     where session_id > $after and session_id <= $last
)
select session_id, id as run_id,
       format('it was started at %s, and the runs ahead of it ended at %s', started_at, free_at) as what
  from line
 where free_at > started_at + interval '1 second';

-- name: check_results
-- Every call of a turn that has a reply has one result in it, in the order of the calls, and every
-- result its call.  A synthetic reply answers what nobody else has: some of the calls, each once.
with blocks as (
    select run_id, turn, role, place,
           block ->> (case role when 'user' then 'tool_use_id' else 'id' end) as call_id
      from messages,
           json_array_elements(case json_typeof(content) when 'array' then content else '[]' end)
               with ordinality as element (block, place)
     where session_id > $after and session_id <= $last
       and run_id is not null and turn > 0
       and block ->> 'type' = case role when 'user' then 'tool_result' else 'tool_use' end
), turns as (
    select run_id, turn,
           coalesce(array_agg(call_id order by place) filter (where role = 'assistant'), '{}') as calls,
           coalesce(array_agg(call_id order by place) filter (where role = 'user'), '{}') as results
      from blocks
     group by run_id, turn
)
select session_id, run_id,
       format('turn %s has %s calls, and message %s has %s results', turn, cardinality(calls), seq,
              cardinality(results)) as what
  from messages
  join turns using (run_id, turn)
 where session_id > $after and session_id <= $last
   and role = 'user'
   and case when synthetic
            then not results <@ calls
                 or cardinality(results) <> (select count(distinct id) from unnest(results) as id)
            else results <> calls end;

-- name: check_usage
-- The tokens of a run are those of its finished turns' answers.  A failed run may have more: it paid
-- for an answer that was of no use.
with stored as (
    select runs.id, key, sum(value::bigint) as tokens
      from runs
      join messages on messages.run_id = runs.id and role = 'assistant' and turn <= resume_turn,
           json_each_text(messages.usage)
     where runs.session_id > $after and runs.session_id <= $last
     group by runs.id, key
), counted as (
    select id, key, value::bigint as tokens
      from runs, json_each_text(usage)
     where session_id > $after and session_id <= $last
)
select runs.session_id, id as run_id,
       format('%s: %s on the run, %s on its answers', key, coalesce(counted.tokens, 0),
              coalesce(stored.tokens, 0)) as what
  from stored
  full join counted using (id, key)
  join runs using (id)
 where case when runs.state = 'failed' then coalesce(counted.tokens, 0) < coalesce(stored.tokens, 0)
            else coalesce(counted.tokens, 0) <> coalesce(stored.tokens, 0) end;

-- name: check_effects
-- What the ledger knows of is a call of a stored answer, in the place it says.
select runs.session_id, runs.id as run_id,
       format('effect %s of turn %s is of no such call', ordinal, effect.turn) as what
  from runs
  join tool_effects as effect on effect.run_id = runs.id
  left join messages as answer on answer.run_id = runs.id and answer.turn = effect.turn
                              and answer.role = 'assistant' and not answer.partial,
       lateral (select array_agg(block ->> 'id' order by place) as ids,
                       array_agg(block ->> 'name' order by place) as names
                  from json_array_elements(case json_typeof(answer.content)
                                           when 'array' then answer.content else '[]' end)
                           with ordinality as element (block, place)
                 where block ->> 'type' = 'tool_use') as call
 where runs.session_id > $after and runs.session_id <= $last
   and (call.ids[ordinal + 1], call.names[ordinal + 1]) is distinct from (call_id, tool);

-- name: check_audit
-- The creation of every run is on record, with its trace.  Asked of all at once: audit events are not
-- indexed by what they are about, and reading them once is cheaper than once a page.
select session_id, id as run_id, 'its creation is not on record with its trace' as what
  from runs
 where not exists (select from audit_events
                    where target_id = runs.id and action = 'run.create'
                      and audit_events.tenant_id = runs.tenant_id
                      and audit_events.trace_id = runs.trace_id);
