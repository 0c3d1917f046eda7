"""Who may ask the app for anything: one browser, that of the person who started it.

The app listens on the loopback address, which every program and every user of the machine can
reach, and web pages too, through the person's own browser. So each request is checked:

- Its `Host` is the address that was printed: names that other people's servers resolve to the
  loopback address (DNS rebinding) are rejected.
- Its path begins with a random part. Cookies are sent to every port of a host; a path that nobody
  knows keeps ours from other servers on this machine.
- It has the cookie that the address that was printed gave, once. Lists of processes show addresses
  that a browser was started with, so the token in it is good for one use.
- It comes from one of our own pages, or was typed: `Sec-Fetch-Site`, and for anything that acts
  the `Origin`.
"""

from __future__ import annotations

import hmac
import secrets
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The largest body of a request; forms have a few thousand bytes.
MOST_BYTES = 2**20
COOKIE = "clusterdp"
# What a browser may do with any answer. Pages that have a style of their own add its nonce.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{nonce}; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY.format(nonce=""),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Forms of pages without any referrer have the origin "null".
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
# The navigation that follows is the page's own, so that the cookie is sent with it.
_WELCOME = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,"><title>clusterdp</title>
<meta http-equiv="refresh" content="0; url={path}"></head>
<body><p><a href="{path}">Continue to clusterdp</a></p></body></html>
"""
_OWN_SITE = ("same-origin", "none")
_CLOSED = "Open the address that clusterdp app printed."
_FOREIGN = "This request came from another page."
_USED = (
    "This address was used before, and works in one browser only. If that was not you, stop the "
    "app. To use another browser, start the app again."
)


class BrowserAccess:
    """What a browser needs to be let in.

    Attributes:
        host: The address and the port, as a browser names them.
        prefix: What every path begins with.
    """

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.prefix = f"/{secrets.token_urlsafe(12)}"
        self._token: str | None = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)

    @property
    def address(self) -> str:
        """The address to open, once."""
        return f"http://{self.host}{self.prefix}/?token={self._token}"

    def use_token(self, given: str) -> bool:
        """Whether a token is the one in the address; it is good for one use."""
        token, is_same = self._token, _is_same(given, self._token)
        if is_same and token is not None:
            self._token = None
        return is_same

    def has_cookie(self, header: str | None) -> bool:
        """Whether a request has our cookie."""
        try:
            held = SimpleCookie(header or "").get(COOKIE)
        except CookieError:
            return False
        return held is not None and _is_same(held.value, self._cookie)

    def welcome(self) -> Response:
        """The answer that gives the cookie."""
        answer = HTMLResponse(_WELCOME.format(path=f"{self.prefix}/"))
        answer.set_cookie(
            COOKIE, self._cookie, path=f"{self.prefix}/", httponly=True, samesite="strict"
        )
        return answer


def _is_same(given: str, secret: str | None) -> bool:
    """In a time that does not depend on where they differ."""
    return secret is not None and hmac.compare_digest(given.encode(), secret.encode())


class Guard:
    """Answers requests that are not the person's own with a refusal; hands on the others."""

    def __init__(self, app: ASGIApp, access: BrowserAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request; there are no WebSockets."""
        if scope["type"] != "http":
            return
        answer = self._answer(scope, Headers(scope=scope))
        if answer is not None:
            await answer(scope, receive, _hardened(send))
            return
        within = {**scope, "root_path": self._access.prefix}
        # Of a mistake of ours the page was sent, and the terminal shows where; never a value.
        with suppress(Exception):
            await self._app(within, _limited(receive), _hardened(send))

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is not handed on."""
        access, own = self._access, f"{self._access.prefix}/"
        strange: tuple[tuple[bool, str], ...] = (
            (
                headers.getlist("host") != [access.host],
                "Open the address that clusterdp app printed. This app has no other.",
            ),
            (scope["method"] not in {"GET", "POST"}, "Only GET and POST are answered."),
            (not scope["path"].startswith(own), _CLOSED),
        )
        for is_so, why in strange:
            if is_so:
                return _rejected(why)
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if token is not None and scope["method"] == "GET" and scope["path"] == own:
            return access.welcome() if access.use_token(token[0]) else _rejected(_USED)
        if not access.has_cookie(headers.get("cookie")):
            return _rejected(_CLOSED)
        return self._foreign(scope["method"], headers)

    def _foreign(self, method: str, headers: Headers) -> Response | None:
        """The answer to a request of this browser that another page made."""
        if headers.get("sec-fetch-site", "none") not in _OWN_SITE:
            return _rejected(_FOREIGN)
        if method == "POST":
            if headers.getlist("origin") != [f"http://{self._access.host}"]:
                return _rejected(_FOREIGN)
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                return _rejected("This form is too large.", 413)
        return None


def _rejected(why: str, status: int = 403) -> Response:
    return PlainTextResponse(f"{why}\n", status)


def _hardened(send: Send) -> Send:
    """Adds to each answer what a browser may do with it."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), value.encode())
                    for name, value in _HEADERS.items()
                    if name.encode() not in there
                ),
            ]
        await send(message)

    return sending


def _limited(receive: Receive) -> Receive:
    """Ends a body that is longer than any form."""
    n_bytes = 0

    async def receiving() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        return {"type": "http.disconnect"} if n_bytes > MOST_BYTES else message

    return receiving
