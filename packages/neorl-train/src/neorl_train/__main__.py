"""``python -m neorl_train`` is the command ``neorl-train``."""

import sys

from neorl_train._command.main import main

if __name__ == "__main__":
    sys.exit(main())
