"""``neorl-train open``: a page on this machine, from a dropped log to a change sheet."""

import contextlib
import dataclasses
import hmac
import http.server
import re
import socketserver
import sys
import tempfile
import threading
import traceback
import urllib.parse
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.open_session import Session, facts_of

ADDRESS = "127.0.0.1"
LARGEST = 100 * 2**20
"""Bytes of a log that may be dropped."""
DRAINED = 20 * LARGEST
"""Bytes of a larger one that are read and thrown away, so that the browser shows the answer."""
PIECE = 2**20
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


@dataclasses.dataclass(frozen=True)
class OpenOptions:
    """Serves a page on this machine alone: drop a log, confirm its loops, get the change sheets.

    example: neorl-train open
             neorl-train open --port 8000 --out sheets --no-browser

    Attributes:
        port: Port of the page; by default a free one.
        out: Folder for change sheets and pages.
        browser: Open the page in the browser.
    """

    port: int = 0
    out: Path = Path()
    browser: bool = True


def command(arguments: list[str]) -> None:
    """``neorl-train open``."""
    options = parse_options(OpenOptions, arguments, program="neorl-train open")
    if not 0 <= options.port < 2**16:
        raise InputError(f"--port must be 0 to 65535, got {options.port}")
    with served(options.out, port=options.port) as address:
        print(f"{address}\nThis machine alone can open it. Stop with Ctrl-C.", flush=True)
        if options.browser:
            webbrowser.open(address)
        threading.Event().wait()


@contextlib.contextmanager
def served(out: Path, *, port: int = 0) -> Iterator[str]:
    """Serves the page while the context lasts; gives its address, with the token that opens it.

    Args:
        out: Folder for change sheets and pages.
        port: Port; 0 for a free one.

    Raises:
        InputError: If the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="neorl-open-") as folder:
        session = Session(Path(folder), out)
        try:
            server = _Server((ADDRESS, port), _Handler)
        except OSError as error:
            raise InputError(f"port {port} cannot be used: {error.strerror}") from None
        server.session = session
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{ADDRESS}:{server.server_port}/{session.token}/"
        finally:
            server.shutdown()
            server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    session: Session

    def server_bind(self) -> None:
        # The base class would ask the name service for the name of this machine.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request; the pages are those of :mod:`neorl_train.pages._open_pages`."""

    server: _Server
    server_version, sys_version = "neorl", ""
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the token is in every address."""

    def do_GET(self) -> None:
        """Shows a page."""
        self._answered(self._get)

    def do_POST(self) -> None:
        """Takes a log, or answers about its loops."""
        self._answered(self._post)

    def _answered(self, act: Any) -> None:
        from neorl_train.pages._open_pages import wrong_page

        try:
            if (place := self._place()) is not None:
                with self.server.session.lock:
                    act(place)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        except (InputError, OSError) as error:
            self._send(wrong_page(str(error)), 400)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            fault = f"this is a fault of neorl, not of the log: {type(error).__name__}: {error}"
            self._send(wrong_page(fault), 500)

    def _place(self) -> str | None:
        """The page that is asked for; nothing if whoever asks may not, who is then told so."""
        own = f"{ADDRESS}:{self.server.server_port}"
        names = (own, f"localhost:{self.server.server_port}")
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in names or (
            origin is not None and origin not in [f"http://{name}" for name in names]
        ):
            self._refuse(403, f"this page is opened as http://{own} alone")
            return None
        token, _, place = urllib.parse.urlsplit(self.path).path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.session.token.encode()):
            self._refuse(404, "open the whole address that the command printed")
            return None
        return place

    def _get(self, place: str) -> None:
        from neorl_train.pages import _open_pages as pages

        session = self.server.session
        if place == "":
            self._send(pages.start_page())
        elif place == "loops" and session.log is not None:
            self._send(self._confirm())
        elif place == "answers" and session.log is not None and session.options:
            self._stream()
        elif place == "after" and session.compared:
            self._send(session.compared)
        elif re.fullmatch(r"page\d+", place) and int(place[4:]) < len(session.pages):
            self._send(session.pages[int(place[4:])].read_text("utf-8"))
        elif place == "favicon.ico":
            self._refuse(404, "none")
        else:
            self._send(pages.wrong_page("there is no such page; begin with a log"), 404)

    def _confirm(self, wrong: str = "") -> str:
        from neorl_train.pages._open_pages import Choice, column_words, confirm_page

        session = self.server.session
        assert session.log is not None
        assert session.found is not None
        choices = [
            Choice(column.name, column_words(column.unit, column.low, column.high))
            for column in session.found.columns
        ]
        facts = facts_of(session.log, session.found)
        return confirm_page(session.log.name, facts, choices, session.forms, wrong)

    def _stream(self) -> None:
        """The answers, each as soon as it is done; what a browser missed is not computed again."""
        from neorl_train.pages._open_pages import answers_page, wrong_words

        session = self.server.session
        assert session.log is not None
        head, tail = answers_page(session.log.name, str(session.out.absolute()))
        self._head(200)
        self.wfile.write(head.encode())
        self.wfile.write("".join(session.sections).encode())
        self.wfile.flush()
        try:
            for section in session.pending:
                session.sections.append(section)
                self.wfile.write(section.encode())
                self.wfile.flush()
        except InputError as error:
            session.sections.append(wrong_words(str(error)).text)
            self.wfile.write(session.sections[-1].encode())
        self.wfile.write(tail.encode())

    def _post(self, place: str) -> None:
        from neorl_train.pages import _open_pages as pages

        session, body = self.server.session, self._body()
        if place == "log":
            try:
                session.drop(*_dropped(self.headers.get("Content-Type", ""), body))
            except InputError as error:
                self._send(pages.start_page(_without_folder(error, session.folder)), 400)
                return
            self._go("loops")
        elif place == "confirm":
            text = body.decode("utf-8", "replace")
            answers = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
            try:
                if answers.get("show"):
                    session.show(answers)
                    self._send(self._confirm())
                    return
                session.confirm(answers)
            except InputError as error:
                session.keep(answers)
                self._send(self._confirm(_without_folder(error, session.folder)), 400)
                return
            self._go("answers")
        elif place == "after":
            try:
                session.compare(*_dropped(self.headers.get("Content-Type", ""), body))
            except InputError as error:
                self._send(pages.wrong_page(_without_folder(error, session.folder)), 400)
                return
            self._go("after")
        else:
            self._refuse(404, "there is no such page")

    def _body(self) -> bytes:
        """What was sent; a log that is too large is read to its end and refused."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise InputError("nothing was sent")
        size = int(length)
        if size > LARGEST:
            for start in range(0, min(size, DRAINED), PIECE):
                self.rfile.read(min(PIECE, size - start))
            raise InputError(
                f"the file has {size / 2**20:.0f} MB, and at most {LARGEST // 2**20} MB can be "
                "dropped; export fewer rows or columns, or use neorl-train loop FILE"
            )
        return self.rfile.read(size)

    def _send(self, page: str, status: int = 200) -> None:
        content = page.encode()
        self._head(status, len(content))
        self.wfile.write(content)

    def _head(self, status: int, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _go(self, place: str) -> None:
        self.send_response(303)
        self.send_header("Location", f"/{self.server.session.token}/{place}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _refuse(self, status: int, why: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(why.encode())))
        self.end_headers()
        self.wfile.write(why.encode())
        self.close_connection = True


def _without_folder(error: InputError, folder: Path) -> str:
    """A message that names a dropped log as the person knows it, and no options."""
    text = re.sub(r" \(--[\w.-]+(?: and --[\w.-]+)*\)", "", str(error))
    return text.replace(f"{folder}/", "").replace(str(folder), "")


def _dropped(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Name and content of the file in a form.

    Raises:
        InputError: If there is none.
    """
    boundary = re.search(r'multipart/form-data;.*boundary="?([^";]+)"?', content_type)
    if boundary:
        mark = b"--" + boundary[1].encode()
        for part in (b"\r\n" + body).split(b"\r\n" + mark)[1:]:
            head, found, content = part.partition(b"\r\n\r\n")
            name = re.search(rb'filename="([^"]*)"', head)
            if found and name and name[1]:
                return name[1].decode("utf-8", "replace"), content
    raise InputError("no file was dropped; choose one first")
