"""`python -m pyspark_anabranch`: whether Spark can run here, in one line."""

import sys

from anabranch.errors import ConfigError
from pyspark_anabranch.environment import prepare

if __name__ == "__main__":
    try:
        line, code = prepare(), 0
    except ConfigError as error:
        line, code = str(error), 1
    sys.stdout.write(f"{line}\n")
    sys.exit(code)
