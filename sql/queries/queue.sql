-- Runs as the workers see them: the queue, the lease, the sweep.
-- Statements on leases are single statements, since now() is the start of the transaction.
-- A run that is known by its id is never also tested for a live state: Postgres could then read a partial
-- index of such runs whole instead, which it takes for empty if it last looked while nothing ran.  What is
-- tested says the same by the constraints on runs: an owner is there exactly while a run is running, and
-- finished_at exactly once it has ended.

-- part: next_head
-- The tenant's oldest head that is due, after the run "last".  No more than 20000 queued runs are read for
-- it, however many wait behind heads that are running or backed off: what lies beyond is found once these
-- have moved on, and is notified meanwhile.  A running run is the first of its line.  Written as "<=", since
-- Postgres takes "=" to be true of so few that it would read and sort all that the tenant has queued.
select id, session_id
  from (select id, session_id, session_seq, not_before
          from runs
         where runs.tenant_id = last.tenant_id and state = 'queued' and runs.id > last.id
         order by id
         limit 20000) as oldest
 where coalesce(not_before <= coalesce($now::timestamptz, now()), true)
   and session_seq <= (select first.session_seq
                         from runs as first
                        where first.session_id = oldest.session_id and first.finished_at is null
                        order by first.session_seq
                        limit 1)
 order by id
 limit 1;

-- name: list_claimable_heads
-- The heads of lines that may be claimed now: oldest first within a tenant, tenants taking turns.
-- Also tells, on every row and on a row of its own if there is no head, when the next head is due.
-- Reads heads one by one, a turn of all tenants at a time, and stops at $limit: what else waits, and what
-- has ended, costs nothing.  Tenants with $max_running running runs (0: no bound) are left out.
with recursive tenants as (
    -- a loose index scan: each step finds the next tenant with a queued run
    (select tenant_id, '00000000-0000-0000-0000-000000000000'::uuid as id
       from runs
      where state = 'queued'
      order by tenant_id
      limit 1)
    union all
    select following.tenant_id, tenants.id
      from tenants,
           lateral (select runs.tenant_id
                      from runs
                     where state = 'queued' and runs.tenant_id > tenants.tenant_id
                     order by runs.tenant_id
                     limit 1) as following
), first as materialized (
    select last.tenant_id, head.id, head.session_id
      from tenants as last,
           lateral ({next_head}) as head
     where $max_running::bigint = 0
        or (select count(*) from runs where runs.tenant_id = last.tenant_id and state = 'running')
           < $max_running
     order by head.id
     limit $limit
), turns as (
    select *, 1 as turn from first
    union all
    select last.tenant_id, head.id, head.session_id, turn + 1
      from turns as last,
           lateral ({next_head}) as head
), due as materialized (
    select * from turns limit $limit
), next as (
    select extract(epoch from min(not_before) - coalesce($now::timestamptz, now()))::float8 as next_due_in
      from runs
     where state = 'queued' and not_before > coalesce($now::timestamptz, now())
)
select due.tenant_id, due.session_id, next.next_due_in
  from next
  left join due on true
 order by due.turn, due.id;

-- name: find_claimable_head
-- The head of one session's line, as list_claimable_heads has it for all.
with head as (
    select tenant_id, session_id, state, not_before,
           coalesce(not_before <= coalesce($now::timestamptz, now()), true) as due
      from runs
     where session_id = $session_id and finished_at is null
     order by state = 'queued', session_seq
     limit 1
), next as (
    select extract(epoch from min(not_before) - coalesce($now::timestamptz, now()))::float8 as next_due_in
      from head
     where state = 'queued' and not due
)
select head.tenant_id, head.session_id, next.next_due_in
  from next
  left join head on state = 'queued' and due;

-- name: claim_next_run
-- Claim the head of one session's line.  Every claimer aims at the same row, a running one first; the
-- tests on it are repeated outside, where they are made again after a wait for its lock.
-- One row if the line has a head: the run if it was claimed, whether it looked claimable, and whether
-- there is another behind it.
-- Where a tenant may have $max_running running runs (0: no bound), its claims take turns while there is
-- room, so that the bound is exact; nothing waits otherwise.
with head as materialized (
    select id, tenant_id, session_seq, span_id, state = 'queued'
               and coalesce(not_before <= coalesce($now::timestamptz, now()), true) as due
      from runs
     where session_id = $session_id and finished_at is null
     order by state = 'queued', session_seq
     limit 1
), room as materialized (
    select case when $max_running::bigint = 0 or not due then true
                when (select count(*) from runs where runs.tenant_id = head.tenant_id and state = 'running')
                     >= $max_running then false
                when pg_advisory_xact_lock(hashtextextended('running ' || tenant_id, 0)) is null then false
                else count_running_runs(tenant_id) < $max_running end as left_over
      from head
), claimed as (
    update runs
       set state = 'running', owner_id = $owner_id, claim_epoch = claim_epoch + 1,
           lease_expires_at = coalesce($now::timestamptz, now()) + $lease_ttl::interval,
           not_before = null, waiting_on = null, span_id = $span_id,
           started_at = coalesce(started_at, $now::timestamptz, now())
      from head, room
     where runs.id = head.id and room.left_over
       and num_nonnulls(owner_id, finished_at) = 0
       and coalesce(not_before <= coalesce($now::timestamptz, now()), true)
    returning runs.*
)
select head.due and room.left_over as due, head.span_id as previous_span_id, claimed.*,
       exists (select from runs as next
                where next.session_id = $session_id and next.finished_at is null
                  and next.session_seq > head.session_seq) as more_in_line
  from head, room
  left join claimed on true;

-- name: find_unconfirmed_claims
-- What this process claimed in a statement whose answer it never got: it has no actor, and nothing has
-- been done for it.  Only for a session of which this process executes nothing.  A run whose lease it let
-- lapse is the sweep's, which counts it.
select id, claim_epoch
  from runs
 where session_id = $session_id and state = 'running' and owner_id = $owner_id
   and lease_expires_at > coalesce($now::timestamptz, now()) + $least_left::interval;

-- name: release_unconfirmed_claim
-- Give such a claim back.  By its epoch: this statement, too, may reach the database long after it was
-- given up, and must not take the run from a later claim of the same process.
with released as (
    update runs
       set state = case when cancel_requested_at is null then 'queued' else 'cancelled' end,
           finished_at = case when cancel_requested_at is not null
                              then coalesce($now::timestamptz, now()) end,
           owner_id = null, lease_expires_at = null, last_owner_id = owner_id
     where id = $run_id
       and owner_id = $owner_id and claim_epoch = $claim_epoch
    returning session_id, id, tenant_id
)
select pg_notify('hango', concat_ws(' ', session_id, id, tenant_id)) as notified from released;

-- name: renew_leases
-- Renew a batch in id order, skipping what someone else has locked: that is neither lost nor renewed.
-- One row for each pair given.
with mine as materialized (
    select *
      from unnest($run_ids::uuid[], $claim_epochs::bigint[]) as pair (run_id, claim_epoch)
), held as materialized (
    select runs.id
      from runs
      join mine on mine.run_id = runs.id and mine.claim_epoch = runs.claim_epoch
     where owner_id = $owner_id
     order by runs.id
       for no key update of runs skip locked
), renewed as (
    update runs
       set lease_expires_at = greatest(lease_expires_at,
                                       coalesce($now::timestamptz, now()) + $lease_ttl::interval)
      from held
     where runs.id = held.id
    returning runs.id, runs.claim_epoch
)
select mine.run_id, mine.claim_epoch,
       renewed.id is not null as renewed,
       runs.id is null as lost,
       runs.cancel_requested_at is not null as cancelled
  from mine
  left join renewed on renewed.id = mine.run_id and renewed.claim_epoch = mine.claim_epoch
  left join runs on runs.id = mine.run_id and runs.claim_epoch = mine.claim_epoch
                and runs.owner_id = $owner_id;

-- name: reclaim_lapsed_runs
-- Take back a page of runs whose lease has lapsed.  A cancelled one ends so; one that has not
-- finished a turn in $max_reclaims leases (0: no limit) ends as crash_loop; the others queue again,
-- from the second time on after a pause that triples up to five minutes.  Most of it is left to chance:
-- of runs lost with one process one may be the reason, and the others must not come back with it.
with lapsed as materialized (
    select id, cancel_requested_at, reclaims
      from runs
     where state = 'running'
       and lease_expires_at < coalesce($now::timestamptz, now())
     order by id
     limit $limit
       for no key update skip locked
), fates as (
    -- from the locked rows, not from runs again: that would be the snapshot from before the lock
    select id,
           case when cancel_requested_at is not null then 'cancelled'
                when $max_reclaims::int > 0 and reclaims + 1 >= $max_reclaims then 'failed'
                else 'queued' end as state
      from lapsed
), reclaimed as (
    update runs
       set state = fates.state,
           owner_id = null, lease_expires_at = null, last_owner_id = owner_id,
           reclaims = reclaims + 1,
           iterations = resume_turn,
           not_before = case when fates.state = 'queued' and reclaims > 0
                             then coalesce($now::timestamptz, now())
                                  + least(interval '1 second' * 3 ^ (least(reclaims, 20) - 1),
                                          interval '5 minutes') * (0.25 + random() * 0.75) end,
           finished_at = case when fates.state <> 'queued' then coalesce($now::timestamptz, now()) end,
           error_code = case when fates.state = 'failed' then 'crash_loop' end,
           error = case when fates.state = 'failed'
                        then 'the run was taken back ' || reclaims + 1
                             || ' times in a row without finishing a turn' end,
           stopped_by = case when fates.state = 'failed' then 'crash_loop' else stopped_by end
      from fates
     where runs.id = fates.id
    returning runs.id, runs.tenant_id, runs.session_id, runs.state
)
select id, state, pg_notify('hango', concat_ws(' ', session_id, id, tenant_id)) as notified from reclaimed;
