"""What a run without a screen says on stderr."""

import io

from windtunnel.agents import events as ev
from windtunnel.simulator.run.viewer import PlainProgress


def test_the_first_failure_of_each_name_is_told_with_what_the_server_said():
    said = io.StringIO()
    progress = PlainProgress(said, agents=2)
    for call, (failure, detail) in enumerate(
        [("http_401", "no \x1b[31mkey"), ("http_401", "again"), ("read_timeout", None)]
    ):
        progress(
            ev.CallEnd(
                t=1,
                agent=1,
                session="s",
                thread=0,
                call=call,
                request_id="r",
                t_intended=0,
                failure=failure,
                detail=detail,
            )
        )
    assert said.getvalue().splitlines() == [
        "failed: http_401 (no [31mkey), agent 1, session s, call 0; more of these are only counted",
        "failed: read_timeout, agent 1, session s, call 2; more of these are only counted",
    ]


def test_a_screen_hides_them():
    said = io.StringIO()
    progress = PlainProgress(said, agents=1)
    progress.enabled = False
    progress(ev.CallEnd(t=1, agent=0, session="s", thread=0, call=0, request_id="r", t_intended=0, failure="http_500"))
    assert said.getvalue() == ""
