"""The command `newkinds`, also as `python -m newkinds`."""

import sys


def main() -> int:
    """The command line; somebody who stops it before it is there sees no traceback either."""
    try:
        from .cli import main
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(main())
