"""The engines a run can drive: how each is recognised, started, watched, stopped, reset and read.

`base` says what an engine is to a run; one module a kind fills it in (`known` lists them, `catalogue` tells people);
`probe` finds out what a server can do; `launch` starts an engine behind a `keeper` that ends it with the run; `recipes`
knows start commands, `command` reads and changes their flags, `signatures` and `coldstart` read logs, `levers` names
flags against limits. May import agents and traces; nothing of `simulator.run` or `simulator.results`.
"""
