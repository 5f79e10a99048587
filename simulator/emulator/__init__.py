"""A vLLM that needs no GPU: exact in what it counts, modelled in what it times.

Bottom up: `blocks` (pool, prefix cache), `scheduler` (which request computes what in a step), `facts` and `steptime`
(how long the step takes on a GPU), `engine` (the loop over both), and in front of them `tokenizer`, `template`,
`routes`, `metrics`, `flags` and `serve`: vLLM's HTTP and command line. Everything below `engine`'s shell is pure.
"""
