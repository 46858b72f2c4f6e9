"""Writers that go on while their metadata store is replaced, and what must be true of it then."""

import asyncio

from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.testing.replaced_stores import Member


class Writer:
    """Writes one node after another, and counts another one up."""

    def __init__(self, member: Member, name: str, pause_s: float = 0.004) -> None:
        """It rests between two rounds."""
        self._pause_s = pause_s
        self.member = member
        self.name = name
        self.written: dict[str, bytes] = {}
        self.count = 0
        self.numbers: list[int] = []
        self._stop = False

    async def run(self) -> None:
        """Write until it is stopped."""
        store = self.member.store
        counter = await store.put(f"/counters/{self.name}", b"0", ABSENT)
        version = counter.version
        number = 0
        while not self._stop:
            number += 1
            path = f"/written/{self.name}/{number:05d}"
            await store.put(path, b"%d" % number, ABSENT)
            self.written[path] = b"%d" % number
            if number % 7 == 0:
                await store.delete(path)
                del self.written[path]
            version = (await store.put(f"/counters/{self.name}", b"%d" % number, version)).version
            self.count = number
            if number % 5 == 0:
                stat = await store.put("/sequence/n-", b"", sequential=True)
                self.numbers.append(int(stat.path[-10:]))
                self.written[stat.path] = b""
            await asyncio.sleep(self._pause_s)

    def stop(self) -> None:
        """Let it end with the round that it is in."""
        self._stop = True


async def check(writers: list[Writer], store: MetadataStore) -> None:
    """All that was acknowledged is there, once, and nothing that was deleted came back."""
    for writer in writers:
        for path, value in writer.written.items():
            node = await store.get(path)
            assert node is not None, f"{path} is lost"
            assert node.value == value
        counter = await store.get(f"/counters/{writer.name}")
        assert counter is not None
        assert counter.value == b"%d" % writer.count
        assert writer.numbers == sorted(set(writer.numbers))
    numbers = [number for writer in writers for number in writer.numbers]
    assert len(numbers) == len(set(numbers))
    known = {path for writer in writers for path in writer.written}
    for folder in [f"/written/{writer.name}" for writer in writers] + ["/sequence"]:
        for name in await store.children(folder):
            assert f"{folder}/{name}" in known, f"{folder}/{name} came back"
