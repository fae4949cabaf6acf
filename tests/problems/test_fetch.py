"""Downloads, from a real server on this machine."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from allforone.errors import InputError
from allforone.problems import sources
from allforone.problems.sources import File, Source

CONTENT = b"the whole file " * 1000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(404 if "gone" in self.path else 200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        body = {"/whole": CONTENT, "/wrong": CONTENT[::-1], "/cut": CONTENT[:5000]}.get(self.path, b"")
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def offer(path):
        md5 = hashlib.md5(CONTENT).hexdigest()
        file = File("file.bin", f"http://127.0.0.1:{server.server_port}{path}", md5, len(CONTENT))
        monkeypatch.setitem(sources.SOURCES, "mnist", Source("mnist", "a test", "none", "nowhere", (file,)))
        return tmp_path / "mnist" / "file.bin"

    server.offer = offer
    yield server
    server.shutdown()
    server.server_close()


def test_a_file_is_downloaded_once_and_checked(server, cli):
    path = server.offer("/whole")
    assert cli("data", "check", "mnist")[0] == 2
    code, printed, _ = cli("data", "fetch", "mnist")
    assert code == 0
    assert "is whole in" in printed
    assert path.read_bytes() == CONTENT
    assert cli("data", "fetch", "mnist")[0] == 0
    assert server.asked == ["/whole"]
    assert cli("data", "check", "mnist")[0] == 0


def test_a_damaged_file_is_named_and_downloaded_again(server, cli):
    path = server.offer("/whole")
    path.parent.mkdir()
    path.write_bytes(CONTENT[:-1] + b"x")
    code, printed, err = cli("data", "check", "mnist")
    assert code == 2
    assert "file.bin: md5" in printed
    assert "data fetch mnist" in err
    path.write_bytes(CONTENT[:100])
    assert "100 bytes, expected 15000" in cli("data", "check", "mnist")[1]
    assert cli("data", "fetch", "mnist")[0] == 0
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ("/wrong", "is not file.bin, whose md5 is"),
        ("/cut", "could not download"),
        ("/gone", "could not download"),
    ],
)
def test_what_is_not_the_file_leaves_no_file_behind(server, cli, offered, said):
    path = server.offer(offered)
    code, _, err = cli("data", "fetch", "mnist")
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert list(path.parent.iterdir()) == []


def test_an_unknown_set_gets_the_nearest_name(cli):
    code, _, err = cli("data", "fetch", "cifar")
    assert code == 2
    assert "did you mean 'cifar10'" in err


def test_the_list_names_every_set_with_its_licence(cli):
    code, printed, _ = cli("data", "list")
    assert code == 0
    for name, source in sources.SOURCES.items():
        assert name in printed
        assert source.licence in printed


def test_without_a_network_the_message_says_where_to_put_the_file(server):
    server.offer("/whole")
    server.server_close()
    with pytest.raises(InputError, match=r"download it by hand and put it at .*file\.bin"):
        sources.fetch("mnist")


@pytest.mark.parametrize("offered", ["/wrong", "/cut", "/gone"])
def test_a_download_that_fails_leaves_what_was_there(server, cli, offered):
    path = server.offer(offered)
    path.parent.mkdir()
    path.write_bytes(b"of an older version")
    code, _, err = cli("data", "fetch", "mnist")
    assert code == 2 and err.count("\n") == 1
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"of an older version"]
