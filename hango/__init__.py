"""hango: an actor-model runtime on trio that runs AI agents durably in Postgres."""
