"""The command `newkinds`, also as `python -m newkinds`."""

import os
import sys


def main() -> int:
    """The command line; somebody who stops it before it is there sees no traceback either."""
    try:
        from .cli import main
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun has started
            print("interrupted", file=sys.stderr)
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(main())
