"""Recording: a reverse proxy between an agent and its server, and what turns the bytes it saw into traces.

Two halves that share only `told`. The proxy forwards and appends; everything else (parsing, redacting, finding
sessions and sub-agents, writing) is pure code fed with what the proxy tells, and runs in a process of its own.
"""
