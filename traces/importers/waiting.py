"""What came into a thread's prompt since its last request, and waits for the next one to carry it."""

from windtunnel.traces.importers.pieces import Draft, Exchange, ThreadDraft, Tool


class Waiting:
    """The part that every reader of a conversation has in common; it is told what came and hands it to a request."""

    def __init__(self, thread: ThreadDraft) -> None:
        self.thread = thread
        self.tools: dict[str, Tool] = {}
        """By the id in the log."""
        self.prompt = ""
        """The first thing a person asked."""
        self._pending: list[Draft] = []
        self._arrived: float | None = None
        self._asked_at: float | None = None
        self._human = False
        self._reset = False

    def typed_by_person(self, draft: Draft, when: float | None) -> None:
        """A person's words are in the next prompt; when they came."""
        self.prompted(when)
        self.prompt = self.prompt or "\n".join(p.text or "" for p in draft.pieces)

    def prompted(self, when: float | None) -> None:
        self._human = True
        self._asked_at = when

    def _came(self, when: float | None) -> None:
        if when is not None:
            self._arrived = max(self._arrived or 0.0, when)

    def _carry(self, exchange: Exchange) -> None:
        """The request takes all that waits."""
        exchange.fresh, self._pending = self._pending, []
        exchange.arrived, exchange.asked_at = self._arrived, self._asked_at
        exchange.human, exchange.reset = self._human, self._reset
        self._arrived = self._asked_at = None
        self._human = self._reset = False
