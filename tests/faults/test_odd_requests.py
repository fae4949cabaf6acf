"""Requests to `watch` that are odd, half or many are answered or ended, and the page goes on."""

import socket
import threading
import time

import pytest

from allforone.errors import InputError
from allforone.reports import server, watch


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "PATIENT", 0.3)
    monkeypatch.setattr(watch, "CONNECTIONS", 4)
    (tmp_path / "config.yaml").write_text("garbage: [")
    with server(tmp_path) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield "127.0.0.1", serving.server_port
        serving.shutdown()
        thread.join()


def asked(address, request):
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while block := connection.recv(4096):
            answer += block
    return answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", b"200"),
        (b"GET /data.json HTTP/1.0\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET / HTTP/1.0\r\nHost: [::1\r\n\r\n", b"400"),
        (b"GET //[ HTTP/1.0\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET / HTTP/1.0\r\nHost: \xff\xfe\r\n\r\n", b"403"),
        (b"GET / HTTP/1.0\r\n", b""),
        (b"", b""),
        (b"\0" * 100 + b"\r\n\r\n", b"400"),
    ],
)
def test_watch_answers_any_request_or_ends_it(address, request_, status):
    answer = asked(address, request_)
    assert status in answer and bool(status) == bool(answer), answer
    if request_.startswith(b"GET / HTTP/1.0\r\nHost: 127"):
        assert b"Waiting for the first round" in answer and b"config.yaml: not YAML" in answer


def test_watch_closes_connections_beyond_its_number_and_goes_on(address):
    several = [socket.create_connection(address, timeout=60) for _ in range(12)]
    assert sum(connection.recv(1) == b"" for connection in several) == 12  # all end: beyond the number, or in time
    for connection in several:
        connection.close()
    assert b"200" in asked(address, b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")


def test_watch_ends_a_request_that_comes_byte_by_byte(address, monkeypatch):
    monkeypatch.setattr(watch, "LONGEST", 0.5)
    closed = pytest.raises((BrokenPipeError, ConnectionResetError))
    with socket.create_connection(address, timeout=60) as connection, closed:
        _drip(connection)


def _drip(connection):
    for _ in range(200):  # each in good time
        connection.sendall(b"G")
        time.sleep(0.05)


def test_watch_does_not_take_an_empty_host_for_every_address_of_the_machine(tmp_path):
    with pytest.raises(InputError, match=r"the host is empty: give 127\.0\.0\.1"):
        server(tmp_path, host="")
