"""Many sessions against an engine: run, engines, emulator, measurements, command line.

May import `windtunnel.traces` and `windtunnel.agents`.
"""
