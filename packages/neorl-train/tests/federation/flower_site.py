"""One process of the test of Flower: the server, or a site with the log of its number."""

import dataclasses
import sys
from pathlib import Path

import numpy as np

from neorl_agents import TD3BC
from neorl_agents.learning import for_run
from neorl_agents.testing import sized
from neorl_envs import read_dataset
from neorl_train.data import training_data
from neorl_train.federation import (
    Client,
    Federation,
    FederationConfig,
    join_federation,
    serve_federation,
)

SETTINGS = Federation(FederationConfig(rounds=4, local_updates=8))
NAMES = ("north", "south", "west")
KEYS = {name: name.encode() * 8 for name in NAMES}


def learner():
    """Small, with its schedules settled as the engine settles them."""
    federation = SETTINGS.federation
    small = sized(TD3BC(), hidden=(8,), batch_size=16)
    return for_run(small, federation.rounds * federation.local_updates)


def data(folder, number):
    """The log of the folder, shifted by the number of the site."""
    log = read_dataset(Path(folder) / "log.h5")
    rows, shift = log.transitions, np.float32(number / 10)
    moved = rows._replace(obs=rows.obs + shift, next_obs=rows.next_obs + shift)
    return training_data(dataclasses.replace(log, transitions=moved))


def main(role, folder, address):
    """Serves, or joins as the site of that number."""
    if role == "server":
        records = []
        vector = serve_federation(SETTINGS, NAMES, address, keys=KEYS, watch=records.append)
        np.save(Path(folder) / "vector.npy", vector)
        for record in records:
            print("outcomes", sorted(record.outcomes.values()), flush=True)
        return
    number = int(role)
    client = Client(NAMES[number], number, learner(), data(folder, number), SETTINGS, seed=0)
    join_federation(client, address, key=KEYS[NAMES[number]])
    np.save(Path(folder) / f"site-{number}.npy", client.parameters)


if __name__ == "__main__":
    main(*sys.argv[1:])
