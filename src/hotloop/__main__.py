"""`python -m hotloop` is `hotloop`."""

import os
import sys

if __name__ == "__main__":
    # Unlike the `hotloop` command, -m puts the current folder first: modules of a script would replace those we import.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]

    from hotloop.cli.main import main

    sys.exit(main())
