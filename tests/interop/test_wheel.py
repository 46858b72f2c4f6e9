"""The wheel is complete: installed alone into a fresh environment, the command works."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, check=False, cwd=cwd, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A fresh environment with the wheel in it and the dependencies beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation")
    run(*build, "--outdir", folder / "dist", cwd=ROOT)
    (wheel,) = (folder / "dist").glob("anabranch-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel, cwd=folder)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # Dependencies come from here, so that nothing is downloaded. Path files in a folder that is
    # named by one are not read, so the source tree does not sneak in.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv"


def test_command_of_the_wheel_tells_its_version(installed):
    from anabranch import __version__

    command = installed / "bin" / "anabranch"
    assert run(command, "--version", cwd=installed) == f"anabranch {__version__}"


def test_wheel_brings_every_module(installed):
    script = "import anabranch, pathlib; print(pathlib.Path(anabranch.__file__).parent)"
    package = Path(run(installed / "bin" / "python", "-c", script, cwd=installed))
    assert package.is_relative_to(installed)
    source = ROOT / "src" / "anabranch"
    wanted = {p.relative_to(source) for p in source.rglob("*") if p.suffix in (".py", ".pyi")}
    found = {p.relative_to(package) for p in package.rglob("*") if p.suffix in (".py", ".pyi")}
    assert found == wanted


def test_type_checkers_see_the_types_of_what_is_installed(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from anabranch.client import Client\n"
        "async def right(client: Client) -> bytes:\n"
        "    consumer = await client.consumer('phrases', 'readers', initial_position='earliest')\n"
        "    return (await consumer.receive()).value\n"
        "async def wrong(client: Client) -> None:\n"
        "    await client.producer('phrases', compression='best')\n"
        "    await Client.connect('pulsar://127.0.0.1', patience_s=3)\n"
    )
    python = installed / "bin" / "python"
    check = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python, program)
    done = subprocess.run(
        check, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in lines] == ["6", "7"], done.stdout + done.stderr
