"""A TCP proxy on loopback that cuts or freezes a connection after some bytes of answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class CuttingProxy:
    """A proxy in front of a server.

    Attributes:
        port: Where it listens on 127.0.0.1.
        passed: Bytes of the server's answers that went through.
    """

    port: int
    passed: int = 0
    sockets: list[socket.socket] = field(default_factory=list[socket.socket])


@contextmanager
def cutting_proxy(port: int, *, after_bytes: int, freeze: bool = False) -> Generator[CuttingProxy]:
    """Pass connections on to a port until the server has answered so many bytes.

    Args:
        port: Of the server on 127.0.0.1.
        after_bytes: Of answers, of all connections together.
        freeze: Leave the connections open and pass nothing any more; otherwise they are closed.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = CuttingProxy(int(listener.getsockname()[1]))
        thread = threading.Thread(
            target=_accept, args=(listener, port, proxy, after_bytes, freeze), daemon=True
        )
        thread.start()
        try:
            yield proxy
        finally:
            # A thread in accept() is not woken by a close.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for each in proxy.sockets:
                each.close()
            thread.join(5)


def _accept(
    listener: socket.socket, port: int, proxy: CuttingProxy, after_bytes: int, freeze: bool
) -> None:
    pumps: list[threading.Thread] = []
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", port))
            proxy.sockets += [client, server]
            pumps.append(threading.Thread(target=_ask, args=(client, server), daemon=True))
            pumps.append(
                threading.Thread(
                    target=_answer, args=(client, server, proxy, after_bytes, freeze), daemon=True
                )
            )
            for pump in pumps[-2:]:
                pump.start()
    for pump in pumps:
        pump.join(5)


def _ask(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(65_536):
            server.sendall(data)
    with suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)


def _answer(
    client: socket.socket,
    server: socket.socket,
    proxy: CuttingProxy,
    after_bytes: int,
    freeze: bool,
) -> None:
    with suppress(OSError):
        while data := server.recv(65_536):
            if proxy.passed + len(data) > after_bytes:
                if freeze:
                    return
                break
            proxy.passed += len(data)
            client.sendall(data)
    for each in (client, server):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
