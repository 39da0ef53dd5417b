"""FEDORA against its published equations in NumPy, and the table of sites that retune."""

import itertools

import numpy as np
import pytest

from federation import fedora, retuning

RNG = np.random.default_rng(0)
SIZES = {"actor": (3, 5, 5, 2), "critic": (5, 4, 4, 1)}


def layers(kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
    sizes = SIZES[kind]
    return [(RNG.normal(size=(n, m)), RNG.normal(size=m)) for n, m in itertools.pairwise(sizes)]


def nets() -> fedora.Nets:
    return fedora.Nets(layers("actor"), (layers("critic"), layers("critic")))  # pyright: ignore[reportArgumentType]


def forward(net: object, x: np.ndarray) -> np.ndarray:
    (w1, b1), (w2, b2), (w3, b3) = net  # pyright: ignore[reportGeneralTypeIssues]
    hidden = np.clip(np.clip(x @ w1 + b1, 0, None) @ w2 + b2, 0, None)
    return hidden @ w3 + b3


def q(net: object, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return forward(net, np.hstack([obs, action]))[:, 0]


ROWS = fedora.Rows(*(RNG.normal(size=shape) for shape in ((8, 3), (8, 2), 8, (8, 3))), None)
ROWS = ROWS._replace(action=np.tanh(ROWS.action), alive=RNG.integers(0, 2, 8).astype(float))


def test_the_losses_are_those_of_the_published_code() -> None:
    """fed_sim/FLAlgorithms/users/userrl.py, train_TD3, with alpha_0 = alpha_2 = 1, alpha_1 = 0."""
    mine, target, common, noise = nets(), nets(), nets(), 0.1 * RNG.normal(size=(8, 2))
    after = np.clip(np.tanh(forward(target.actor, ROWS.next_obs)) + noise, -1, 1)
    target_q = np.min([q(one, ROWS.next_obs, after) for one in target.critics], axis=0)
    common_q = np.min([q(one, ROWS.next_obs, after) for one in common.critics], axis=0)
    goal = ROWS.reward + ROWS.alive * 0.99 * np.maximum(target_q, common_q)
    expected = sum(np.mean((q(one, ROWS.obs, ROWS.action) - goal) ** 2) for one in mine.critics)
    found = fedora.critic_loss(mine.critics, target, common, ROWS, noise)
    assert float(found) == pytest.approx(expected, rel=1e-4)

    last, decay = layers("actor"), 0.7
    pi, common_pi, last_pi = (
        np.tanh(forward(net, ROWS.obs)) for net in (mine.actor, common.actor, last)
    )
    values = q(mine.critics[0], ROWS.obs, pi)
    expected = (
        -2.5 / np.abs(values).mean() * decay * values.mean()
        + decay * np.mean((pi - ROWS.action) ** 2)
        + np.mean((pi - common_pi) ** 2)
        + np.mean((pi - last_pi) ** 2)
    )
    anchors = fedora.Anchors(common, last, decay)  # pyright: ignore[reportArgumentType]
    found = fedora.actor_loss(mine.actor, mine.critics[0], anchors, ROWS)
    assert float(found) == pytest.approx(expected, rel=1e-4)
    assert float(fedora.worth(mine, ROWS)) == pytest.approx(values.mean(), rel=1e-4)


def test_sites_are_weighted_by_what_they_think_of_their_actors() -> None:
    worths = np.asarray([1.0, 5.0, -400.0])
    expected = np.exp(0.1 * worths) / np.exp(0.1 * worths).sum()
    np.testing.assert_allclose(fedora.weights(worths), expected)
    assert fedora.weights(1e5 * worths).tolist() == [0.0, 1.0, 0.0]


def test_the_last_site_is_not_counted_and_a_changed_pick_is() -> None:
    rows = [
        {
            "plant": "CSTR-v0", "seed": 0, "site": site, "way": way, "harm": site == "east",
            "chosen": "today" if site == "south" else "a 1", "gain": [gain, gain, gain],
            "values": [1.0 + (way == "poisoned" and site == "east")],
        }
        for site, gain in (("east", 1.0), ("south", 3.0), ("last", 99.0))
        for way in ("alone", "together", "poisoned")
    ]  # fmt: skip
    head, _, line = retuning.table(rows).splitlines()
    cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert cells["together"] == "2 ± 1, harm at 1"
    assert cells["kept together"] == "1 of 2"
    assert cells["picks changed by the false site |"] == "1 of 2 |"
