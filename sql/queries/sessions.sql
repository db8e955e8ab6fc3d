-- Sessions and the messages in them, as their users see them.

-- name: insert_session
-- No row when the tenant has no such agent.
with created as (
    insert into sessions (id, tenant_id, agent_id, created_by, title)
    select $session_id, tenant_id, id, $user_id, $title
      from agents
     where id = $agent_id and tenant_id = $tenant_id
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, tenant_id, created_by, 'session.create', 'session', id,
           jsonb_build_object('agent_id', agent_id)
      from created
)
select * from created;

-- name: get_session
select *
  from sessions
 where id = $session_id
   and visible(tenant_id, created_by, $tenant_id, $user_id, $sees_all);

-- name: list_sessions
select *
  from sessions
 where visible(tenant_id, created_by, $tenant_id, $user_id, $sees_all)
   and id < coalesce($before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by id desc
 limit $limit;

-- name: list_own_sessions
-- Those that a member created: a statement of its own, so that it walks an index of theirs.
select *
  from sessions
 where tenant_id = $tenant_id and created_by = $user_id
   and visible(tenant_id, created_by, $tenant_id, $user_id, $sees_all)
   and id < coalesce($before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by id desc
 limit $limit;

-- name: list_messages
-- Oldest first, $limit at most, and no more than $max_bytes of content, but for the first.
-- No row when there is none; whether the session is visible is asked beforehand.
with page as (
    select messages.*
      from messages
      join sessions on sessions.id = messages.session_id
     where messages.session_id = $session_id
       and visible(sessions.tenant_id, sessions.created_by, $tenant_id, $user_id, $sees_all)
       and seq > $after
     order by seq
     limit $limit + 1
), sized as (
    select page.*, row_number() over listed as place, count(*) over () as found,
           sum(case when $max_bytes::bigint is null then 0 else octet_length(content::text) end) over listed as bytes
      from page
    window listed as (order by seq)
)
select *
  from sized
 where place <= $limit and ($max_bytes::bigint is null or bytes <= $max_bytes or place = 1)
 order by place;

-- name: lock_session
-- Whoever adds to a session queues here.  A statement of its own: what the next one counts must be
-- read after the wait, not in the snapshot from before it.
select *
  from sessions
 where id = $session_id
   and visible(tenant_id, created_by, $tenant_id, $user_id, $sees_all)
   for no key update;

-- name: insert_message
-- Under lock_session.  No row while the session has a live run.
with bumped as (
    update sessions
       set last_seq = last_seq + 1
     where id = $session_id
       and not exists (select from runs
                        where session_id = $session_id and finished_at is null)
    returning id, tenant_id, last_seq
), created as (
    insert into messages (id, tenant_id, session_id, seq, role, content)
    select $message_id, tenant_id, id, last_seq, $role, $content from bumped
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, tenant_id, $user_id, 'message.create', 'message', id,
           jsonb_build_object('session_id', session_id)
      from created
)
select * from created;
