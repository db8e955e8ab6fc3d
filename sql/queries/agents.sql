-- Stored agents; everybody in the tenant may read them.

-- name: insert_agent
with created as (
    insert into agents (id, tenant_id, slug, name, provider, model, system_prompt, tools, guardrails,
                        completion, limits, model_options)
    values ($agent_id, $tenant_id, $slug, $name, $provider, $model, $system_prompt, $tools,
            $guardrails, $completion, $limits, $model_options)
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id)
    select $audit_id, tenant_id, $actor_id, 'agent.create', 'agent', id from created
)
select * from created;

-- name: lock_agent
-- Changes made at once queue here, so that each sees what the others did.
select * from agents where id = $agent_id and tenant_id = $tenant_id for no key update;

-- name: update_agent
-- Under lock_agent.  What changed is recorded by length and digest: a prompt may be confidential, and
-- an operator who has a text can tell whether it is that one.
with before as (
    select * from agents where id = $agent_id and tenant_id = $tenant_id
), changed as (
    update agents
       set slug = $slug, name = $name, provider = $provider, model = $model,
           system_prompt = $system_prompt, tools = $tools, guardrails = $guardrails,
           completion = $completion, limits = $limits, model_options = $model_options
     where id = $agent_id and tenant_id = $tenant_id
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail)
    select $audit_id, changed.tenant_id, $actor_id, 'agent.update', 'agent', changed.id,
           (select coalesce(jsonb_object_agg(after.key, jsonb_build_object(
                       'length', length(after.value),
                       'sha256', encode(sha256(convert_to(after.value, 'UTF8')), 'hex'))), '{}')
              from jsonb_each_text(to_jsonb(changed)) as after
             where after.value is distinct from to_jsonb(before) ->> after.key)
      from changed, before
)
select * from changed;

-- name: get_agent
select * from agents where id = $agent_id and tenant_id = $tenant_id;

-- name: get_agent_by_slug
select * from agents where slug = $slug and tenant_id = $tenant_id;

-- name: list_agents
-- Newest first, $limit at most, and no more than $max_bytes of prompts and options, but for the first.
with page as (
    select *
      from agents
     where tenant_id = $tenant_id
       and ($before::uuid is null or id < $before)
     order by id desc
     limit $limit + 1
), sized as (
    select page.*, row_number() over listed as place, count(*) over () as found,
           sum(octet_length(system_prompt) + octet_length(model_options::text)) over listed as bytes
      from page
    window listed as (order by id desc)
)
select *
  from sized
 where place <= $limit and ($max_bytes::bigint is null or bytes <= $max_bytes or place = 1)
 order by place;
