-- The processes of this database, and what their metrics say of its runs.

-- name: beat_process
-- Say that a process lives; also counts live runs, of the first 100000 there are.
with beaten as (
    insert into processes (id, host, pid, role, version, workers)
    values ($process_id, $host, $pid, $role, $version, $workers)
        on conflict (id) do update set beat_at = now(), ended_at = null
)
select tenant_id, lane, state, count(*) as runs
  from (select tenant_id, lane, state from runs where finished_at is null limit 100000) as live
 group by tenant_id, lane, state;

-- name: end_process
-- Say that a process ended in order; forget those that were last heard of a month ago.
with ended as (
    update processes set ended_at = now() where id = $process_id
)
delete from processes where beat_at < now() - interval '30 days' and id <> $process_id;

-- name: list_processes
-- Those that were alive within $hours hours, latest start first, and how many runs each executes now.
select processes.*, now() as listed_at,
       (select count(*) from runs where state = 'running' and owner_id = processes.id) as running
  from processes
 where beat_at > now() - $hours::float8 * interval '1 hour'
 order by started_at desc, id;
