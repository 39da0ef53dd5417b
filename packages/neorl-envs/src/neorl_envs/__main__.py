"""``python -m neorl_envs`` is the command ``neorl-envs``."""

import sys

from neorl_envs._command.main import main

if __name__ == "__main__":
    sys.exit(main())
