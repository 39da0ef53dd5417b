"""Sites with logs of their own, and one program of rounds that all tests share."""

import dataclasses

import numpy as np
import pytest

from neorl_agents import TD3BC
from neorl_agents.testing import sized
from neorl_train.data import training_data
from neorl_train.federation import Federation, FederationConfig, federate


@pytest.fixture(scope="session")
def sites(make_log):
    """The same plant at five places: observations lie elsewhere, rewards are of another size."""
    log = make_log()
    rows = log.transitions
    return {
        f"site{i}": training_data(
            dataclasses.replace(
                log,
                transitions=rows._replace(
                    obs=rows.obs + np.float32(i / 10),
                    next_obs=rows.next_obs + np.float32(i / 10),
                    reward=rows.reward * np.float32(1 + i),
                ),
            )
        )
        for i in range(5)
    }


@pytest.fixture(scope="session")
def learner():
    return sized(TD3BC(), hidden=(8,), batch_size=16)


@pytest.fixture(scope="session")
def run(sites, learner):
    """A federation of three rounds of the same length, so that no test compiles another program."""

    def start(
        *,
        rule=None,
        chosen=None,
        faults=(),
        seed=0,
        secret=None,
        checkpoints=None,
        print_line=None,
        stop=None,
        **sections,
    ):
        options = {"rounds": 3, "local_updates": 8, **(rule or {})}
        named = sites if chosen is None else {name: sites[name] for name in chosen}
        quiet = {
            "print_line": print_line or (lambda line: None),
            "checkpoints": checkpoints,
            "secret": secret,
        }
        if stop is not None:
            quiet["stop"] = stop
        settings = Federation(FederationConfig(**options), **sections)
        return federate(learner, named, settings, seed=seed, faults=faults, **quiet)

    return start
