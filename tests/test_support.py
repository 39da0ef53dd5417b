"""The repository's own helpers: the guard against connections, reference data, a browser."""

import socket
from pathlib import Path

import pytest

import machine
from network import OutboundConnectionError, refuse_connections


def test_no_test_reaches_another_machine() -> None:
    """``workspace_plugin.py`` has seen to it; twice is once."""
    refuse_connections()
    with socket.socket() as stream, pytest.raises(OutboundConnectionError, match=r"192\.0\.2\.1"):
        stream.connect(("192.0.2.1", 80))
    with (
        socket.socket(type=socket.SOCK_DGRAM) as datagram,
        pytest.raises(OutboundConnectionError, match=r"198\.51"),
    ):
        datagram.sendto(b"x", ("198.51.100.1", 80))
    with pytest.raises(OutboundConnectionError, match=r"example\.invalid"):
        socket.getaddrinfo("example.invalid", 443)


def test_loopback_and_unix_sockets_stay_free(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))


def test_shared_data_is_found_by_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neorl2").mkdir()
    monkeypatch.setenv("NEORL_SHARED_DATA", str(tmp_path))
    assert machine.find_shared_data("neorl2") == tmp_path / "neorl2"
    with pytest.raises(FileNotFoundError, match="no such entry"):
        machine.find_shared_data("neorl3")


def test_shared_data_is_found_beside_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    assert checkout.parent / "shared" / "data" == machine.BESIDE_CHECKOUT
    monkeypatch.delenv("NEORL_SHARED_DATA", raising=False)
    monkeypatch.setattr(machine, "BESIDE_CHECKOUT", tmp_path)
    assert machine.find_shared_data() == tmp_path


def test_what_is_missing_is_skipped_with_the_counted_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEORL_SHARED_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(pytest.skip.Exception, match="NEORL_SHARED_DATA"):
        machine.find_shared_data()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="no browser"):
        machine.find_browser()
