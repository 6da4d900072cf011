"""The studio's web server: starlette and uvicorn, on this machine only."""

import asyncio
import json
import os
import re
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...data.images import BadImage
from ...errors import NewkindsError, reason_of
from ...text import plural, show
from ..edits import EditConflict
from .attention import ASKED
from .guard import ADMITTED, EXCEPTION_HANDLERS, Guard
from .jobs import options
from .pictures import LARGE, THUMBNAIL
from .state import Outdated, Studio

PORT = 8517
HEAD_WITHIN = 10.0  # seconds that a client has for the head of a request
MOST_CONNECTIONS = 1000  # in all; a browser opens six for a window
WAITING = 200  # connections that the system holds until they are accepted
MOST_STRANGERS = 100  # connections without an admitted request so far; of more, the oldest is closed
FOREVER = "private, max-age=31536000, immutable"  # a picture's address changes with its file
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def app_of(studio: Studio, port: int) -> Guard:
    """The web app of a studio, behind its guard."""
    views = {file.name: file.read_bytes() for file in (files(__package__) / "views").iterdir() if file.is_file()}

    def view(name: str) -> Response:
        content = views.get(name)
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type=TYPES[Path(name).suffix], headers={"Cache-Control": "no-cache"})

    async def page(request: Request) -> Response:
        return view("index.html")

    async def static(request: Request) -> Response:
        return view(request.path_params["name"])

    def asked(answer: Callable[[Studio, Request], Any]) -> Callable[[Request], Any]:
        """A question whose answer is JSON; it may take a while, and others are answered meanwhile."""

        async def endpoint(request: Request) -> Response:
            return await _answer(partial(answer, studio, request))

        return endpoint

    async def picture(request: Request) -> Response:
        size = THUMBNAIL if request.path_params["size"] == "thumb" else LARGE
        try:
            row = _number(request, "row")
            data, version = await anyio.to_thread.run_sync(_picture, studio, row, size)
        except (BadImage, NewkindsError, OSError) as error:
            return PlainTextResponse(reason_of(error), 404)
        is_this_one = (
            request.query_params.get("v") == version
        )  # else an address for another picture would keep this one
        return Response(
            data, media_type="image/jpeg", headers={"Cache-Control": FOREVER if is_this_one else "no-store"}
        )

    def told(do: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
        """Something to be done, which is told in JSON."""

        async def endpoint(request: Request) -> Response:
            if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return _json({"error": "this must be JSON (Content-Type: application/json)."}, 415)
            try:
                wanted = json.loads(await request.body())
            except (ValueError, RecursionError):
                return _json({"error": "this is not JSON."}, 400)
            if not isinstance(wanted, dict):
                return _json({"error": "this must be a JSON object."}, 400)
            return await _answer(partial(do, wanted))

        return endpoint

    def shown_image(do: Callable[[Path, Request], Any]) -> Callable[[Request], Any]:
        """Something to be done with an image of the user's."""

        async def endpoint(request: Request) -> Response:
            content = await request.body()
            return await _answer(partial(_with_file, content, lambda file: do(file, request)))

        return endpoint

    async def field(request: Request) -> Response:
        try:
            row, place = _number(request, "row"), _number(request, "place")
            pictures = (await anyio.to_thread.run_sync(_fields, studio, row))["pictures"]
            return Response(pictures[place], media_type="image/png")
        except (BadImage, NewkindsError, IndexError, OSError):
            raise HTTPException(404) from None

    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/{size}/{row}.jpg", picture),
        Route("/field/{row}/{place}.png", field),
        Route("/api/version", asked(lambda studio, _: studio.version())),
        Route("/api/state", asked(lambda studio, _: studio.state())),
        Route("/api/members/{category}", asked(lambda studio, r: studio.members(_number(r, "category")))),
        Route("/api/nearest/{category}", asked(lambda studio, r: studio.nearest(_number(r, "category")))),
        Route("/api/parts/{category}", asked(lambda studio, r: studio.parts(_number(r, "category"), _into(r)))),
        Route("/api/image/{row}", asked(lambda studio, r: studio.image(_number(r, "row")))),
        Route("/api/similar/{row}", asked(lambda studio, r: studio.similar(_number(r, "row")))),
        Route("/api/search", asked(lambda studio, r: studio.search(r.query_params.get("q", "")))),
        Route("/api/new", asked(lambda studio, _: studio.news())),
        Route("/api/next", asked(lambda studio, _: studio.next(ASKED))),
        Route("/api/map", asked(lambda studio, _: studio.map())),
        Route("/api/log", asked(lambda studio, _: studio.log())),
        Route("/api/model", asked(lambda studio, _: {"state": studio.sight.state, "says": studio.sight.says})),
        Route("/api/fields/{row}", asked(lambda studio, r: _described(_fields(studio, _number(r, "row"))))),
        Route("/api/job", asked(lambda studio, r: studio.jobs.status(_after(r)))),
        Route("/api/jobs", asked(lambda studio, _: options())),
        Route("/api/edit", told(studio.edit), methods=["POST"]),
        Route("/api/images", told(lambda wanted: studio.images(wanted.get("rows"))), methods=["POST"]),
        Route("/api/job/start", told(studio.jobs.start), methods=["POST"]),
        Route("/api/job/stop", told(lambda _: studio.jobs.stop()), methods=["POST"]),
        Route("/api/look", shown_image(lambda file, _: studio.look(file)), methods=["POST"]),
        Route(
            "/api/add", shown_image(lambda file, r: studio.add(file, r.query_params.get("name", ""))), methods=["POST"]
        ),
    ]
    return Guard(Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS), port)


async def _answer(work: Callable[[], Any]) -> Response:
    """What `work`, done in a thread, gives; or the sentence that says why not."""
    try:
        return _json(await anyio.to_thread.run_sync(work))
    except EditConflict as error:
        return _json({"error": str(error)}, 409)
    except Outdated as error:
        return _json({"error": str(error)}, 409)
    except (NewkindsError, BadImage) as error:
        return _json({"error": str(error)}, 400)
    except OSError as error:  # the run or its images are being moved
        return _json({"error": f"this cannot be read or written now: {reason_of(error)}."}, 400)


def _json(content: Any, status: int = 200) -> Response:
    """ASCII only: names may hold what is not valid Unicode, and come out of the browser's parser as they were."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, media_type="application/json")


def _number(request: Request, name: str) -> int:
    text = request.path_params[name]
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise NewkindsError(f"'{name}' must be a whole number of at most nine digits.")
    return int(text)


def _after(request: Request) -> int:
    text = request.query_params.get("after", "0")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def _into(request: Request) -> int | None:
    text = request.query_params.get("into", "")
    if text and not text.isdecimal():
        raise NewkindsError("say into how many parts.")
    return int(text[:6]) if text else None


def _picture(studio: Studio, row: int, size: int) -> tuple[bytes, str]:
    """A picture, and which version of it that is."""
    if not 0 <= row < len(studio.pictures.versions):
        raise BadImage("there is no such image")
    return studio.pictures.picture(row, size), studio.pictures.versions[row]


def _with_file(content: bytes, do: Callable[[Path], Any]) -> Any:
    """What `do` makes of an image that was sent, as a file."""
    if not content:
        raise NewkindsError("the image is empty.")
    with tempfile.TemporaryDirectory(prefix="newkinds-") as folder:
        file = Path(folder, "dropped")
        file.write_bytes(content)
        try:
            return do(file)
        except BadImage as error:
            raise NewkindsError(f"this file cannot be looked at: {error}.") from None


def _fields(studio: Studio, row: int) -> dict[str, Any]:
    if not 0 <= row < len(studio.pictures.versions):
        raise NewkindsError("there is no such image.")
    return studio.sight.fields(row, studio.pictures.opened(row))


def _described(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "pictures"}


class Impatient(H11Protocol):
    """Closes a connection whose request does not begin in time: uvicorn itself would wait for ever."""

    _timer: asyncio.TimerHandle | None = None
    _is_admitted = False
    _since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wait_for_head()
        others = [other for other in self.connections if isinstance(other, Impatient)]
        strangers = [other for other in others if not other._was_admitted() and not other.transport.is_closing()]
        if len(strangers) > MOST_STRANGERS:
            oldest = min(strangers, key=lambda other: other._since)
            oldest.transport.abort()  # they must not lock the owner out

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def _was_admitted(self) -> bool:
        """Whether a request of this connection has passed the guard."""
        if self.scope is not None and ADMITTED in self.scope:
            self._is_admitted = True
        return self._is_admitted

    def on_response_complete(self) -> None:
        self._was_admitted()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def _wait_for_head(self) -> None:
        """The time for a head runs from its first byte, or from the beginning of the connection."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_WITHIN, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def listening(port: int | None) -> socket.socket:
    """A socket on the loopback device: at this port, or at the usual one, or at any that is free."""
    for number in (PORT, 0) if port is None else (port,):
        # with its protocol named: else asyncio leaves Nagle's algorithm on, and each answer waits for 40 ms
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":  # start again at once; elsewhere it would let two studios have one port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", number))
            made.listen(WAITING)
            return made
        except (OSError, OverflowError) as error:
            made.close()
            said = reason_of(error) if isinstance(error, OverflowError) else error.strerror
    raise NewkindsError(f"port {port} cannot be used ({said}): choose another --port, or leave it out.")


def config_of(app: Guard) -> uvicorn.Config:
    """How the web server is set up: few connections, no patience, nothing said about itself."""
    return uvicorn.Config(
        app, http=Impatient, ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False,
        timeout_keep_alive=30, limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=2,
    )  # fmt: skip


def serve(studio: Studio, port: int | None = None, browser: bool = True) -> None:
    """Serve a studio until it is interrupted."""
    bound = listening(port)
    number = bound.getsockname()[1]
    app = app_of(studio, number)
    here = f"http://127.0.0.1:{number}/?token="
    shown = studio.shown()
    count = len(shown.categories)
    categories = f"{count:,} {'category' if count == 1 else 'categories'}"
    show(f"{plural(len(shown.members), 'image')} in {categories}: {studio.run.folder}")
    show(f"open  {here}{app.token}")
    show(f"Every correction is on the disk at once ({studio.run.path('edits.jsonl')}). Stop with Ctrl+C.")
    sys.stdout.flush()  # a pipe, too, learns the address now
    threading.Thread(target=studio.prepare, daemon=True).start()
    if browser:
        threading.Timer(0.3, _open_browser, [f"{here}{app.ticket()}"]).start()
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config_of(app)).run(sockets=[bound])
    finally:
        studio.jobs.end()
    show("the studio has stopped; nothing is lost")


def _open_browser(address: str) -> None:
    with suppress(Exception):  # there may be none, and the address was printed
        webbrowser.open(address)
