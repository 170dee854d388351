"""The explorer's page on a local port, made anew at each request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import BaseServer
from typing import Final

from tensorlang.errors import TensorlangError

_HOST: Final = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    """Answers `/` with a page."""

    def __init__(
        self,
        make: Callable[[], str],
        request: object,
        client: object,
        server: BaseServer,
    ) -> None:
        self._make = make
        super().__init__(request, client, server)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Send the page; other hosts' names are refused, so that no site can ask."""
        local = self.headers.get("Host", "").rpartition(":")[0] in (_HOST, "localhost")
        if self.path != "/" or not local:
            self.send_error(404)
            return
        try:
            body = self._make().encode()
        except TensorlangError as problem:
            self.send_error(500, explain=str(problem))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing about requests."""


def server_of(make: Callable[[], str]) -> HTTPServer:
    """A server of a page on a free port of this machine alone."""
    return HTTPServer((_HOST, 0), partial(_Handler, make))


def serve(make: Callable[[], str], say: Callable[[str], None]) -> None:
    """Serve a page until Ctrl-C."""
    with server_of(make) as server:
        say(f"http://{_HOST}:{server.server_port}/ (Ctrl-C stops)")
        server.serve_forever()
