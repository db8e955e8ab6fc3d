-- The whole data model.  Invariants are constraints: what they refuse cannot be stored by any writer.
-- Ids are UUIDs of version 7, made by the application.  Foreign keys carry tenant_id, so that a link
-- between two tenants cannot be expressed.
-- Lock order, everywhere: the session, then runs by id, then the rest.

create table tenants (
    id uuid primary key,
    slug text not null unique check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name text not null,
    created_at timestamptz not null default now()
);

create table users (
    id uuid primary key,
    tenant_id uuid not null references tenants (id) on delete cascade,
    email text not null,
    role text not null check (role in ('member', 'admin', 'owner')),
    status text not null default 'active' check (status in ('active', 'disabled')),
    created_at timestamptz not null default now(),
    unique (tenant_id, id)
);

-- find_user: an address is one person in a tenant, however it is capitalized
create unique index users_email_key on users (tenant_id, lower(email));

create table api_keys (
    id uuid primary key,
    user_id uuid not null references users (id) on delete cascade,
    secret_sha256 bytea not null unique check (octet_length(secret_sha256) = 32),
    prefix text not null,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_at timestamptz not null default now()
);

-- the keys of one user
create index api_keys_user_idx on api_keys (user_id);

create table agents (
    id uuid primary key,
    tenant_id uuid not null references tenants (id) on delete cascade,
    slug text not null check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name text not null,
    provider text not null,
    model text not null,
    system_prompt text not null default '',
    tools text[] not null default '{}',
    guardrails text[] not null default '{}',
    completion jsonb,
    limits jsonb not null default '{}',
    created_at timestamptz not null default now(),
    unique (tenant_id, id),
    unique (tenant_id, slug)
);

create table sessions (
    id uuid primary key,
    tenant_id uuid not null references tenants (id) on delete cascade,
    agent_id uuid not null,
    created_by uuid not null,
    title text not null default '',
    last_seq bigint not null default 0 check (last_seq >= 0),
    next_run_seq bigint not null default 1 check (next_run_seq >= 1),
    created_at timestamptz not null default now(),
    unique (tenant_id, id),
    foreign key (tenant_id, agent_id) references agents (tenant_id, id) on delete cascade,
    foreign key (tenant_id, created_by) references users (tenant_id, id)
)
-- last_seq moves with every message: room on the page keeps that a HOT update
with (fillfactor = 70);

-- list_sessions: newest first, of a tenant or of one creator
create index sessions_tenant_idx on sessions (tenant_id, id desc);
create index sessions_creator_idx on sessions (tenant_id, created_by, id desc);

create table runs (
    id uuid primary key,
    tenant_id uuid not null references tenants (id) on delete cascade,
    session_id uuid not null,
    agent_id uuid not null,
    created_by uuid not null,
    lane text not null default 'main',
    session_seq bigint not null check (session_seq >= 1),
    state text not null default 'queued'
        check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    input json not null,

    owner_id uuid,
    claim_epoch bigint not null default 0 check (claim_epoch >= 0),
    lease_expires_at timestamptz,
    last_owner_id uuid,
    reclaims int not null default 0 check (reclaims >= 0),
    not_before timestamptz,
    cancel_requested_at timestamptz,

    resume_turn int not null default 0 check (resume_turn >= 0),
    iterations int not null default 0 check (iterations >= resume_turn),
    attempts int not null default 1 check (attempts >= 1),
    usage json not null default '{}',
    final_message_id uuid,
    stop_reason text
        check (stop_reason in ('end_turn', 'tool_use', 'max_tokens', 'stop_sequence', 'refusal',
                               'pause_turn', 'context_exceeded')),
    stopped_by text not null default '',
    error_code text
        check (error_code in ('iteration_cap', 'deadline_exceeded', 'provider_error',
                              'provider_stream_broken', 'unsupported_stop', 'context_exceeded',
                              'creator_inactive', 'creator_forbidden', 'agent_missing', 'incomplete',
                              'verifier_error', 'crash_loop', 'internal')),
    error text,

    trace_id text not null check (trace_id ~ '^[0-9a-f]{32}$'),
    span_id text check (span_id ~ '^[0-9a-f]{16}$'),
    request_trace text,
    idempotency_key text,
    request_sha256 bytea,

    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,

    unique (tenant_id, id),
    unique (session_id, session_seq),
    unique (tenant_id, created_by, session_id, idempotency_key),
    foreign key (tenant_id, session_id) references sessions (tenant_id, id) on delete cascade,
    foreign key (tenant_id, agent_id) references agents (tenant_id, id) on delete cascade,
    foreign key (tenant_id, created_by) references users (tenant_id, id),
    constraint owned_exactly_when_running
        check (num_nonnulls(owner_id, lease_expires_at) = case when state = 'running' then 2 else 0 end),
    constraint finished_exactly_when_terminal
        check ((finished_at is not null) = (state in ('succeeded', 'failed', 'cancelled'))),
    constraint queued_is_not_cancelled
        check (not (state = 'queued' and cancel_requested_at is not null)),
    constraint failed_exactly_with_a_code
        check ((state = 'failed') = (error_code is not null) and (error is null) = (error_code is null)),
    constraint keyed_with_a_digest
        check ((idempotency_key is null) = (request_sha256 is null))
)
-- a heartbeat must stay a HOT update: room on the page, and no index on lease_expires_at
with (fillfactor = 70);

-- one running run per session, whatever else goes wrong; the sweep reads the running ones by it
create unique index runs_one_running on runs (session_id) where state = 'running';
-- claim_next_run, list_claimable_heads, create_run: the live runs of a session, in their order
create index runs_live on runs (session_id, session_seq) where state in ('queued', 'running');
-- list_runs: newest first, of a session, a tenant, or one creator
create index runs_session_idx on runs (session_id, id desc);
create index runs_tenant_idx on runs (tenant_id, id desc);
create index runs_creator_idx on runs (tenant_id, created_by, id desc);

create table messages (
    id uuid primary key,
    tenant_id uuid not null,
    session_id uuid not null,
    seq bigint not null check (seq >= 1),
    run_id uuid,
    turn int check (turn >= 0),
    role text not null check (role in ('user', 'assistant')),
    -- json, not jsonb: keeps key order and exact text, on which prompt caches and signatures depend
    content json not null,
    stop_reason text
        check (stop_reason in ('end_turn', 'tool_use', 'max_tokens', 'stop_sequence', 'refusal',
                               'pause_turn', 'context_exceeded')),
    usage json,
    partial boolean not null default false,
    synthetic boolean not null default false,
    created_at timestamptz not null default now(),
    unique (session_id, seq),
    unique (run_id, turn, role),
    foreign key (tenant_id, session_id) references sessions (tenant_id, id) on delete cascade,
    foreign key (tenant_id, run_id) references runs (tenant_id, id) on delete cascade,
    constraint of_a_turn_or_of_nobody check ((run_id is null) = (turn is null))
);

-- checked when the statement ends: the final message is stored by the one that ends its run
alter table runs add foreign key (final_message_id) references messages (id) on delete set null;

create table tool_effects (
    run_id uuid not null references runs (id) on delete cascade,
    turn int not null check (turn >= 1),
    ordinal int not null check (ordinal >= 0),
    call_id text not null,
    tool text not null,
    effects text not null check (effects in ('keyed', 'unsafe')),
    state text not null check (state in ('started', 'finished')),
    result json,
    created_at timestamptz not null default now(),
    primary key (run_id, turn, ordinal),
    constraint recorded_exactly_when_finished check ((result is not null) = (state = 'finished'))
);

create table audit_events (
    id uuid primary key,
    tenant_id uuid not null references tenants (id) on delete cascade,
    -- no foreign key to users: a record of what someone did outlives them; null is the operator's shell
    actor_id uuid,
    action text not null,
    target_kind text not null,
    target_id uuid not null,
    detail jsonb not null default '{}',
    trace_id text check (trace_id ~ '^[0-9a-f]{32}$'),
    created_at timestamptz not null default now()
);

-- list_audit_events: newest first
create index audit_events_tenant_idx on audit_events (tenant_id, id desc);

-- The one predicate of visibility: a member sees what they created, the others all of their tenant.
-- Plain SQL, so that the planner inlines it and uses the indexes.
create function visible(
    row_tenant uuid, row_creator uuid, tenant uuid, viewer uuid, sees_all boolean
) returns boolean language sql immutable parallel safe as $$
    select row_tenant = tenant and (sees_all or row_creator = viewer)
$$;
