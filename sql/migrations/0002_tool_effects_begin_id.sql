-- A beginning whose answer was lost is sent again, and must not meet itself as an earlier execution: each
-- carries an id, which its repeats carry, too.  The table is empty, for nothing has written to it so far.
alter table tool_effects add column begin_id uuid not null;
