-- A poll of the queue reads heads and nothing else, however much waits or has ended.
-- list_claimable_heads: what waits, by tenant, oldest first
create index runs_queued on runs (tenant_id, id) where state = 'queued';
-- list_claimable_heads: when the next backed-off head is due
create index runs_backed_off on runs (not_before) where state = 'queued' and not_before is not null;
