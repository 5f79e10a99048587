"""One run, from start to summary: what is replayed, when each session and call starts, when the measuring begins.

Reads top down: run -> prepare -> driver -> lane; samplers run beside the driver.
"""
