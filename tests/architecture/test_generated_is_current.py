"""What is committed under generated/ is what `make proto` makes of proto/."""

from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "src" / "anabranch" / "generated"
SOURCES = sorted((ROOT / "proto").glob("*.proto"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_generated_module_is_current(source: Path, tmp_path: Path) -> None:
    arguments = [
        "protoc",
        f"-I{source.parent}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    assert protoc.main([*arguments, str(source)]) == 0
    for name in (f"{source.stem}_pb2.py", f"{source.stem}_pb2.pyi"):
        assert (GENERATED / name).read_text() == (tmp_path / name).read_text(), "run make proto"
