"""The fence of tests/support/network.py stands in every test, and lets loopback through."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from support.network import NetworkBlocked, block, is_loopback

# 192.0.2.0/24 is reserved for documentation: no host has such an address.
NOWHERE = "192.0.2.1"


def test_connecting_elsewhere_raises():
    with socket.socket() as sock, pytest.raises(NetworkBlocked, match="may not reach the network"):
        sock.connect((NOWHERE, 80))


def test_connect_ex_does_not_hide_the_refusal_in_a_code():
    with socket.socket() as sock, pytest.raises(NetworkBlocked):
        sock.connect_ex((NOWHERE, 80))


def test_datagrams_elsewhere_raise():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with pytest.raises(NetworkBlocked):
            sock.sendto(b"x", (NOWHERE, 9))
        with pytest.raises(NetworkBlocked):
            sock.sendto(b"x", 0, (NOWHERE, 9))


def test_ipv6_elsewhere_raises():
    with socket.socket(socket.AF_INET6) as sock, pytest.raises(NetworkBlocked):
        sock.connect(("2001:db8::1", 80))


@pytest.mark.parametrize("resolver", ["getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"])
def test_resolving_a_name_raises(resolver: str):
    arguments = ("example.org", 80) if resolver == "getaddrinfo" else ("example.org",)
    with pytest.raises(NetworkBlocked):
        getattr(socket, resolver)(*arguments)


def test_a_library_that_opens_an_address_is_caught():
    with pytest.raises(OSError, match="may not reach the network"):
        urllib.request.urlopen("http://example.org/", timeout=1)


def test_loopback_works():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
        server.accept()[0] as peer,
    ):
        client.sendall(b"hello")
        assert peer.recv(5) == b"hello"


def test_what_counts_as_loopback():
    assert [is_loopback(host) for host in ("127.9.9.9", b"::1", "localhost", None)] == [True] * 4
    assert not any(is_loopback(host) for host in ("10.0.0.1", "100.64.0.1", "fe80::1%eth0", "localhost.evil.org"))


def test_a_second_fence_changes_nothing():
    before = socket.getaddrinfo
    block()
    assert socket.getaddrinfo is before
