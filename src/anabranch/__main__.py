"""`python -m anabranch` is the same command as `anabranch`."""

from anabranch.cli.main import run

if __name__ == "__main__":
    run()
