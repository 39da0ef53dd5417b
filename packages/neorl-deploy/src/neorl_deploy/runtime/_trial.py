"""Runs a form of a bundle in a separate process first, with a time limit.

A sealed program may loop forever, exhaust memory or crash, and none of that may happen in the
process that controls a plant. A list of operations ends, but its loops may take long. Started as
``python -m neorl_deploy.runtime._trial BUNDLE DIGEST FORM``.
"""

import os
import subprocess
import sys
from pathlib import Path

from neorl_deploy._errors import BundleError, DeployError
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.runtime._forms import FormName

TIME_LIMIT = 120.0
"""Seconds allowed for compiling the programs, a fresh carry and all test vectors."""

_passed_digests: set[tuple[str, str]] = set()
"""Digests and forms of the bundles that have completed in time since this process began."""


def require_trial(
    bundle: Bundle, seconds: float = TIME_LIMIT, form: FormName = "stablehlo"
) -> None:
    """Raises unless another process runs a form of a bundle to completion.

    That process creates a fresh carry and answers all test vectors; whether the answers are right
    is not checked here. A form of a bundle is tried once per process.

    Args:
        bundle: A verified bundle.
        seconds: Time limit.
        form: Form to try.

    Raises:
        BundleError: If the programs exceed the time limit, crash, or cannot be run.
    """
    if (bundle.digest, form) in _passed_digests:
        return
    command = [sys.executable, "-m", "neorl_deploy.runtime._trial"]
    command += [str(bundle.path), bundle.digest, form]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise BundleError(
            f"{bundle.path}: its programs did not answer the test vectors within {seconds:g} s in "
            "a process of their own; try again when this machine is idle, and do not run it if "
            "they fail again"
        ) from error
    except OSError as error:
        raise BundleError(f"{bundle.path}: its programs could not be tried: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BundleError(
            reason
            if done.returncode == 2
            else f"{bundle.path}: its programs crash ({reason:.200}); fetch the bundle again"
        )
    _passed_digests.add((bundle.digest, form))


def note_trial(bundle: Bundle) -> None:
    """Records that the parity check of an exported bundle was its trial in another process."""
    _passed_digests.update({(bundle.digest, "stablehlo"), (bundle.digest, "numpy")})


def _try(path: str, digest: str, form: FormName) -> None:
    from neorl_deploy.runtime._runtime import Runtime

    bundle = read_bundle(Path(path), proven=False)
    if bundle.digest != digest:
        raise BundleError(f"{path} was changed while it was loaded")
    runtime = Runtime(bundle, form)
    for section in ("single", "sequence"):
        runtime.answers(section)


if __name__ == "__main__":
    try:
        _try(sys.argv[1], sys.argv[2], "numpy" if sys.argv[3] == "numpy" else "stablehlo")
    except DeployError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)
