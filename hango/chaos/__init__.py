"""hango under deliberate failure: real worker processes, disturbed at random, and then the accounts.

One rule: what is checked is what was really done.  The tools of the runs write down what they do in a
journal that outlives any process; the verdict compares it with the database.

``python -m hango.chaos`` runs it; `hango chaos` starts that.  What happens when is in `plan`,
who does it in `storm`, to whom in `fleet`, `server` and `load`, what must hold afterwards in `verdict`.
"""
