"""The HTTP API: requests in, store calls, JSON out.

One rule: web and actors meet only in Postgres, so nothing here runs an agent or waits for one.
`hango.app` takes `app.create_app` and `server.serve`; `hango.cli` takes `shapes`, which is why this
file imports nothing: printing a run must not load a web server.
"""
