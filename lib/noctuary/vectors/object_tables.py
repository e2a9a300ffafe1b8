"""LanceDB tables in an object store that speaks S3: reached, listed, removed and marked there.

What belongs here: the home `s3://bucket/prefix` and how it is reached. What does not: what the
tables hold (noctuary.vectors.tiers); what recall reads, which stays on local disk.

LanceDB commits by a conditional write (put if absent), which S3 and the servers that imitate it
offer: two writers cannot both make the same version. Credentials come from the variables that
every S3 client reads (AWS_*), are handed to the libraries and stand in no text of this module.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from noctuary.errors import StoreError
from noctuary.values import dataclass
from noctuary.vectors.dirty import MARK_TEXT, SUFFIX
from noctuary.vectors.lance import TABLE_SUFFIX, connect

SCHEME = "s3://"

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Who answers in the place of AWS, the most specific first."""

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
FALLBACK_REGION = "us-east-1"
"""Servers that imitate S3 sign with it and ignore it."""

CONNECT_TIMEOUT_S = 5
"""Longer waits for a slow network; shorter tells sooner that nobody is there."""

REQUEST_TIMEOUT_S = 60
"""One request, up to 5 MB of a table: longer suits a slow line, shorter notices a stuck one."""

RETRIES, RETRY_TIMEOUT_S = 3, 30
"""Lance's own retries (10 in 3 minutes) let a night wait on every request after a lost server."""


class TablesUnreachableError(StoreError):
    """The object store of the tables does not answer, or refuses."""


@dataclass(frozen=True, slots=True)
class ObjectTables:
    """Tables under `s3://bucket/prefix`; the prefix is theirs alone.

    Attributes:
        uri: Of the home, without a slash at the end.
    """

    uri: str

    def storage_options(self) -> dict[str, str]:
        """Return LanceDB's options from the environment; holds secrets."""
        found = {
            "aws_access_key_id": _variable("AWS_ACCESS_KEY_ID"),
            "aws_secret_access_key": _variable("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": _variable("AWS_SESSION_TOKEN"),
            "aws_region": _variable(*REGION_VARIABLES) or FALLBACK_REGION,
            "aws_endpoint": (endpoint := _variable(*ENDPOINT_VARIABLES)),
            "allow_http": "true" if endpoint.startswith("http://") else "",
            "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
            "timeout": f"{REQUEST_TIMEOUT_S}s",
            "client_max_retries": str(RETRIES),
            "client_retry_timeout": str(RETRY_TIMEOUT_S),
        }
        return {name: value for name, value in found.items() if value}

    def table_uri(self, name: str) -> str:
        """Return where one table lies."""
        return f"{self.uri.rstrip('/')}/{name}{TABLE_SUFFIX}"

    def connect(self) -> Any:
        """Return a LanceDB connection; nothing is asked of the server yet."""
        return connect(self.uri, self.storage_options())

    def list_tables(self, prefix: str) -> list[str]:
        """Return the names of the tables that start with a prefix, sorted."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._root, allow_not_found=True)
        with self.guarded():
            names = [str(found.base_name) for found in self._files().get_file_info(selector)]
        tables = [n.removesuffix(TABLE_SUFFIX) for n in names if n.endswith(TABLE_SUFFIX)]
        return sorted(name for name in tables if name.startswith(prefix))

    def has_table(self, name: str) -> bool:
        """Tell whether any object of a table is there."""
        return self._is_there(f"{name}{TABLE_SUFFIX}")

    def remove_table(self, name: str, *, mark: bool = True) -> None:
        """Remove a table and its mark, the mark last: a removal that stops is begun again."""
        with self.guarded():
            if self.has_table(name):
                self._files().delete_dir(f"{self._root}/{name}{TABLE_SUFFIX}")
            if mark and self.is_dirty(name):
                self._files().delete_file(self._mark(name))

    def remove_all(self) -> None:
        """Remove everything under the prefix."""
        with self.guarded():
            self._files().delete_dir_contents(self._root, missing_dir_ok=True)

    def is_dirty(self, name: str) -> bool:
        """Tell whether a write of the table was begun and not finished."""
        return self._is_there(f"{name}{SUFFIX}")

    @contextmanager
    def marked(self, name: str) -> Generator[None]:
        """Mark a table while it is written; the mark stays where that fails or is killed."""
        with self.guarded(), self._files().open_output_stream(self._mark(name)) as mark:
            mark.write(MARK_TEXT.encode())
        yield
        with self.guarded():
            self._files().delete_file(self._mark(name))

    def require_reachable(self) -> None:
        """Ask for one object of the prefix.

        Raises:
            TablesUnreachableError: Nobody answers, or the bucket or the credentials are refused.
        """
        from pyarrow.fs import FileSelector

        # As list_tables asks: a missing bucket is an error here and would be none for one object.
        try:
            self._files().get_file_info(FileSelector(self._bucket))
        except OSError as error:
            raise TablesUnreachableError(
                f"the tables at {self.uri} (tiers.uri) cannot be reached: {_cause(error)}; check "
                "the bucket, the network and the AWS_* variables, then run the night again: what "
                "serves stays as it is"
            ) from None

    @contextmanager
    def guarded(self) -> Generator[None]:
        """Say in one sentence that the store was lost; other errors pass as they are.

        Raises:
            TablesUnreachableError: Something failed inside and the store does not answer now.
        """
        try:
            yield
        except (RuntimeError, OSError, ValueError):
            # LanceDB raises RuntimeError for whatever its store says, with the request in it.
            self.require_reachable()
            raise

    @property
    def _root(self) -> str:
        return self.uri.removeprefix(SCHEME).rstrip("/")

    @property
    def _bucket(self) -> str:
        return self._root.partition("/")[0]

    def _mark(self, name: str) -> str:
        return f"{self._root}/{name}{SUFFIX}"

    def _is_there(self, name: str) -> bool:
        from pyarrow.fs import FileType

        with self.guarded():
            found = self._files().get_file_info(f"{self._root}/{name}")
        return found.type != FileType.NotFound

    def _files(self) -> Any:
        """Return pyarrow's view of the store, for what LanceDB does not offer: marks."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        return S3FileSystem(
            access_key=_variable("AWS_ACCESS_KEY_ID") or None,
            secret_key=_variable("AWS_SECRET_ACCESS_KEY") or None,
            session_token=_variable("AWS_SESSION_TOKEN") or None,
            region=_variable(*REGION_VARIABLES) or FALLBACK_REGION,
            endpoint_override=_variable(*ENDPOINT_VARIABLES) or None,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=RETRIES),
        )


def _variable(*names: str) -> str:
    """Return the first of some environment variables that is set, or nothing."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def _cause(error: OSError) -> str:
    """Return the kind of an S3 failure without the request that failed, which names keys."""
    _, found, rest = str(error).partition("AWS Error ")
    return f"S3 says {rest.split()[0]}" if found and rest else type(error).__name__
