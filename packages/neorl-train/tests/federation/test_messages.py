"""What leaves a site: its introduction and its updates, and nothing of its rows."""

import dataclasses
import inspect

import jax
import numpy as np
import pytest

from neorl_core import Channel, InputError
from neorl_train.federation import (
    Client,
    Federation,
    FederationConfig,
    Introduction,
    MessagesConfig,
    RoundStart,
    n_bytes,
)
from neorl_train.federation._messages import check_introductions

SETTINGS = Federation(FederationConfig(rounds=3, local_updates=8))


@pytest.fixture(scope="module")
def client(sites, learner):
    made = Client("site0", 0, learner, sites["site0"], SETTINGS, seed=0)
    made.begin(made.introduce().statistics)
    return made


def arrays_in(message):
    return [leaf for leaf in jax.tree.leaves(message) if isinstance(leaf, np.ndarray | jax.Array)]


def test_messages_hold_one_number_a_channel_and_one_a_parameter_and_no_row(client, sites):
    """Row P11: no row of a site's log leaves it."""
    introduction, size = client.introduce(), len(client.parameters)
    spec = sites["site0"].spec
    for field in (f for f in introduction.statistics if f is not None):
        for values in field:
            assert np.size(values) <= max(spec.n_obs, spec.n_action), "a number for each row"
    update = client.work(RoundStart(0, client.parameters))()
    assert [array.shape for array in update.arrays] == [(size,)]
    assert n_bytes(update) == 4 * size
    assert n_bytes(introduction) < 4 * sites["site0"].n_rows

    rows = {bytes(np.asarray(row)) for row in sites["site0"].rows.obs}
    for message in (introduction, update):
        sent = b"".join(np.asarray(array).tobytes() for array in arrays_in(message))
        assert not any(row in sent for row in rows), "a row of the log is in a message"


def test_no_public_member_of_a_site_gives_its_data_away(client, sites):
    public = [name for name in dir(Client) if not name.startswith("_")]
    properties = [n for n in public if isinstance(inspect.getattr_static(Client, n), property)]
    answers = [getattr(client, name) for name in properties] + [client.snapshot()]
    n_rows = sites["site0"].n_rows
    for leaf in jax.tree.leaves(answers):
        assert n_rows not in np.shape(leaf)


def introduction(site, sites, **changes):
    data = sites["site0"]
    statistics = jax.device_get(data.statistics)
    return Introduction(site, data.n_rows, data.spec, statistics)._replace(**changes)


def with_obs(sites, channel):
    spec = sites["site0"].spec
    return dataclasses.replace(spec, obs=(channel, *spec.obs[1:]))


def field_with(sites, **changes):
    statistics = jax.device_get(sites["site0"].statistics)
    return statistics._replace(obs=statistics.obs._replace(**changes))


REFUSED = {
    "another unit": (
        lambda s: {"spec": with_obs(s, Channel("level", "ft", -9.0, 9.0))},
        r"site b .*level \(-9 to 9 ft\).*site a has level \(-9 to 9 m\)",
    ),
    "another channel": (
        lambda s: {"spec": dataclasses.replace(s["site0"].spec, obs=s["site0"].spec.obs[:1])},
        r"site b has 1 observed channels \(level\), site a has 2",
    ),
    "another period": (
        lambda s: {"spec": dataclasses.replace(s["site0"].spec, dt=1.0)},
        "control period of 1 s, site a one of 60 s",
    ),
    "a count that is not that of its statistics": (
        lambda s: {"rows": 10**9},
        "reports 1000000000 rows, but its statistics of obs count 120",
    ),
    "no rows": (lambda s: {"rows": 0}, "reports 0 rows"),
    "a deviation that cannot be": (
        lambda s: {"statistics": field_with(s, std=np.float32([1e6, 1.0]))},
        "statistics of level that no data can have",
    ),
    "a mean that is not finite": (
        lambda s: {"statistics": field_with(s, mean=np.float32([np.nan, 0.0]))},
        "statistics of level that no data can have",
    ),
    "other units in fact": (
        lambda s: {
            "statistics": field_with(
                s, mean=np.float32([900, 0]), min=np.float32([800, -9]), max=np.float32([990, 9])
            )
        },
        r"mean of level of 900 m, outside its measuring range from -9 to 9 m",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_site_that_cannot_be_is_refused_in_one_line(case, sites):
    changes, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as error:
        check_introductions([introduction("a", sites), introduction("b", sites, **changes(sites))])
    assert "\n" not in str(error.value)


def test_a_masked_update_says_nothing_before_the_sum(sites, learner):
    settings = dataclasses.replace(SETTINGS, messages=MessagesConfig(secure_sum=True))
    made = [
        Client(name, i, learner, sites[name], settings, seed=0)
        for i, name in enumerate(("site0", "site1", "site2"))
    ]
    published = {one.name: one.pairings.public for one in made}
    start = RoundStart(0, made[0].begin(made[0].introduce().statistics), tuple(published))
    for one in made[1:]:
        one.begin(made[0].introduce().statistics)
    terms = []
    for one in made:
        one.pairings.exchange_keys(published)
        assert one.work(start)().arrays == ()
        masked = one.mask(start, share=1.0, largest=1.0, scale=2.0**20).arrays[0]
        terms.append(masked)
        # A masked word is as likely to be anything: of 115 words few lie near zero by chance.
        assert np.mean(masked.astype(np.int32) // 2**24 == 0) < 0.1
    total = np.sum(np.stack(terms), axis=0, dtype=np.uint32).astype(np.int32) / 2.0**20
    assert np.abs(total).max() < 3
