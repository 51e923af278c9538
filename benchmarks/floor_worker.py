"""Process of a floor's worker; a module of its own, so that workflows are not in ``__main__``."""

import os
import sys

from benchmarks.floor import main

if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # The SDK may abort at interpreter exit (temporalio/sdk-python#300).
    os._exit(0)
