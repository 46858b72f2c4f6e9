"""The coordinator's side of one client process: start, talk, wait, end."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Final

from anabranch.errors import AnabranchError

_ERROR_TAIL_BYTES: Final = 2000
_LINE_BYTES_MAX: Final = 1 << 20


class ClientFailed(AnabranchError):
    """A client process could not do its task."""


class ClientProcess:
    """One running `workload_client`. Use `start` to make one."""

    def __init__(self, name: str, process: Process, errors: Path) -> None:
        self.name = name
        self.progress: dict[str, int] = {}
        self._process = process
        self._errors = errors
        self._ready = asyncio.Event()
        self._complaint = ""
        self._is_stopping = False

    @classmethod
    async def start(
        cls,
        name: str,
        task: dict[str, Any],
        errors: Path,
        *,
        module: str = "anabranch.verify.workload_client",
    ) -> "ClientProcess":
        """Start the process and give it its task."""
        with errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                stdin=PIPE,
                stdout=PIPE,
                stderr=stderr,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C is for the coordinator alone
            )
        client = cls(name, process, errors)
        client.tell(json.dumps(task))
        return client

    async def listen(self) -> None:
        """Read what the client says until it ends.

        Raises:
            ClientFailed: if it ended without being told to, or with an error.
        """
        assert self._process.stdout is not None, "started with a pipe"
        try:
            async for line in self._process.stdout:
                said = json.loads(line)
                self.progress.update(said.get("progress", {}))
                self._complaint = said.get("error", self._complaint)
                if said.get("ready"):
                    self._ready.set()
            code = await self._process.wait()
        finally:
            self._ready.set()  # nobody may wait for a client that is gone
        if code != 0 or not self._is_stopping:
            raise ClientFailed(self._complaint or self._describe_end(code))

    def _describe_end(self, code: int) -> str:
        tail = self._errors.read_bytes()[-_ERROR_TAIL_BYTES:].decode(errors="replace").strip()
        return f"client {self.name} ended with code {code}" + (f":\n{tail}" if tail else "")

    async def wait_ready(self) -> None:
        """Wait until the client is connected, or gone."""
        await self._ready.wait()

    def tell(self, line: str) -> None:
        """Send one line to the client; one that is gone does not hear it."""
        stdin = self._process.stdin
        assert stdin is not None, "started with a pipe"
        if not stdin.is_closing():
            stdin.write(line.encode() + b"\n")

    def stop(self) -> None:
        """Ask the client to finish."""
        self._is_stopping = True
        self.tell("stop")

    async def wait_ended(self, timeout_s: float) -> bool:
        """Wait until the process is gone; after the timeout kill it and return False."""
        try:
            await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            return False
        return True
