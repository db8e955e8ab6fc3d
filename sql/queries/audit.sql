-- What was done, by whom.  Rows are written by the statements that do it; here they are read.

-- name: list_audit_events
select *
  from audit_events
 where tenant_id = $tenant_id
   and ($before::uuid is null or id < $before)
 order by id desc
 limit $limit;
