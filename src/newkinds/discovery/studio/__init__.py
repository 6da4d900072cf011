"""The studio: a local web app in which people look through a discovery and correct it (`newkinds studio RUN`)."""

from pathlib import Path

from ...errors import NewkindsError


def open_studio(
    run: str | Path, port: int | None = None, images: str | Path | None = None, browser: bool = True
) -> None:
    """Serve the studio of a run until it is interrupted; `images` says where the images are, if they have moved.

    >>> open_studio("runs/photos")
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise NewkindsError(f"the studio needs {error.name}: pip install 'newkinds[studio]'") from None
    from .server import serve
    from .state import Studio

    serve(Studio(run, images), port, browser)
