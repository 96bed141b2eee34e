"""The explorer's web server, which only this machine can reach."""

import logging
from pathlib import Path

import torch
from flask import abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.report.explorer.app import make_explorer_app
from sanp.report.explorer.explorer import Explorer

HOST = "127.0.0.1"


def serve(folder: Path, port: int, precision: str = "fp32", device: torch.device = CPU) -> tuple[BaseWSGIServer, str]:
    """A server for the run in ``folder``, and its address; ``serve_forever`` starts it.

    Port 0 takes a free one; ``precision`` and ``device`` are those of :class:`Explorer`.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for every request tells a reader nothing
    app = make_explorer_app(Explorer(folder, precision, device))
    try:
        server = make_server(HOST, port, app.server, threaded=True)
    except (OSError, SystemExit) as error:  # werkzeug exits where a port is taken
        raise SanpError(f"port {port} cannot be used ({error}): give another --port") from error
    names = {f"{name}:{server.port}" for name in (HOST, "localhost")}

    def only_here() -> None:
        # A stranger's web page could reach this server under a name of its own that leads here.
        if request.host not in names:
            abort(403)

    app.server.before_request(only_here)
    return server, f"http://{HOST}:{server.port}/"
