"""What a run leaves behind and what its numbers mean.

`store` writes and reads the run folder, `tally` walks the events once, `metrics` defines each figure once, `validity`
says whether they can be trusted, `summary` puts them together, `fold` keeps the live view of the same events, `text`
prints. May import `windtunnel.agents.events` and `windtunnel.traces`; nothing of the run, the engines or the screens.
"""
