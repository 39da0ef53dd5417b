"""Runs the command ``neorl-deploy`` as ``python -m neorl_deploy``."""

import sys

from neorl_deploy._command.main import main

if __name__ == "__main__":
    sys.exit(main())
