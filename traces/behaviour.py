"""How synthetic coding agents behave: their tools, sizes and times.

Fitted to published measurements of real traffic (see `library/README.md`): output per turn p50 216 and p90 898 tokens,
about 85% of the calls end in a tool call, tool times p50 0.3 s and p90 14 s with a tail of minutes, humans p50 1.5 min
and p90 20 min, tools + system about 15k tokens of the first prompt.
"""

from msgspec import Struct

from windtunnel.traces.model import TextKind
from windtunnel.traces.seeded import Stream


class Spread(Struct, frozen=True):
    """A log-normal quantity by its median and 90th percentile."""

    p50: float
    p90: float
    most: float

    def draw(self, d: Stream) -> float:
        return min(self.most, d.lognormal(self.p50, self.p90))

    def tokens(self, d: Stream) -> int:
        return max(1, round(self.draw(d)))


class Tool(Struct, frozen=True):
    name: str
    weight: float
    """How often it is chosen, against the others."""
    arguments: Spread
    """Tokens the model writes to call it."""
    result: Spread
    """Tokens of its answer, before the session's scale."""
    kind: TextKind
    seconds: Spread
    error: float = 0.02
    parallel: bool = False
    """May be called several times in one turn."""


class Client(Struct, frozen=True):
    """A made-up coding agent: what its requests have in common."""

    name: str
    version: str
    model: str
    system: int
    """Tokens of the system prompt shared by all its sessions."""
    schemas: int
    """Tokens of its tool schemas."""
    tools: tuple[Tool, ...]
    task: Tool | None = None
    """The tool that starts a sub-agent."""
    sub_system: int = 0
    sub_schemas: int = 0
    max_tokens: int = 32_000
    temperature: float | None = None
    reasoning: float = 0.5
    """Share of turns with reasoning."""
    resends_reasoning: bool = True
    cache_unit: int = 1
    """The server's cache counts in multiples of this."""


READ_LIKE = Spread(700, 3600, 9000)

ATLAS = Client(
    name="synthetic-atlas",
    version="2.1.4",
    model="synthetic-large",
    system=3_350,
    schemas=11_550,
    tools=(
        Tool("Bash", 34, Spread(85, 260, 1500), Spread(210, 2100, 8000), "log", Spread(2.4, 55.0, 590.0), 0.09),
        Tool("Read", 25, Spread(62, 90, 200), READ_LIKE, "code", Spread(0.07, 0.5, 6.0), 0.01, parallel=True),
        Tool("Edit", 17, Spread(330, 1150, 5000), Spread(110, 420, 1200), "code", Spread(0.15, 1.4, 20.0), 0.03),
        Tool("Grep", 11, Spread(75, 120, 260), Spread(240, 1500, 6000), "log", Spread(0.25, 1.8, 30.0), parallel=True),
        Tool("Glob", 4, Spread(55, 80, 160), Spread(110, 600, 3000), "log", Spread(0.16, 1.2, 20.0), parallel=True),
        Tool("Write", 4, Spread(850, 3600, 9000), Spread(45, 70, 150), "prose", Spread(0.06, 0.4, 5.0), 0.01),
        Tool("TodoWrite", 4, Spread(170, 380, 900), Spread(60, 80, 120), "prose", Spread(0.01, 0.03, 0.2)),
        Tool("WebFetch", 1, Spread(90, 150, 300), Spread(900, 2600, 7000), "prose", Spread(3.5, 14.0, 60.0), 0.08),
    ),
    task=Tool("Task", 1, Spread(280, 620, 1500), Spread(600, 1500, 4000), "prose", Spread(1.0, 2.0, 9.0)),
    sub_system=1_150,
    sub_schemas=6_900,
    temperature=1.0,
)

QUILL = Client(
    name="synthetic-quill",
    version="0.58.0",
    model="synthetic-reasoner",
    system=5_900,
    schemas=2_700,
    tools=(
        Tool(
            "shell",
            70,
            Spread(95, 300, 1800),
            Spread(420, 3100, 9000),
            "log",
            Spread(0.55, 22.0, 480.0),
            0.1,
            parallel=True,
        ),
        Tool("apply_patch", 20, Spread(380, 1500, 6000), Spread(35, 90, 300), "log", Spread(0.2, 0.9, 9.0), 0.05),
        Tool("update_plan", 8, Spread(110, 260, 600), Spread(12, 16, 30), "prose", Spread(0.01, 0.02, 0.1)),
        Tool("view_image", 2, Spread(40, 60, 90), Spread(760, 1100, 1500), "json", Spread(0.05, 0.2, 1.0)),
    ),
    reasoning=0.8,
    resends_reasoning=False,
    cache_unit=128,
)

WEAVER = Client(
    name="synthetic-weaver",
    version="1.4.2",
    model="synthetic-open",
    system=4_100,
    schemas=3_300,
    tools=(
        Tool("terminal", 45, Spread(80, 240, 1400), Spread(260, 2300, 8000), "log", Spread(1.8, 40.0, 420.0), 0.1),
        Tool("file_view", 28, Spread(48, 70, 140), READ_LIKE, "code", Spread(0.08, 0.6, 5.0), 0.02, parallel=True),
        Tool("file_edit", 22, Spread(300, 1100, 5000), Spread(120, 480, 1300), "code", Spread(0.15, 1.0, 12.0), 0.05),
        Tool("search", 5, Spread(60, 90, 200), Spread(260, 1300, 5000), "log", Spread(0.2, 1.4, 20.0), parallel=True),
    ),
    task=Tool("delegate", 1, Spread(240, 560, 1400), Spread(500, 1300, 3500), "prose", Spread(0.5, 1.5, 6.0)),
    sub_system=2_000,
    sub_schemas=3_300,
    temperature=0.0,
    reasoning=0.35,
    cache_unit=16,
)

CLIENTS = {c.name: c for c in (ATLAS, QUILL, WEAVER)}

TEXT = Spread(45, 150, 700)
"""Tokens a turn says beside its tool calls, where it says anything."""
ANSWER = Spread(260, 800, 2500)
"""Tokens of the answer that ends a user's turn."""
REASONING = Spread(95, 620, 6000)
REQUEST = Spread(70, 420, 3000)
"""Tokens of what the user types."""
HUMAN_S = Spread(95.0, 1150.0, 7200.0)
APPROVAL_S = Spread(8.0, 50.0, 600.0)
APPROVAL_SHARE = 0.22
"""Share of tool turns that waited for a permission or for the client itself."""
CACHE_LIFE_S = 300.0
"""A prompt cache forgets what was not used for this long."""
PREFILL_PER_S = 9_000.0
"""Uncached prompt tokens per second of the imagined server."""
DECODE_PER_S = Spread(68.0, 92.0, 140.0)
FIRST_TOKEN_S = Spread(0.85, 1.7, 8.0)
"""Time to the first token beside prefill."""


def draw_tool(d: Stream, client: Client) -> Tool:
    return d.weighted([(t, t.weight) for t in client.tools])


def parallel_calls(d: Stream, tool: Tool) -> int:
    """How many calls of a tool one turn makes."""
    if not tool.parallel or d.uniform() > 0.22:
        return 1
    return d.weighted([(2, 6.0), (3, 3.0), (4, 1.0)])
