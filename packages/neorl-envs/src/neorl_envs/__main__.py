"""``python -m neorl_envs`` is the command ``neorl-envs``."""

import sys

from neorl_envs._cli import main

if __name__ == "__main__":
    sys.exit(main())
