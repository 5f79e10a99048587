"""A viewer of a run folder: a process of its own, so that watching never disturbs measuring.

May import every other room; nothing imports it.
"""
