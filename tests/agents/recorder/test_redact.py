"""What is taken out of texts, and what is left in."""

import pytest

from windtunnel.agents.recorder.redact import Redactor

SECRETS = [
    "sk-ant-api03-AbCdEf0123456789abcdefghij",
    "sk-proj-0123456789abcdefABCDEF0123",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0123456789abcdefghijklmnop",
    "glpat-0123456789abcdefghij",
    "xoxb-123456789012-abcdefghij",
    "hf_abcdefghijABCDEFGHIJabcdefghij0123",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
]
INNOCENT = [
    'api_key = os.environ["OPENAI_API_KEY"]',
    "client = Client(api_key=settings.the_api_key_of_mine)",
    "password: please choose a good one",
    "pip install sk-learn-contrib-imbalanced-learning",
    "commit 2e8ebbb72b5332eaae0cff0b23756357bdafa27a",
    "toolu_01AbCdEfGhIjKlMnOpQrStUv",
    "call_0668ee70f4fa4b07 risk-management-and-other-things-2024",
    "device_id = get_device_identifier()",
    "A bearer of bad news, basic as ever.",
    "f64d491b-6886-4166-af14-21c41bc7b06d",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_known_by_their_shape(secret: str) -> None:
    text = f"export KEY={secret}; echo 'done with {secret}'"
    clean = Redactor().text(text)
    assert secret not in clean
    assert len(clean) == len(text)
    assert clean.startswith("export KEY=[redacted]")
    assert clean.endswith("'")


@pytest.mark.parametrize("text", INNOCENT)
def test_words_that_only_look_like_keys_stay(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("curl -H 'Authorization: Bearer abcdefghijklmnopqrst'", "abcdefghijklmnopqrst"),
        ('{"api_key": "0123456789abcdefghij"}', "0123456789abcdefghij"),
        ("PASSWORD=correct-horse-battery-7", "correct-horse-battery-7"),
        ('{\\"device_id\\":\\"94d5b37380529c05f7920d3a\\"}', "94d5b37380529c05f7920d3a"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc\n-----END RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA"),
    ],
)
def test_values_known_by_what_stands_before_them(text: str, secret: str) -> None:
    clean = Redactor().text(text)
    assert secret not in clean
    assert len(clean) == len(text)


def test_the_keys_of_requests_are_taken_out_wherever_they_stand() -> None:
    """Also from texts that were looked through before the key was known."""
    redactor = Redactor()
    text = "the key is tiger-lily-in-the-pond, " + "and so on " * 50
    assert redactor.text(text) == text
    redactor.learn(
        [("authorization", "Bearer tiger-lily-in-the-pond"), ("accept", "application/json")], ["install-77-abc"]
    )
    assert "tiger" not in redactor.text(text)
    assert redactor.text("id install-77-abc!") == "id [redacted]xxxx!"
    assert redactor.text("application/json") == "application/json"
    assert redactor.text(text) == redactor.text(text)


def test_a_placeholder_key_is_no_secret() -> None:
    redactor = Redactor()
    redactor.learn([("authorization", "Bearer local")])
    assert redactor.text("a local variable") == "a local variable"
