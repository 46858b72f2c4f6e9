"""The grammar of metadata paths."""

import pytest

from anabranch import limits
from anabranch.errors import InvalidPath
from anabranch.metadata.paths import (
    ancestors_of,
    check_path,
    is_within,
    join,
    name_of,
    order_key,
    parent_of,
)


@pytest.mark.parametrize(
    "path",
    ["/", "/a", "/a/b.c", "/a/...", "/ä/€/𝄞", "/a b", "/a/%2F", "/..a", "/a..", "/" + "x" * 8191],
)
def test_good_path_is_returned(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "a/b",
        "/a/",
        "//",
        "//a",
        "/a//b",
        "/.",
        "/..",
        "/a/./b",
        "/a/../b",
        "/a/..",
        "/a\x00b",
        "/a\nb",
        "/a\x7f",
        "/a\x85b",
        "/\ud800",
        "/\ue000",
        "/\uffff",
        "/" + "x" * limits.METADATA_PATH_BYTES_MAX,
        "/" + "ä" * (limits.METADATA_PATH_BYTES_MAX // 2),
    ],
)
def test_bad_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidPath):
        check_path(path)


def test_relations() -> None:
    assert list(ancestors_of("/a/b/c")) == ["/a", "/a/b"]
    assert list(ancestors_of("/a")) == []
    assert list(ancestors_of("/")) == []
    assert parent_of("/a/b") == "/a"
    assert parent_of("/a") == "/"
    assert name_of("/a/b") == "b"
    assert join("/", "a") == "/a"
    assert join("/a", "b") == "/a/b"
    assert is_within("/a", "/a")
    assert is_within("/a", "/a/b")
    assert not is_within("/a", "/ab")
    assert is_within("/", "/a")


def test_order_puts_a_subtree_right_behind_its_node() -> None:
    paths = ["/a-b", "/a/z", "/", "/a", "/a/b/c", "/a/b", "/a!"]
    assert sorted(paths, key=order_key) == ["/", "/a", "/a/b", "/a/b/c", "/a/z", "/a!", "/a-b"]
