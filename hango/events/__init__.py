"""The events of a run, for clients that watch it: made from what is stored and from the open answer."""
