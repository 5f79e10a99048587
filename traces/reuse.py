"""How much of each prompt an engine with an endless cache would have seen before.

A prompt is its tool schemas and then its messages' blocks; two prompts are equal as far as their blocks are. What the
engine generated counts once it is a part of a later prompt.
"""

from msgspec import Struct

from windtunnel.traces.model import Trace

_Key = tuple[str, str]
"""Role of the message, or of nothing, and the block's digest."""


class _Node(Struct):
    """What followed one prefix: the blocks, by role, text and length."""

    exact: dict[tuple[_Key, int], "_Node"] = {}
    longest: dict[_Key, int] = {}
    """Most tokens seen of a text, whatever followed."""


class _Place(Struct):
    """Where a prompt stands as it is read from its front."""

    node: _Node
    tokens: int = 0
    matched: int = 0
    left: bool = False
    """Whether it has left all earlier prompts."""

    def read(self, key: _Key, tokens: int) -> None:
        if not self.left:
            seen = self.node.longest.get(key, 0)
            self.matched += min(seen, tokens)
            self.left = (key, tokens) not in self.node.exact
        self.node.longest[key] = max(tokens, self.node.longest.get(key, 0))
        self.node = self.node.exact.setdefault((key, tokens), _Node())
        self.tokens += tokens


class SeenPrefixes:
    """Prefixes of the prompts so far, over any number of sessions."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, trace: Trace) -> list[int]:
        """For each call, how many tokens of its prompt equal a prefix of an earlier prompt."""
        out: list[int] = []
        held: dict[int, list[tuple[_Node, int]]] = {}
        """For each call, where its prompt stands before and after each of its messages, and the tokens up to there."""
        for call, prompt in trace.prompts():
            at = _Place(self._root)
            places: list[tuple[_Node, int]] = []
            if call.base is not None and trace.calls[call.base].tools == call.tools:
                places = held[call.base][: call.keep + 1]
                at.node, at.tokens = places[-1]
                at.matched = at.tokens
            else:
                if call.tools is not None:
                    for b in trace.toolsets[call.tools].blocks:
                        at.read(("", trace.blocks[b].digest), trace.blocks[b].tokens)
                places.append((at.node, at.tokens))
            for message_id in prompt[len(places) - 1 :]:
                message = trace.messages[message_id]
                for b in trace.message_blocks(message):
                    block = trace.blocks[b]
                    at.read((message.role, block.digest), block.tokens)
                places.append((at.node, at.tokens))
            held[call.id] = places
            out.append(at.matched)
        return out
