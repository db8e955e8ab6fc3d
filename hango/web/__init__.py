"""The HTTP API: requests in, store calls, JSON out.

Rule: web and actors meet only in Postgres; nothing here runs an agent.  `hango.app` uses
`app.create_app` and `server.serve`, `hango.cli` uses `models`; this file imports nothing, so that
printing a run does not load a web server.
"""
