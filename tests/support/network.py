"""A fence around this machine: connecting or resolving anything but loopback raises.

Nothing in the project may need the network, so a test that reaches for it should fail loudly, also on a machine where
the call would have worked.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", ""})

_RESOLVERS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")
_SENDERS = ("connect", "connect_ex", "sendto")


class NetworkBlocked(OSError):
    """A test tried to leave this machine."""


def is_loopback(host: object) -> bool:
    """Whether a host, by name or number, is this machine. None and "" are what listening sockets resolve.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("192.0.2.1"), is_loopback("example.org")
    (True, True, False, False)
    """
    if host is None:
        return True
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.split("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse(action: str, host: object) -> None:
    raise NetworkBlocked(f"the tests may not reach the network: {action} {host!r}")


def _guarded_resolver(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def resolve(host: object, *args: Any, **kwargs: Any) -> Any:
        if not is_loopback(host):
            _refuse(name, host)
        return real(host, *args, **kwargs)

    return resolve


def _guarded_sender(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def send(self: socket.socket, *args: Any) -> Any:
        address = args[-1]
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            _refuse(name, address)
        return real(self, *args)

    return send


def block() -> None:
    """Put the fence up for the rest of this process; a second call changes nothing."""
    if getattr(socket, "_headway_fence", False):
        return
    for name in _RESOLVERS:
        setattr(socket, name, _guarded_resolver(name, getattr(socket, name)))
    for name in _SENDERS:
        setattr(socket.socket, name, _guarded_sender(name, getattr(socket.socket, name)))
    socket._headway_fence = True  # pyright: ignore[reportAttributeAccessIssue]
