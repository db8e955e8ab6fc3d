-- A run whose provider, tool, guardrail or verifier the claiming process does not have is put back for
-- others: why it waits, and since when no process could execute it.
alter table runs add column waiting_on text, add column missing_since timestamptz;
