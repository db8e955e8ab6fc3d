-- The least SQL that stores what hango stores of a run; see floor.py.  Each statement serves the
-- sessions numbered from :first to :last, one or many.  In the texts, a colon stands before a blank:
-- before a letter or digit it would be a variable of pgbench.

-- name: schema
create schema floor;
set search_path = floor;
create table sessions (
    id uuid primary key default gen_random_uuid(),
    number int not null unique,
    last_seq int not null default 0
);
create table runs (
    id uuid primary key default gen_random_uuid(),
    session_id uuid not null references sessions,
    state text not null default 'queued',
    owner_id uuid,
    claim_epoch int not null default 0,
    resume_turn int not null default 0,
    usage json,
    input json not null,
    lease_expires_at timestamptz,
    finished_at timestamptz
) with (fillfactor = 70);
-- finds a session's open run, in hango as here
create index on runs (session_id) where state in ('queued', 'running');
create table messages (
    id uuid primary key default gen_random_uuid(),
    session_id uuid not null references sessions,
    run_id uuid not null references runs,
    seq int not null,
    turn int not null,
    role text not null,
    content json not null,
    created_at timestamptz not null default now(),
    unique (run_id, turn, role)
);
insert into sessions (number) select generate_series(1, 1000);

-- name: create
insert into runs (session_id, input)
select id, '[{"type": "text", "text": "hello"}]' from sessions where number between :first and :last;

-- name: claim
update runs
   set state = 'running', owner_id = '00000000-0000-0000-0000-000000000001',
       claim_epoch = claim_epoch + 1, lease_expires_at = now() + interval '90 s'
  from sessions s
 where s.number between :first and :last and session_id = s.id and state = 'queued';

-- name: turn
with fence as (
    update runs
       set resume_turn = resume_turn + 1, usage = '{"input_tokens": 10, "output_tokens": 5}',
           lease_expires_at = now() + interval '90 s'
      from sessions s
     where s.number between :first and :last and session_id = s.id and state = 'running'
       and owner_id = '00000000-0000-0000-0000-000000000001' and claim_epoch = 1
    returning runs.id, session_id, resume_turn
), bumped as (
    update sessions set last_seq = last_seq + 2 from fence where sessions.id = session_id
    returning sessions.id, last_seq
)
insert into messages (session_id, run_id, seq, turn, role, content)
select session_id, fence.id, last_seq - 1 + place, resume_turn, role, content::json
  from fence
  join bumped on bumped.id = session_id,
       (values (0, 'assistant',
                '[{"type": "tool_use", "id": "call_1", "name": "lookup", "input": {"key": "alpha"}}]'),
               (1, 'user',
                '[{"type": "tool_result", "tool_use_id": "call_1", "content": "alpha is 1"}]')
       ) as m (place, role, content);

-- name: settle
with fence as (
    update runs
       set state = 'succeeded', owner_id = null, lease_expires_at = null, finished_at = now(),
           resume_turn = resume_turn + 1, usage = '{"input_tokens": 10, "output_tokens": 5}'
      from sessions s
     where s.number between :first and :last and session_id = s.id and state = 'running'
       and owner_id = '00000000-0000-0000-0000-000000000001' and claim_epoch = 1
    returning runs.id, session_id, resume_turn
), bumped as (
    update sessions set last_seq = last_seq + 2 from fence where sessions.id = session_id
    returning sessions.id, last_seq
)
insert into messages (session_id, run_id, seq, turn, role, content)
select session_id, fence.id, last_seq - 1 + place, case place when 0 then 0 else resume_turn end,
       role, content::json
  from fence
  join bumped on bumped.id = session_id,
       (values (0, 'user', '[{"type": "text", "text": "hello"}]'),
               (1, 'assistant', '[{"type": "text", "text": "All is done, alpha is 1."}]')
       ) as m (place, role, content);
