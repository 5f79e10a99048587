"""Sessions with one thing changed between two calls, written down as a recorder would have seen them."""

import json

from windtunnel.traces.model import Block, Call, Header, Message, Thread, ToolCall, ToolSet, Trace, Usage, digest_of


class Plant:
    """A session of one thread; texts cost a token for each four characters."""

    def __init__(self, agent="claude-code", *, shape_only=False):
        self.agent = agent
        self.shape_only = shape_only
        self.blocks, self.messages, self.toolsets, self.calls, self.threads = [], [], [], [], [Thread(0)]
        self.prompts = {}

    def block(self, text, kind="prose", **more):
        number = len(self.blocks)
        kept = None if self.shape_only else text
        self.blocks.append(Block(number, digest_of(text), kind, max(1, len(text) // 4), len(text), kept, **more))
        return number

    def say(self, role, *texts, reasoning=None, calls=(), answers=None, kind="prose"):
        made = Message(
            len(self.messages),
            role,
            tuple(t if isinstance(t, int) else self.block(t, kind) for t in texts),
            (self.block(reasoning),) if reasoning else (),
            tuple(ToolCall(i, name, self.block(arguments, "json")) for i, name, arguments in calls),
            answers,
        )
        self.messages.append(made)
        return made.id

    def tools(self, *names, more=""):
        schemas = [{"name": n, "description": f"What {n} does{more}.", "input_schema": {}} for n in names]
        self.toolsets.append(ToolSet(len(self.toolsets), names, self.block(json.dumps(schemas), "json")))
        return len(self.toolsets) - 1

    def call(self, *messages, tools=None, output=None, thread=0, kind="turn", **more):
        number = len(self.calls)
        self.calls.append(Call(number, thread, messages, tools=tools, output=output, kind=kind, usage=Usage(), **more))
        self.prompts[number] = messages
        return number

    def trace(self):
        header = Header("planted", agent=self.agent, agent_version="1", shape_only=self.shape_only)
        tables = (self.blocks, self.messages, self.toolsets, self.threads, self.calls)
        return Trace(header, *map(tuple, tables))

    def tokens(self, *messages):
        trace = self.trace()
        return sum(trace.message_tokens(m) for m in messages)


RULES = "You are a careful agent that edits code. " * 20
HISTORY = "def add(a, b):\n    return a + b\n" * 30


def turn(plant, number=1):
    """An answer with a tool call, and its result."""
    asked = plant.say(
        "assistant", f"I read file {number}.", calls=[(f"t{number}", "Read", f'{{"path": "a{number}.py"}}')]
    )
    return asked, plant.say("tool", HISTORY, answers=f"t{number}")


def changed_system(before, after, agent="claude-code", *, shape_only=False):
    """Two calls whose system prompts are `before` and `after`, and what stands behind them."""
    plant = Plant(agent, shape_only=shape_only)
    tools = plant.tools("Bash", "Edit", "Read")
    asked = plant.say("user", "Please fix the test.")
    old = [plant.say("system", *before), asked]
    answer, result = turn(plant)
    plant.call(*old, tools=tools, output=answer)
    plant.call(*old, answer, result, tools=tools)
    more = turn(plant, 2)
    plant.call(plant.say("system", *after), asked, answer, result, *more, tools=tools)
    return plant.trace()
