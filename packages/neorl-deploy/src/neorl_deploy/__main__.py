"""``python -m neorl_deploy`` is the command ``neorl-deploy``."""

import sys

from neorl_deploy._command.main import main

if __name__ == "__main__":
    sys.exit(main())
