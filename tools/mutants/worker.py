"""Runs the tests of one mutant after another in one process; a part of ``tools/mutation.py``.

Reads lines of JSON, ``[mutant, test, ...]``, and answers each with pytest's exit code. mutmut's
mutants all live in the same files and the environment says which one a call runs, so a process can
go from one to the next: what it imported stays, and JAX forgets what it traced.
"""

import json
import os
import sys

ARGUMENTS = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=no", "--rootdir=."]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    import jax
    import pytest

    os.environ["MUTANT_UNDER_TEST"] = ""
    pytest.main([*ARGUMENTS, "--collect-only", *sys.argv[1:]])
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        os.environ["MUTANT_UNDER_TEST"], *tests = json.loads(line)
        jax.clear_caches()
        print(int(pytest.main([*ARGUMENTS, *tests])), file=answers, flush=True)


if __name__ == "__main__":
    main()
