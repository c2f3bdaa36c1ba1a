"""A Hub on loopback: what huggingface_hub's client asks of one, and, for each repository, how to misbehave.

It speaks `api/models/ID[/revision/REV]`, and HEAD and GET of `ID/resolve/REV/FILE`, with ETag, X-Repo-Commit, ranges,
and large files behind a redirect to another host with X-Linked-Size and X-Linked-Etag. Of PyPI's local Hubs the one
that can be installed without a compiler, hf-local-hub, only starts a server that is not in the package.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>.+))?")
_CDN = re.compile(r"/cdn/(?P<repo>[^/]+/[^/]+)/(?P<name>.+)")
_LARGE = (".safetensors", ".bin")


@dataclass
class Fault:
    """One way to misbehave, the first `times` times that a request matches `on` ("METHOD path"); None: always.

    `does` is `status` (answer `status` with `code` as X-Error-Code and `headers`), `hang` (say nothing), `cut` (close
    in the middle), `stall` (say nothing more in the middle), `short` (half a file as if it were whole), `spoil` (other
    bytes of the same length), `drip` (a byte now and then), `move` (redirect to the repository `to`), `circle`
    (redirect to itself), `garbage` (no JSON, no headers of a Hub), `unnamed` (no X-Repo-Commit).
    """

    does: str
    times: int | None = None
    on: str = ".*"
    status: int = 0
    code: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    to: str = ""
    done: int = 0

    def next(self, request: str) -> bool:
        """Whether this request is one that it befalls, which then counts."""
        if not re.fullmatch(self.on, request) or (self.times is not None and self.done >= self.times):
            return False
        self.done += 1
        return True


@dataclass
class Repository:
    """Files by name, at one commit, and the faults of this repository."""

    files: dict[str, bytes]
    faults: list[Fault]
    commit: str
    facts: dict[str, object]


class HubServer:
    """Use as a context manager; `endpoint` is what HF_ENDPOINT is to be."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: Counter[str] = Counter()
        self.log: list[tuple[str, str, str]] = []
        self.moments: list[float] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        hub = self

        class Handler(_Handler):
            server_version, protocol_version, timeout = "Hub", "HTTP/1.1", 30

        Handler.hub = hub
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def add(self, repo: str, files: dict[str, bytes], *faults: Fault, **facts: object) -> Repository:
        """Serve a repository, of which the Hub says `facts` beside its files."""
        digest = hashlib.sha1(repo.encode())
        for name, content in sorted(files.items()):
            digest.update(name.encode() + content)
        made = self.repositories[repo] = Repository(files, list(faults), digest.hexdigest(), facts)
        return made

    def seen(self, request: str, repo: str, authorization: str, host: str) -> Fault | None:
        """Count a request, and say what befalls it."""
        with self._lock:
            self.requests[repo] += 1
            self.log.append((request, authorization, host))
            self.moments.append(time.monotonic())
            known = self.repositories.get(repo)
            return next((fault for fault in known.faults if fault.next(request)), None) if known else None

    def sleep(self, seconds: float) -> None:
        """Sleep unless the server closes."""
        self._closing.wait(seconds)


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            path = self.path.partition("?")[0]
            for pattern, answer in ((_API, self._api), (_CDN, self._cdn), (_RESOLVE, self._resolve)):
                if found := pattern.fullmatch(path):
                    repo = found["repo"]
                    authorization = self.headers.get("authorization", "")
                    request = f"{self.command} {path}"
                    fault = self.hub.seen(request, repo, authorization, self.headers.get("host", ""))
                    if fault is None or not self._misbehaves(fault, repo):
                        answer(found, fault)
                    return
            self._error(404, "")

    def _misbehaves(self, fault: Fault, repo: str) -> bool:
        """Do what needs no file; whether that was all."""
        match fault.does:
            case "status":
                self._error(fault.status, fault.code, fault.message, fault.headers)
            case "hang":
                self.hub.sleep(30)
                self.close_connection = True
            case "move":
                target = self.path.replace(f"/{repo}", f"/{fault.to}")
                self._error(307, "", "", {"Location": target})
            case "circle":
                self._error(302, "", "", {"Location": self.path})
            case "garbage":
                self._send(b"<html>Please log in to this network</html>", {"Content-Type": "text/html"})
            case _:
                return False
        return True

    def _api(self, found: re.Match[str], fault: Fault | None) -> None:
        known = self._known(found)
        if known is None:
            return
        siblings = []
        for name, content in known.files.items():
            one = {"rfilename": name, "size": len(content), "blobId": _git_sha(content)}
            if name.endswith(_LARGE):
                one["lfs"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 134}
            siblings.append(one)
        body = {"id": found["repo"], "modelId": found["repo"], "sha": known.commit, "siblings": siblings, "tags": []}
        self._send(json.dumps(body | known.facts).encode(), {"Content-Type": "application/json"}, fault)

    def _resolve(self, found: re.Match[str], fault: Fault | None) -> None:
        known = self._known(found)
        if known is None:
            return
        headers = {} if fault and fault.does == "unnamed" else {"X-Repo-Commit": known.commit}
        content = known.files.get(found["name"])
        if content is None:
            self._error(404, "EntryNotFound", "", headers)
        elif found["name"].endswith(_LARGE):
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-Etag": etag}
            location = f"http://localhost:{self.hub.port}/cdn/{found['repo']}/{found['name']}?X-Amz-Signature=secret"
            self._error(302, "", "", headers | {"Location": location})
        else:
            self._send(content, headers | {"ETag": f'"{_git_sha(content)}"'}, fault)

    def _cdn(self, found: re.Match[str], fault: Fault | None) -> None:
        self._send(self.hub.repositories[found["repo"]].files[found["name"]], {}, fault)

    def _known(self, found: re.Match[str]) -> Repository | None:
        known = self.hub.repositories.get(found["repo"])
        if known is None:
            self._error(404, "RepoNotFound", "Repository not found")
        elif found["revision"] not in (None, "main", known.commit):
            self._error(404, "RevisionNotFound", f"Invalid rev id: {found['revision']}")
            return None
        return known

    def _error(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if code:
            self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, headers: dict[str, str], fault: Fault | None = None) -> None:
        does = fault.does if fault else ""
        whole, start = len(body), 0
        if does == "spoil":
            body = bytes([body[0] ^ 1]) + body[1:]
        if does == "short":
            body = body[: whole // 2]
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        if asked and self.command == "GET":
            start = int(asked[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(whole if self.command == "HEAD" else len(body) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        body = body[start:]
        if does in ("cut", "stall"):
            self.wfile.write(body[: max(1, len(body) // 2)])
            if does == "stall":
                self.hub.sleep(30)
            self.close_connection = True
        elif does == "drip":
            for byte in body:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
        else:
            self.wfile.write(body)


def _git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
