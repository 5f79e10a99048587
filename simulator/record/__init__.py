"""`windtunnel record`: the proxy, the agent it is started for, and the process that writes the recording.

Two processes. The command's own forwards bytes and waits for the agent; the writer parses, finds sessions and writes
the run folder. So a large prompt being parsed never delays a byte, and a killed proxy leaves a recording that is whole
up to its last byte.
"""
