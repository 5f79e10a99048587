"""Text that comes in pieces."""


def join(parts: list[str], most: int = 0) -> None:
    """Make one of them; of its end, `most` characters or all."""
    parts[:] = ["".join(parts)[-most:]]


def whole(text: str) -> str:
    """Join surrogate halves that came in separate events; a half left alone becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
