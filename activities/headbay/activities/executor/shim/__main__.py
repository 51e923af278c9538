"""Entry point: ``python -I -S …/executor/shim DIRECTORY FD``.

DIRECTORY is the attempt's folder in the spool, with `order.json` and `lease`. FD is the pipe that
brings the 32-byte nonce and then secrets as JSON: ``env``, values by variable, and ``files``, what
files hold, in Base64, by the variable that names them; its end without a nonce means "never".
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from shim.entry import main  # type: ignore[import-not-found]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
