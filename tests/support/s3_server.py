"""A server on this machine that speaks S3, for tests of tables in an object store.

It is a real HTTP server (moto) in a thread; what is under test are lancedb's and pyarrow's own
clients against it. Stopping it is a lost connection.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

BUCKET = "memories"
SECRET = "s3cr3t-of-the-tests"
KEY = "AKIAOFTHETESTS"


class S3Server:
    """The server, and the environment that leads to it."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        # It would print every request.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        _, port = self._server.get_host_and_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._running = True

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def files(self) -> Any:
        """Return pyarrow's file system of the server, to look behind the code under test."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=KEY, secret_key=SECRET, region="us-east-1",
            endpoint_override=self.endpoint, allow_bucket_creation=True,
        )  # fmt: skip

    def names(self, prefix: str = "") -> list[str]:
        """Return the paths of all objects under a prefix of the bucket, sorted."""
        from pyarrow.fs import FileSelector, FileType

        place = f"{BUCKET}/{prefix}".rstrip("/")
        found = self.files().get_file_info(
            FileSelector(place, recursive=True, allow_not_found=True)
        )
        return sorted(f.path for f in found if f.type == FileType.File)

    def stop(self) -> None:
        if self._running:
            self._server.stop()
            self._running = False


@contextmanager
def s3_server() -> Generator[S3Server]:
    """Run a server with an empty bucket; skips the test where moto is not installed."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed (extra `dev`)")
    server = S3Server()
    try:
        server.files().create_dir(BUCKET)
        yield server
    finally:
        server.stop()
