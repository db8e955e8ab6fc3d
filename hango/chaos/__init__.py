"""A test under faults: real worker processes, faults at random times, then checks.

``python -m hango.chaos`` runs it, and `hango chaos` starts that.  `faults` and `scripts` draw from a
seed what is done; `workers`, `postgres` and `load` do it; `checks` compares the database with a journal
in which the model and the tools wrote what they really did.
"""
