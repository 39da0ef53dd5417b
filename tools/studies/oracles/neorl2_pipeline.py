"""A trajectory of NeoRL-2's own Pipeline, stored for the tests of neorl-envs.

The package imports torch for its rewards and pins old releases, so its two modules are loaded from
a checkout, with an empty stand-in for torch (the reward takes its NumPy branch):

    python tools/studies/oracles/neorl2_pipeline.py CHECKOUT
"""

import argparse
import importlib
import sys
import types
from pathlib import Path

import numpy as np

FIXTURE = Path(__file__).parents[3] / "packages/neorl-envs/tests/plants/pipeline/neorl2.npz"
STEPS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    arguments = parser.parse_args()
    for name in ("torch", "neorl2", "neorl2.envs", "neorl2.envs.info"):
        sys.modules[name] = types.ModuleType(name)
    envs = sys.modules["neorl2.envs"]
    envs.__path__ = [str(arguments.checkout / "neorl2/envs")]
    for name in ("MIN_SCORES", "MAX_SCORES", "BASE_DATASET_URL", "MD5", "DATASET_SAVE_PATH"):
        setattr(sys.modules["neorl2.envs.info"], name, {})
    pipeline = importlib.import_module("neorl2.envs.pipline")
    env = pipeline.PipelineEnv(seed=3)
    first, _ = env.reset(seed=12)
    actions = np.random.default_rng(5).uniform(-1.3, 1.3, STEPS)
    actions[100:250] = 1.5  # up to the end of the range
    rows = [env.step(np.asarray([action]))[:2] for action in actions]
    np.savez_compressed(
        FIXTURE,
        first=first,
        actions=actions,
        obs=np.stack([row[0] for row in rows]),
        reward=np.asarray([row[1] for row in rows]),
    )


if __name__ == "__main__":
    main()
