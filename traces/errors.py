"""The one exception tree of the project.

WindtunnelError
|-- UsageError      wrong use of a command: exit code 2
|-- TraceError      an input that is no trace: exit code 2
|-- EngineError     an engine that does not start, answer or fit: exit code 2 before a run, 1 in one
`-- RunError        a run that failed: exit code 1

A message is one sentence: what is wrong, where, and what to do.
"""


class WindtunnelError(Exception):
    """An error a user can cause or meet; shown as one sentence, never as a traceback."""

    exit_code = 1


class UsageError(WindtunnelError):
    """A flag, path or combination that cannot work."""

    exit_code = 2


class TraceError(UsageError):
    """An input that cannot be read as a trace at all."""


class EngineError(WindtunnelError):
    """An engine that cannot be reached, started or used as asked, found before the run began."""

    exit_code = 2


class RunError(WindtunnelError):
    """A run that started and could not be finished."""
