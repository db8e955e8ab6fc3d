-- What an agent asks of its model; checked by the adapter of its provider when the agent is written.
alter table agents add column model_options jsonb not null default '{}';
