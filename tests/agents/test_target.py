import pytest

from windtunnel.agents.client import parse_target
from windtunnel.traces.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("http://h:8000", "http://h:8000/v1/models"),
        ("http://h:8000/", "http://h:8000/v1/models"),
        ("http://h:8000/v1", "http://h:8000/v1/models"),
        ("http://h:8000/v1/", "http://h:8000/v1/models"),
        ("h:8000", "http://h:8000/v1/models"),
        ("127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/models"),
        ("https://host/prefix", "https://host/prefix/v1/models"),
        ("https://host/prefix/v1", "https://host/prefix/v1/models"),
        ("http://h:8000/v1/chat/completions", "http://h:8000/v1/models"),
        ("HTTP://H:80/v1/completions", "http://h/v1/models"),
        ("http://[::1]:8000", "http://[::1]:8000/v1/models"),
        ("http://caf\u00e9.example", "http://xn--caf-dma.example/v1/models"),
        ("http://h.:8000", "http://h.:8000/v1/models"),
    ],
)
def test_what_users_type(typed, address):
    assert parse_target(typed).url("/v1/models") == address


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h:x",
        "http://h/v1?key=1",
        "http://u:pw@h/v1",
        "http://[::1",
        "http://a..b",
        f"http://{'a' * 64}.example",
        "http://h\udce9",
    ],
)
def test_what_cannot_be_a_target_is_one_sentence(typed):
    with pytest.raises(UsageError) as error:
        parse_target(typed)
    message = str(error.value)
    assert "\n" not in message
    assert "pw" not in message


def test_the_key_is_a_bearer_header_and_not_in_what_is_printed():
    target = parse_target("http://h", api_key="sk-1", headers=[("X-Team", "a")])
    assert target.headers == (("X-Team", "a"), ("Authorization", "Bearer sk-1"))
    assert "sk-1" not in repr(target)


@pytest.mark.parametrize("header", [("X-A", "a\r\nX-B: b"), ("X A", "a"), ("", "a"), ("X-A:", "a"), ("X-Ä", "a")])
def test_headers_cannot_break_the_request(header):
    with pytest.raises(UsageError):
        parse_target("http://h", headers=[header])
