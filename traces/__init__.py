"""What was recorded: sessions of real coding agents as data.

Data in, data out: no network, no asyncio, no clock. May import nothing of the project.
"""
