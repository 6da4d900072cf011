"""Who may ask the studio anything: only those who have its token, from a page of its own, in bounded time and size."""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SAFE = ("GET", "HEAD")  # requests that change nothing
MOST_JSON = 16_000_000  # bytes of an edit: all images of a large run, each by its number
MOST_IMAGE = 48_000_000  # bytes of a dropped image
IMAGES = ("/api/look", "/api/add")  # where one is sent
BODY_WITHIN = 20.0  # seconds from a request's head to its end; an image of 48 MB needs far less on one machine

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CLOSED = (
    "This studio opens only with its token: copy the whole address that `newkinds studio` printed in the terminal "
    "(http://127.0.0.1:…/?token=…). If it was started again since, take the new one."
)


class TooLarge(Exception):
    """The body is larger than it may be."""


class TooSlow(Exception):
    """The body did not arrive in time."""


async def _answer_too_large(request: Request, error: Exception) -> Response:
    return _too_large(most_bytes(request.scope))


async def _answer_too_slow(request: Request, error: Exception) -> Response:
    return _refuse("this request took too long to arrive.", 408)


async def _answer_gone(request: Request, error: Exception) -> Response:
    return _refuse("this request ended too early.", 400)  # nobody reads it, and nothing is wrong with the studio


# of the app behind a guard
EXCEPTION_HANDLERS = {TooLarge: _answer_too_large, TooSlow: _answer_too_slow, ClientDisconnect: _answer_gone}
ADMITTED = "newkinds.admitted"  # in the scope of a request that the guard has let through


class Guard:
    """Lets a request through to `app` if it may pass.

    The token opens the studio as often as wanted; a ticket does so once. (What starts a browser shows other users of
    the machine the address in the list of processes, so it gets a ticket.)
    """

    def __init__(self, app: App, port: int) -> None:
        self.app, self.port = app, port
        self.token, self._tickets = secrets.token_urlsafe(24), set[str]()
        self.cookie = f"newkinds-studio-{port}"  # cookies know no ports: two studios must not share one

    def ticket(self) -> str:
        made = secrets.token_urlsafe(24)
        self._tickets.add(made)
        return made

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    named[name] = value
                named.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is None:
            scope[ADMITTED] = True
            await self.app(scope, _bounded(receive, most_bytes(scope)), send_guarded)
        else:
            await refusal(scope, receive, send_guarded)

    def _refusal(self, scope: MutableMapping[str, Any], headers: Headers) -> Response | None:
        """What is answered instead of the app, or None."""
        host = headers.get("host", "")
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if (name or host) not in LOOPBACK or (name and port not in ("", str(self.port))):  # DNS rebinding
            return _refuse("the studio answers only to 127.0.0.1 and localhost.", 421)
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None and scope["method"] in SAFE:
            return self._admission(given)
        if not any(_is(value, self.token) for value in _cookies(headers, self.cookie)):
            return _refuse(CLOSED, 403)
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_visit = scope["method"] in SAFE and headers.get("sec-fetch-mode") == "navigate"
        if site not in (None, "same-origin", "none") and not is_visit:
            return _refuse("this request comes from another site.", 403)
        if origin is not None and origin != f"http://{host}":
            return _refuse("this request comes from another site.", 403)
        length = headers.get("content-length", "0")
        if not re.fullmatch(r"[0-9]{1,18}", length) or int(length) > most_bytes(scope):
            return _too_large(most_bytes(scope))
        return None

    def _admission(self, given: str) -> Response:
        """A cookie for a token or a ticket, at an address without it: that one may be seen and bookmarked."""
        ticket = next((ticket for ticket in self._tickets if _is(given, ticket)), None)
        if ticket is not None:
            self._tickets.discard(ticket)
        elif not _is(given, self.token):
            return _refuse(CLOSED, 403)
        response = RedirectResponse("/", 303)
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return response


def most_bytes(scope: MutableMapping[str, Any]) -> int:
    """How large the body of a request may be."""
    if scope["method"] in SAFE:
        return 0
    return MOST_IMAGE if scope["path"] in IMAGES else MOST_JSON


def _bounded(receive: Receive, most: int) -> Receive:
    """The body of a request, but not more than so many bytes, and not later than it may come."""
    taken, ends = 0, asyncio.get_running_loop().time() + BODY_WITHIN
    is_whole = False

    async def receive_some() -> Message:
        nonlocal taken, is_whole
        if is_whole:  # what comes now is only that the client has gone
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), ends - asyncio.get_running_loop().time())
        except (asyncio.TimeoutError, TimeoutError):
            raise TooSlow from None
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if taken > most:
                raise TooLarge
        return message

    return receive_some


def _cookies(headers: Headers, name: str) -> list[str]:
    """The values of all cookies of this name.

    Every app on this machine may set cookies for it, of any form and also of this name: theirs must not hide ours.
    """
    pairs = [pair.partition("=") for header in headers.getlist("cookie") for pair in header.split(";")]
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def _is(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _too_large(most: int) -> Response:
    return _refuse(f"a request of more than {most:,} bytes is not accepted here.", 413)


def _refuse(text: str, status: int) -> Response:
    return PlainTextResponse(text, status, headers={"Connection": "close"})  # whatever else it wanted to send
