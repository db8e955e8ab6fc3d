-- What was done, by whom.  Rows are written by the statements that do it; here they are read.

-- name: list_audit_events
select *
  from audit_events
 where tenant_id = $tenant_id
   and ($before::uuid is null or id < $before)
 order by id desc
 limit $limit;

-- name: insert_audit_event
-- Something that was refused; what was done is recorded by the statement that does it.
insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
values ($audit_id, $tenant_id, $actor_id, $action, $target_kind, $target_id, $detail);
