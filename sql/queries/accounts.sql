-- Tenants, the people in them, and their keys.

-- name: insert_tenant
with created as (
    insert into tenants (id, slug, name) values ($tenant_id, $slug, $name) returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id)
    select $audit_id, id, null, 'tenant.create', 'tenant', id from created
)
select * from created;

-- name: get_tenant_by_slug
select * from tenants where slug = $slug;

-- name: insert_user
with created as (
    insert into users (id, tenant_id, email, role)
    values ($user_id, $tenant_id, $email, $role)
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, tenant_id, $actor_id, 'user.create', 'user', id,
           jsonb_build_object('role', role)
      from created
)
select * from created;

-- name: get_user_by_email
select * from users where tenant_id = $tenant_id and lower(email) = lower($email);

-- name: get_user
select * from users where tenant_id = $tenant_id and id = $user_id;

-- name: list_users
select *
  from users
 where tenant_id = $tenant_id
   and ($before::uuid is null or id < $before)
 order by id desc
 limit $limit;

-- name: lock_user_and_owners
-- The user, and every active owner: a change that may take one away waits here, so that the last one
-- cannot be taken by two at once.
select *
  from users
 where tenant_id = $tenant_id
   and (id = $user_id or role = 'owner' and status = 'active')
 order by id
   for no key update;

-- name: update_user
with changed as (
    update users
       set role = $role, status = $status
     where tenant_id = $tenant_id and id = $user_id
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, tenant_id, $actor_id, 'user.update', 'user', id,
           jsonb_build_object('role', role, 'status', status)
      from changed
)
select * from changed;

-- name: list_keys
select api_keys.*
  from api_keys
  join users on users.id = api_keys.user_id
 where users.tenant_id = $tenant_id and users.id = $user_id
   and ($before::uuid is null or api_keys.id < $before)
 order by api_keys.id desc
 limit $limit;

-- name: revoke_key
-- Revoking again changes nothing and is not audited; no row when the user has no such key.
with target as materialized (
    select api_keys.id
      from api_keys
      join users on users.id = api_keys.user_id
     where api_keys.id = $key_id and users.id = $user_id and users.tenant_id = $tenant_id
), revoked as (
    update api_keys
       set revoked_at = now()
      from target
     where api_keys.id = target.id and revoked_at is null
    returning api_keys.*
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, $tenant_id, $actor_id, 'key.revoke', 'key', id,
           jsonb_build_object('user_id', user_id, 'prefix', prefix)
      from revoked
)
select id from target;

-- name: lock_valid_keys
select id from api_keys where user_id = $user_id and revoked_at is null order by id for no key update;

-- name: revoke_keys
-- Under lock_valid_keys; each is audited.
with revoked as (
    update api_keys set revoked_at = now() where id = any($key_ids) returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select audit.id, $tenant_id, $actor_id, 'key.revoke', 'key', revoked.id,
           jsonb_build_object('user_id', revoked.user_id, 'prefix', revoked.prefix)
      from revoked
      join unnest($key_ids::uuid[], $audit_ids::uuid[]) as audit (key_id, id)
        on audit.key_id = revoked.id
)
select id from revoked;

-- name: insert_key
-- No row when the user is not of this tenant, or has another role than the caller believes: one who is
-- promoted at this moment does not keep a key that was made for what they were.
with holder as (
    select id
      from users
     where id = $user_id and tenant_id = $tenant_id and role = coalesce($role, role)
       for no key update
), created as (
    insert into api_keys (id, user_id, secret_sha256, prefix)
    select $key_id, id, $secret_sha256, $prefix
      from holder
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, $tenant_id, $actor_id, 'key.create', 'key', id,
           jsonb_build_object('user_id', user_id, 'prefix', prefix)
      from created
)
select * from created;

-- name: authenticate
-- The user of a key; the caller decides whether it may be used.
-- `stale` says that the key's last use was recorded a minute or more ago.
select users.*, api_keys.id as key_id, api_keys.revoked_at is not null as revoked,
       coalesce(api_keys.last_used_at < now() - interval '1 minute', true) as stale
  from api_keys
  join users on users.id = api_keys.user_id
 where api_keys.secret_sha256 = $secret_sha256;

-- name: touch_key
update api_keys set last_used_at = now() where id = $key_id;
