"""Answers a bundle's test vectors in a fresh process that cannot import the training stack.

The export starts it as ``python -m neorl_deploy.runtime._parity BUNDLE``; it prints one line of
JSON.
"""

import itertools
import json
import sys
from importlib.abc import MetaPathFinder
from typing import Any

from neorl_deploy.bundle._test_vectors import compared, relative_rounding

KEPT_OUT = ("equinox", "neorl_agents", "neorl_core", "neorl_safety", "neorl_train", "optax")


class Refuses(MetaPathFinder):
    """Makes the training stack unimportable in this process."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Raises for a module of the training stack and ignores any other."""
        if fullname.split(".")[0] in KEPT_OUT:
            raise ModuleNotFoundError(f"{fullname} is kept out of this process", name=fullname)


def parity(path: str) -> dict[str, Any]:
    """The largest differences between the stored answers and those of the exported programs.

    Differences are those beyond rounding; ``rounding`` is the most that was ignored as such.
    """
    from neorl_deploy.bundle._read import read_bundle
    from neorl_deploy.runtime._runtime import Runtime

    bundle = read_bundle(path, proven=False)
    forms = {"": Runtime(bundle)}
    if "numpy" in bundle.manifest.forms:
        forms["numpy "] = Runtime(bundle, "numpy")
    differences, rounding, flags_equal = {}, 0.0, True
    for (form, runtime), section in itertools.product(forms.items(), ("single", "sequence")):
        vectors = runtime.bundle.test_vectors(section)
        action, answers = runtime.manifest.action, runtime.answers(section)
        difference, same = compared(action, runtime.findings, answers, vectors)
        differences[form + section], flags_equal = difference, flags_equal and same
        rounding = max(rounding, float(relative_rounding(action, vectors["rounding"]).max()))
    return {
        **differences,
        "worst": max(differences.values()),
        "rounding": rounding,
        "flags_equal": flags_equal,
        "kept_out": [name for name in KEPT_OUT if name not in sys.modules],
    }


if __name__ == "__main__":
    sys.meta_path.insert(0, Refuses())
    print(json.dumps(parity(sys.argv[1])))
