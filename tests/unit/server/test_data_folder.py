"""A data folder is ours, of a version we know, and used by one process; else nothing is touched."""

import json

import pytest

from anabranch.errors import ConfigError, FolderInUse, FormatError
from anabranch.runtime.real import real_runtime
from anabranch.server.data_folder import IDENTITY_FILE, claim


@pytest.fixture
def runtime():
    runtime = real_runtime()
    yield runtime
    runtime.disk.close()


async def test_new_folder_gets_an_identity_that_stays(runtime, tmp_path):
    path = str(tmp_path / "deep" / "data")
    first = await claim(runtime, path)
    first.lock.release()
    second = await claim(runtime, path)
    second.lock.release()
    assert first.cluster_id == second.cluster_id
    document = json.loads((tmp_path / "deep" / "data" / IDENTITY_FILE).read_text())
    assert document["version"] == 1
    assert document["created_ms"] > 1_600_000_000_000


async def test_two_folders_are_two_clusters(runtime, tmp_path):
    folders = [await claim(runtime, str(tmp_path / name)) for name in "ab"]
    assert folders[0].cluster_id != folders[1].cluster_id
    for folder in folders:
        folder.lock.release()


async def test_foreign_folder_is_left_as_it_is(runtime, tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(FormatError, match=r"holiday\.jpg.*--data"):
        await claim(runtime, str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


async def test_start_that_was_cut_off_is_taken_up_again(runtime, tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / f"{IDENTITY_FILE}.new").write_bytes(b'{"mag')
    folder = await claim(runtime, str(tmp_path))
    folder.lock.release()
    assert json.loads((tmp_path / IDENTITY_FILE).read_text())["cluster_id"] == folder.cluster_id


async def test_folder_in_use_is_refused_and_stays_usable_for_its_holder(runtime, tmp_path):
    holder = await claim(runtime, str(tmp_path))
    with pytest.raises(FolderInUse, match="in use"):
        await claim(runtime, str(tmp_path))
    holder.lock.release()
    again = await claim(runtime, str(tmp_path))
    again.lock.release()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not the identity"),
        (b'{"version": 1}', "is not the identity"),
        (b'{"magic": "anabranch data folder", "version": 2}', "format version 2"),
        (b'{"magic": "anabranch data folder", "version": 1}', "names no cluster_id"),
    ],
)
async def test_unknown_identity_is_refused_with_its_file_and_released(
    runtime, tmp_path, content, named
):
    (tmp_path / IDENTITY_FILE).write_bytes(content)
    for _ in range(2):  # the second attempt would find the folder in use if the first kept it
        with pytest.raises(FormatError, match=named) as caught:
            await claim(runtime, str(tmp_path))
        assert IDENTITY_FILE in str(caught.value)
    assert (tmp_path / IDENTITY_FILE).read_bytes() == content


async def test_file_where_a_folder_should_be_is_refused(runtime, tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        await claim(runtime, str(tmp_path / "data"))


async def test_further_folder_must_belong_to_the_same_cluster(runtime, tmp_path):
    further = await claim(runtime, str(tmp_path), cluster_id="one")
    further.lock.release()
    again = await claim(runtime, str(tmp_path), cluster_id="one")
    again.lock.release()
    with pytest.raises(FormatError, match="belongs to cluster one"):
        await claim(runtime, str(tmp_path), cluster_id="two")
