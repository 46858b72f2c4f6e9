"""A version map whose copy was interrupted at its very end."""

from pathlib import Path

from anabranch.metadata.transfer.version_map import ChangedVersion, VersionMapWriter, decode
from anabranch.runtime.real import real_runtime


async def test_map_that_was_finished_goes_on_with_its_copy(tmp_path: Path) -> None:
    file = tmp_path / "map.tsv"
    disk = real_runtime().disk
    first = VersionMapWriter(disk, str(file))
    await first.add([ChangedVersion("/a", 5, 0)])
    noted = first.size_bytes
    await first.add([ChangedVersion("/b", 6, 0)])
    await first.finish()
    # The copy ended before it removed its checkpoint, which knows of the first line.
    again = VersionMapWriter(disk, str(file))
    await again.resume(noted, 1)
    await again.add([ChangedVersion("/b", 6, 1)])
    await again.finish()
    assert decode(str(file), file.read_bytes()) == {
        "/a": ChangedVersion("/a", 5, 0),
        "/b": ChangedVersion("/b", 6, 1),
    }
