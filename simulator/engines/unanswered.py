"""What is said of a request that got no answer: in words of the user's side, not in those of an HTTP library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

SHORT = 200
"""Characters of an address that are shown."""
_DAMAGED = "the answer is damaged: its parts are not marked as HTTP wants it; look for a proxy in between"


def unreachable(url: str, error: BaseException) -> str:
    """One sentence for a request that got no answer."""
    import aiohttp

    if isinstance(error, aiohttp.TooManyRedirects | aiohttp.RedirectClientError):
        return f"{url}: {_led_astray(error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{url}: {_unconnected(url, error)}"
    if isinstance(error, TimeoutError):
        return f"{url}: no answer in time; the server is stuck or still starting"
    if isinstance(error, ConnectionRefusedError):
        return f"{url}: nothing listens there; start the server or correct the URL"
    return f"{url}: {_broken(error)}"


def _led_astray(error: "aiohttp.TooManyRedirects | aiohttp.RedirectClientError") -> str:
    import aiohttp

    if isinstance(error, aiohttp.RedirectClientError):
        return f"it redirects to {str(error)[:SHORT]!r}, which is no HTTP address; give the URL that is meant"
    last = error.history[-1].headers.get("Location", "") if error.history else ""
    return f"it redirects on and on, at last to {last[:SHORT]!r}; give the URL that is meant"


def _unconnected(url: str, error: "aiohttp.ClientConnectorError") -> str:
    """The address that cannot be reached is another one where the server redirects."""
    import aiohttp
    from yarl import URL

    asked = URL(url)
    place, remedy = "", "start the server or correct the URL"
    if (error.host, error.port) != (asked.raw_host, asked.port):
        host = f"[{error.host}]" if ":" in error.host else error.host
        place, remedy = f"it redirects to {host}:{error.port}, and ", "start what it leads to or correct the redirect"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{place}the host name is not known; {'check the URL' if not place else remedy}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return f"{place}the TLS handshake failed; check the certificate, or use http:// for a plain server"
    return f"{place}nothing listens there; {remedy}"


def _broken(error: BaseException) -> str:
    """An answer that began and is none."""
    import aiohttp

    said = str(error)
    if isinstance(error, aiohttp.ClientPayloadError):
        if "Not enough data" in said:
            return "the answer ended before it was complete; the server, or a proxy in front of it, cut it off"
        if "ontent-encoding" in said or "ontentEncoding" in said:
            return "the answer cannot be unpacked: it is not in the encoding that it names"
        return _DAMAGED
    if isinstance(error, aiohttp.ClientResponseError):
        if "chunk" in said:
            return _DAMAGED
        if "Got more than" in said or "Too many headers" in said:
            return "the answer has more or longer header lines than can be read; look for a proxy in between"
        if "Expected HTTP/" in said or "status line" in said:
            return "what answers there speaks no HTTP; correct the port"
        return "the answer is no valid HTTP; correct the URL"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer; see its log"
    if isinstance(error, OSError):
        return "the connection broke before the answer was there; see the server's log"
    return "no valid answer; is this an HTTP server?"
