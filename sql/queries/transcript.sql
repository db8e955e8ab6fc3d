-- What the executors of runs write.  A statement stores what any number of runs have to store, one item
-- for each run: a parameter in the singular has one value an item, one in the plural one a message.
-- Each statement takes its parts in the same order:
--   held     the session rows, locked: whoever writes to a session queues here, before the fence
--   locked   the runs, locked
--   fence    the items whose run is still their claim's; everything after derives from it
--   bumped   each session's last_seq, the only source of seq
--   stored   the messages
-- and returns no row for an item whose fence did not hold.  What another transaction has locked is left
-- out and returned as "locked"; `Query.waiting` is the same statement for one item, and waits instead.

-- name: load_execution
-- What an execution needs to know, read after its claim: the session, and today's rights and agent.
select to_jsonb(sessions) as session, to_jsonb(users) as creator, to_jsonb(agents) as agent,
       (select messages.id from messages
         where messages.session_id = sessions.id and seq = sessions.last_seq) as last_message_id
  from runs
  join sessions on sessions.id = runs.session_id
  left join users on users.id = runs.created_by and users.tenant_id = runs.tenant_id
  left join agents on agents.id = sessions.agent_id and agents.tenant_id = runs.tenant_id
 where runs.id = $run_id;

-- name: read_transcript
select * from messages where session_id = $session_id and seq > $after order by seq;

-- part: lock_items
-- In the order of ids, so that no two statements wait for each other.  The fence is tested on the rows as
-- they are once locked, not on those of the snapshot from before.
items as materialized (
    select *
      from unnest($run_id::uuid[], $session_id::uuid[], $owner_id::uuid[], $claim_epoch::bigint[],
                  $resume_turn::int[], $message_count::int[]) with ordinality
           as item (run_id, session_id, owner_id, claim_epoch, resume_turn, message_count, item)
), held as materialized (
    select id from sessions where id = any ($session_id::uuid[])
     order by id
       for no key update skip locked
), locked as materialized (
    select runs.id, session_id, state, owner_id, claim_epoch, resume_turn, lease_expires_at,
           cancel_requested_at is not null as cancelled
      from runs
      join held on held.id = runs.session_id
     where runs.id = any ($run_id::uuid[])
     order by runs.id
       for no key update of runs skip locked
), fence as materialized (
    select items.*, locked.lease_expires_at, locked.cancelled
      from items
      join locked on locked.id = items.run_id and locked.session_id = items.session_id
     where locked.owner_id = items.owner_id and locked.claim_epoch = items.claim_epoch
       and locked.state = 'running'
       and locked.resume_turn = items.resume_turn
)

-- part: store_messages
-- Stores the messages of the items in "storing", in their order, after the last message of their session.
bumped as (
    update sessions
       set last_seq = last_seq + storing.message_count
      from storing
     where sessions.id = storing.session_id
    returning storing.item, sessions.id, sessions.tenant_id, last_seq - storing.message_count as before
), stored as (
    insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content, stop_reason, usage,
                          partial, synthetic)
    select m.id, bumped.tenant_id, bumped.id, bumped.before + m.place, m.run_id, m.turn, m.role, m.content,
           m.stop_reason, m.usage, m.partial, m.synthetic
      from bumped
      join unnest($message_items::int[], $message_places::int[], $message_ids::uuid[], $run_ids::uuid[],
                  $turns::int[], $roles::text[], $contents::json[], $stop_reasons::text[],
                  $usages::json[], $partials::boolean[], $synthetics::boolean[])
           as m (item, place, id, run_id, turn, role, content, stop_reason, usage, partial, synthetic)
           on m.item = bumped.item
)

-- name: append_messages
with {lock_items}, storing as (
    select * from fence
), {store_messages}
select items.item, locked.id is null as locked, bumped.before as seq_before, now() as stored_at
  from items
  left join locked on locked.id = items.run_id
  left join bumped on bumped.item = items.item
 where locked.id is null or bumped.item is not null;

-- name: end_turn
-- The boundary of a turn: its results, or why its answer did not verify, resume_turn, iterations, usage,
-- attempts and the renewed lease.
with {lock_items}, ended as (
    update runs
       set resume_turn = fence.resume_turn + 1, iterations = fence.resume_turn + 1, usage = turn.usage,
           reclaims = 0, missing_since = null,
           attempts = attempts + turn.rejected::int,
           lease_expires_at = greatest(runs.lease_expires_at,
                                       coalesce($now::timestamptz, now()) + turn.lease_ttl)
      from fence
      join unnest($usage::json[], $rejected::boolean[], $lease_ttl::interval[]) with ordinality
           as turn (usage, rejected, lease_ttl, item) on turn.item = fence.item
     where runs.id = fence.run_id
), storing as (
    select * from fence
), {store_messages}
select items.item, locked.id is null as locked, bumped.before as seq_before, now() as stored_at,
       locked.cancelled
  from items
  left join locked on locked.id = items.run_id
  left join bumped on bumped.item = items.item
 where locked.id is null or bumped.item is not null;

-- name: settle_run
-- The end of a run, with the last messages it stores.
with {lock_items}, ended as (
    update runs
       set state = outcome.state, owner_id = null, lease_expires_at = null, last_owner_id = runs.owner_id,
           finished_at = coalesce($now::timestamptz, now()),
           resume_turn = outcome.iterations, iterations = outcome.iterations, usage = outcome.usage,
           stop_reason = outcome.stop_reason, stopped_by = outcome.stopped_by,
           error_code = outcome.error_code, error = outcome.error,
           final_message_id = coalesce(outcome.final_message_id,
                                       (select messages.id from messages
                                         where messages.run_id = runs.id and role = 'assistant'
                                         order by turn desc limit 1))
      from fence
      join unnest($state::text[], $iterations::int[], $usage::json[], $stop_reason::text[],
                  $stopped_by::text[], $error_code::text[], $error::text[], $final_message_id::uuid[])
           with ordinality as outcome (state, iterations, usage, stop_reason, stopped_by, error_code, error,
                                       final_message_id, item) on outcome.item = fence.item
     where runs.id = fence.run_id
    returning fence.item,
              pg_notify('hango', concat_ws(' ', runs.session_id, runs.id, runs.tenant_id)) as notified
), storing as (
    select * from fence
), {store_messages}
select items.item, locked.id is null as locked, ended.notified
  from items
  left join locked on locked.id = items.run_id
  left join ended on ended.item = items.item
 where locked.id is null or ended.item is not null;

-- name: release_run
-- The end of an execution that was cut short: cancelled if that was asked for, queued again otherwise.
-- What had arrived is stored only with the end of the run; a run that will be re-driven stores nothing.
-- Only while the lease holds: after that the decision is the sweep's.
with {lock_items}, released as (
    update runs
       set state = case when fence.cancelled then 'cancelled' else 'queued' end,
           finished_at = case when fence.cancelled then coalesce($now::timestamptz, now()) end,
           owner_id = null, lease_expires_at = null, last_owner_id = runs.owner_id,
           final_message_id = case when fence.cancelled then outcome.final_message_id end
      from fence
      join unnest($final_message_id::uuid[]) with ordinality
           as outcome (final_message_id, item) on outcome.item = fence.item
     where runs.id = fence.run_id
       and fence.lease_expires_at > coalesce($now::timestamptz, now())
    returning fence.item, runs.state,
              pg_notify('hango', concat_ws(' ', runs.session_id, runs.id, runs.tenant_id)) as notified
), storing as (
    select fence.* from fence join released on released.item = fence.item where released.state = 'cancelled'
), {store_messages}
select items.item, locked.id is null as locked, released.state, released.notified
  from items
  left join locked on locked.id = items.run_id
  left join released on released.item = items.item
 where locked.id is null or released.item is not null;

-- name: postpone_run
-- Put back a run that this process cannot execute, for a process that can: after a pause that grows with
-- the time since the first try, and counted nowhere.  No row, too, once that time is $grace.
with fence as (
    update runs
       set state = case when cancel_requested_at is null then 'queued' else 'cancelled' end,
           finished_at = case when cancel_requested_at is not null
                              then coalesce($now::timestamptz, now()) end,
           owner_id = null, lease_expires_at = null, last_owner_id = owner_id,
           not_before = case when cancel_requested_at is null
                             then coalesce($now::timestamptz, now())
                                  + greatest(interval '1 second',
                                             least(interval '30 seconds',
                                                   (coalesce($now::timestamptz, now()) - missing_since) / 2))
                        end,
           missing_since = coalesce(missing_since, $now::timestamptz, now()),
           waiting_on = $waiting_on
     where id = $run_id
       and owner_id = $owner_id and claim_epoch = $claim_epoch
       and lease_expires_at > coalesce($now::timestamptz, now())
       and coalesce(missing_since, $now::timestamptz, now()) > coalesce($now::timestamptz, now()) - $grace::interval
    returning id, tenant_id, session_id, state
)
select state, pg_notify('hango', concat_ws(' ', session_id, id, tenant_id)) as notified from fence;

-- name: abandon_run
-- End the lease now: the next sweep takes the run back, and counts it.
update runs
   set lease_expires_at = least(lease_expires_at,
                                coalesce($now::timestamptz, now()) - interval '1 millisecond')
 where id = $run_id
   and owner_id = $owner_id and claim_epoch = $claim_epoch
returning id;

-- name: read_run_status
-- After a write that came to no row: what the run is now, and whether the message is there already.
select state, owner_id, claim_epoch, last_owner_id, reclaims, resume_turn,
       cancel_requested_at is not null as cancelled,
       exists (select from messages where messages.id = $message_id::uuid) as stored
  from runs
 where id = $run_id;
