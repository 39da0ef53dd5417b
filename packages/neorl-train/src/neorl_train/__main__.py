"""Runs the command ``neorl-train`` as ``python -m neorl_train``."""

import sys

from neorl_train._command.main import main

if __name__ == "__main__":
    sys.exit(main())
