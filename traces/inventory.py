"""The fixed stock of pieces that regenerated text is made of: what a coding agent reads and writes all day.

Every piece of a kind starts in the first column, ends with a newline and holds printable ASCII only, so that it costs
the same number of tokens wherever it stands. Prose pieces are single lines without quotes or backslashes, so that they
also stand inside a JSON string as they are. The stock is composed from the word lists and patterns of this file; to
change either changes every regenerated text, so `VERSION` must change with it.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from windtunnel.traces.model import TextKind
from windtunnel.traces.patterns import PATTERNS
from windtunnel.traces.seeded import Stream

VERSION = "1"
STOCK_CHARS = 23_500
"""Characters of one kind's stock: its sample holds every piece twice and stays near 50 kB."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _words("""
    account adapter address alias anchor answer archive argument array asset attribute backend backup balance
    batch block board body border bounds branch bridge bucket buffer build bundle button cache calendar callback
    canvas cell chain change channel chart check chunk client clock cluster code column command comment commit
    config content context control cookie copy counter country course cursor customer cycle data date default
    delay delta device diff digest directory document domain draft driver edge editor element email entry error
    event example export factor feature feed field file filter flag folder font form format frame function
    gateway graph grid group guard handle handler hash header heap hook host icon image import index input
    instance interval invoice issue item job journal key label language layer layout lease length level library
    limit line link list loader lock log loop map margin mask match matrix member memory menu merge message
    method metric migration mode model module monitor name network node note number object offset option order
    origin output owner package packet page pair panel parameter parser partition patch path pattern payment
    peer permission phase pipeline plan player plugin point policy pool port position prefix price process
    product profile project promise property proxy query queue quota range rate reader record region registry
    release remote report request resource response result retry return role root route row rule runner sample
    schedule schema scope score script search section segment selector sequence server service session setting
    shape shard sheet signal size slice slot snapshot socket source span stage state status step storage store
    stream string style summary switch symbol table tag target task team template tenant test text theme thread
    ticket time title token tool topic total trace track transfer tree trigger type unit update upload user
    value variable version view volume warning watcher weight widget window worker writer zone
""")
VERBS = _words("""
    add apply append attach build cache call change check clean clear close collect compare compute convert copy
    count create decode delete detect drop emit encode expand export extract fetch filter find flush format get
    group guard handle hash import insert inspect join keep limit list load lock log make map mark match merge
    move normalize open order pack parse patch pick print process pull push query read record refresh register
    release remove rename render replace report reset resolve restore return run save scan select send set show
    skip sort split start stop store strip sync test track trim update validate verify wait walk wrap write
""")
ADJECTIVES = _words("""
    active actual available bad big broken cached certain clean clear closed common complete correct current
    custom dead default different early empty equal exact existing extra failed fast final first fixed full
    global good hidden inner internal invalid large last late local long lost main missing narrow new next
    nested normal old only open optional original outer partial pending plain possible previous private public
    random raw ready real recent remote safe same second separate short shared simple single slow small stable
    stale static strict temporary unique unknown unused upper useful valid whole wide wrong
""")
TYPES = _words("int str bool float bytes dict list tuple Path None object")
EXTENSIONS = _words("py py py ts tsx go rs js md toml yaml json sh sql")
FOLDERS = _words("src lib app core api tests scripts internal server client tools pkg web db docs")
LEVELS = _words("INFO INFO INFO DEBUG DEBUG WARNING ERROR")
ERRORS = _words("ValueError KeyError TypeError RuntimeError OSError IndexError TimeoutError AssertionError")
FILL = _words("""
    the and for not with from this that one all can new use get set end if is in to of on it as by or at no be
    an a
""")
"""Short common words: one token each in almost every vocabulary; they bring a text to its exact count."""

_FIELD = re.compile(r"\$([a-z]+?)(\d?)(?![a-z])")


def _file(d: Stream) -> str:
    parts = [d.pick(FOLDERS), *(d.pick(NOUNS) for _ in range(d.below(2))), d.pick(NOUNS)]
    return "/".join(parts) + "." + d.pick(EXTENSIONS)


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeo":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "sh", "ch")) else "s")


_FIELDS: dict[str, Callable[[Stream], str]] = {
    "noun": lambda d: d.pick(NOUNS),
    "nouns": lambda d: _plural(d.pick(NOUNS)),
    "verb": lambda d: d.pick(VERBS),
    "adj": lambda d: d.pick(ADJECTIVES),
    "word": lambda d: d.pick(d.pick((NOUNS, VERBS, ADJECTIVES))),
    "func": lambda d: f"{d.pick(VERBS)}_{d.pick(NOUNS)}",
    "snake": lambda d: f"{d.pick(NOUNS)}_{d.pick(NOUNS)}",
    "camel": lambda d: d.pick(VERBS) + d.pick(NOUNS).capitalize(),
    "cls": lambda d: d.pick(NOUNS).capitalize() + d.pick(NOUNS).capitalize(),
    "const": lambda d: f"{d.pick(NOUNS)}_{d.pick(NOUNS)}".upper(),
    "type": lambda d: d.pick(TYPES),
    "digit": lambda d: str(d.between(1, 9)),
    "num": lambda d: str(d.between(10, 99)),
    "pct": lambda d: f"{d.between(1, 99):2d}",
    "big": lambda d: str(d.between(100, 9999)),
    "frac": lambda d: f"{d.between(0, 9)}.{d.between(10, 99)}",
    "hex": lambda d: f"{d.u64() & 0xFFFFFFFFFF:010x}",
    "clock": lambda d: f"{d.between(0, 23):02d}:{d.between(0, 59):02d}:{d.between(0, 59):02d}.{d.between(0, 999):03d}",
    "day": lambda d: f"2025-{d.between(1, 12):02d}-{d.between(1, 28):02d}",
    "file": _file,
    "level": lambda d: d.pick(LEVELS),
    "err": lambda d: d.pick(ERRORS),
    "bool": lambda d: d.pick(("true", "false")),
}


def _piece(pattern: str, d: Stream) -> str:
    """A pattern with its fields filled; a numbered field has one value through the whole piece."""
    held: dict[str, str] = {}

    def fill(m: re.Match[str]) -> str:
        value = _FIELDS[m[1]](d)
        return held.setdefault(m[0], value) if m[2] else value

    return _FIELD.sub(fill, pattern) + "\n"


@lru_cache(maxsize=8)
def pieces(kind: TextKind) -> tuple[str, ...]:
    """The stock of a kind, in its fixed order."""
    d = Stream("inventory", VERSION, kind)
    out: dict[str, None] = {}
    size = 0
    while size < STOCK_CHARS:
        for pattern in d.shuffled(PATTERNS[kind]):
            piece = _piece(pattern, d)
            if piece not in out:
                out[piece] = None
                size += len(piece)
    return tuple(out)
