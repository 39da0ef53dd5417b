"""Record a run of or-gym's NetInvMgmt without its lane (7, 5), for the tests of SupplyChain.

Needs or-gym 0.5.0, whose pins are old, so in an environment of its own:

    pip install --no-deps or-gym gym gym-notices cloudpickle numpy scipy pandas networkx matplotlib
    python tools/studies/oracles/or_gym_supply_chain.py \
        packages/neorl-envs/tests/plants/supply_chain/or_gym.npz
"""

import sys

import numpy as np
from or_gym.envs.supply_chain.network_management import NetInvMgmtMasterEnv

PERIODS = 60


def main(path: str) -> None:
    rng = np.random.default_rng(12)
    demand = rng.poisson(20, PERIODS)
    orders = rng.integers(0, 51, (PERIODS, 10))
    graph = NetInvMgmtMasterEnv().graph.copy()
    graph.remove_edge(7, 5)
    env = NetInvMgmtMasterEnv(graph=graph, user_D={(1, 0): demand}, num_periods=PERIODS, alpha=1.0)
    rewards = [env.step(row)[1] for row in orders]
    np.savez_compressed(
        path,
        lanes=np.asarray(env.reorder_links),
        demand=demand,
        orders=orders,
        shipped=env.R.to_numpy(),
        stock=env.X.to_numpy(),
        pipeline=env.Y.to_numpy(),
        unserved=env.U.to_numpy()[:, 0],
        reward=np.asarray(rewards),
    )


if __name__ == "__main__":
    main(sys.argv[1])
