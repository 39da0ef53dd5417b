"""``python -m neorl_envs`` is the command ``neorl-envs``."""

import sys

from neorl_envs._cli import main

sys.exit(main())
