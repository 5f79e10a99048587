"""Whether a chat template goes through a message's content as a list of parts: vLLM then gives it lists.

As vLLM 0.32 tells it (vllm/renderers/hf.py): by the loops of the template's syntax tree, through aliases of `messages`
and macros that take a content.
"""

from collections.abc import Iterator
from typing import Any


def environment() -> Any:
    """Jinja as Hugging Face's library sets it up, with the tag by which templates mark what a model wrote."""
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def parse(_: Any, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    generation = type("Generation", (Extension,), {"tags": {"generation"}, "parse": parse})
    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[generation, loopcontrols])


def lists_contents(source: str) -> bool:
    """True where the template loops over contents; False also for one that cannot be read."""
    from jinja2 import TemplateError, nodes

    try:
        tree = environment().parse(source)
    except TemplateError:
        return False
    items = set(_items(tree, _aliases(tree)))
    inside: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        taken = _taken(tree, macro, items)
        inside |= {id(loop): taken for loop in macro.find_all(nodes.For)}
    for loop in tree.find_all(nodes.For):
        if any(_reads(loop.iter, name, "content") for name in items):
            return True
        if isinstance(loop.iter, nodes.Name):
            taken = inside.get(id(loop), {"content"})
            if loop.iter.name in taken:
                return True
    return False


def _aliases(tree: Any) -> list[str]:
    """`messages` and the names that parts of it are given."""
    from jinja2 import nodes

    names = ["messages"]
    for name in names:
        for assigned in tree.find_all(nodes.Assign):
            target = assigned.target
            if isinstance(target, nodes.Name) and target.name not in names and _reads(assigned.node, name):
                names.append(target.name)
    return names


def _items(tree: Any, aliases: list[str]) -> Iterator[str]:
    """Names of single messages."""
    from jinja2 import nodes

    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name) and any(_reads(loop.iter, name) for name in aliases):
            yield loop.target.name


def _taken(tree: Any, macro: Any, items: set[str]) -> set[str]:
    """Parameters of a macro that are somewhere given a message's content."""
    from jinja2 import nodes

    names = [argument.name for argument in macro.args]
    found: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name != macro.name:
            continue
        given = [*zip(names, call.args, strict=False), *((k.key, k.value) for k in call.kwargs if k.key in names)]
        found |= {name for name, value in given if any(_reads(value, item, "content") for item in items)}
    return found


def _reads(node: Any, name: str, key: str | None = None) -> bool:
    """Whether an expression is a variable, or its attribute `key`, whatever filters, tests and slices are around it."""
    from jinja2 import nodes

    while isinstance(node, (nodes.Filter, nodes.Test)) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    if key is not None:
        by_item = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == key
        by_name = isinstance(node, nodes.Getattr) and node.attr == key
        if not (by_item or by_name):
            return False
        node = node.node
    return isinstance(node, nodes.Name) and node.name == name and node.ctx == "load"
