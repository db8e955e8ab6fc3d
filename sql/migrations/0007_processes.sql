-- Which host and pid an owner id stands for; a process writes its row when it starts and every few seconds.
create table processes (
    id uuid primary key,
    host text not null,
    pid int not null,
    role text not null,
    version text not null,
    workers int not null check (workers >= 0),
    started_at timestamptz not null default now(),
    beat_at timestamptz not null default now(),
    ended_at timestamptz
);
