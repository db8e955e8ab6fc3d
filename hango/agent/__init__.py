"""The agent loop: think, act, observe, until the model is done or something stops it.

Pure: it imports neither actors nor store, and sees the world through `hango.agent.ports`.
"""
