"""`python -m hotloop` is `hotloop`."""

import os
import sys

if __name__ == "__main__":
    # Unlike the `hotloop` command, -m puts the current folder first in sys.path. A script's modules would hide ours.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]

    from hotloop.cli.main import main

    sys.exit(main())
