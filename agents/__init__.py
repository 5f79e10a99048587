"""One session being replayed: state machine, prompt bytes, streaming client.

May import `windtunnel.traces` and nothing else of the project.
"""
