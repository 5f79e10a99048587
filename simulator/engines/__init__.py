"""The engines a run can drive: how each is recognised, started, watched, stopped, reset and read.

`base` says what an engine is to a run; one module a kind (`vllm`, `emulator`, `external`) fills it in; `probe` finds
out what a server can do; `launch` starts an engine behind a `keeper` that ends it with the run; `signatures` reads its
log. May import agents and traces; nothing of `simulator.run` or `simulator.results`.
"""
