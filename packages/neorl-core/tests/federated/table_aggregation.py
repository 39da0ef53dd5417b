import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import optimize

from neorl_core.federated import (
    Aggregate,
    bulyan,
    centred_clipping,
    clip_update,
    coordinate_median,
    geometric_median,
    gossip_step,
    krum,
    metropolis_mixing,
    mixing_rate,
    multi_krum,
    private_mean,
    ring_mixing,
    trimmed_mean,
    weighted_mean,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    in_units,
    keys,
    mapped,
    reals,
    rows,
    simplex,
)

CLIENTS, FAULTY = 7, 1
# Integers have exact distances and medians: what ties does so in every precision.
WHOLE = st.integers(-9, 9).map(float)
UNITS = {"base": 2, "low": -30, "high": 30}
KEY = jax.random.key(0)
PRIVATE = {"clip_norm": 1.0, "noise_multiplier": 1.0}


def stack(matrix):
    """A tree of two leaves from the three coordinates of every client."""
    return {"b": matrix[..., 0], "w": matrix[..., 1:]}


def matrix_of(tree):
    return np.concatenate([tree["b"][..., None], tree["w"]], axis=-1)


@st.composite
def updates_with_faults(draw, elements=WHOLE):
    """Seven clients, in each row up to one of them with something that is not finite."""
    matrix = draw(rows(CLIENTS, 3, elements=elements))
    for row in range(DRAWS):
        client = draw(st.integers(0, 2 * CLIENTS))
        if client < CLIENTS:
            matrix[row, client, draw(st.integers(0, 2))] = draw(st.sampled_from([np.nan, np.inf]))
    return stack(matrix)


UPDATES = in_units(updates_with_faults(), **UNITS)


def valid_of(matrix):
    return np.isfinite(matrix).all(axis=-1)


def aggregate(matrix, rule):
    valid = valid_of(matrix)
    return Aggregate(stack(rule(matrix[valid], FAULTY - (~valid).sum())), valid)


def mean_by_numpy(updates, weights):
    matrix = matrix_of(updates)
    valid = valid_of(matrix)
    return Aggregate(stack(np.average(matrix[valid], axis=0, weights=weights[valid])), valid)


def median_by_numpy(updates):
    return aggregate(matrix_of(updates), lambda valid, _: np.median(valid, axis=0))


def trimmed_by_numpy(updates, *, num_byzantine):
    def rule(valid, bad):
        return np.sort(valid, axis=0)[bad : len(valid) - bad].mean(axis=0)

    return aggregate(matrix_of(updates), rule)


def krum_scores(clients, bad):
    squared = ((clients[:, None] - clients[None, :]) ** 2).sum(axis=-1)
    neighbours = max(len(clients) - bad - 2, 1)
    others = [np.sort(np.delete(squared[i], i))[:neighbours] for i in range(len(clients))]
    return np.asarray([near.sum() for near in others])


def krum_by_numpy(updates, *, num_byzantine, selected=1):
    def rule(valid, bad):
        best = np.argsort(krum_scores(valid, bad), kind="stable")[:selected]
        return valid[best].mean(axis=0)

    return aggregate(matrix_of(updates), rule)


def bulyan_by_numpy(updates, *, num_byzantine):
    def rule(valid, bad):
        left, chosen = list(range(len(valid))), []
        while len(chosen) < len(valid) - 2 * bad:
            scores = krum_scores(valid[left], bad) if len(left) > 1 else np.zeros(1)
            chosen.append(left.pop(int(np.argmin(scores))))
        picked = valid[sorted(chosen)]
        near = np.argsort(np.abs(picked - np.median(picked, axis=0)), axis=0, kind="stable")
        beta = len(chosen) - 2 * bad
        return np.take_along_axis(picked, near[:beta], axis=0).mean(axis=0)

    return aggregate(matrix_of(updates), rule)


def geometric_by_search(updates):
    def rule(valid, _):
        def cost(point):
            return np.sum(np.linalg.norm(valid - point, axis=1))

        size = np.abs(valid).max() or 1.0  # The search stops at absolute steps.
        start = np.median(valid, axis=0) / size
        result = optimize.minimize(
            lambda point: cost(size * point) / size,
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-6},
        ).x
        return min([size * result, *valid], key=cost)

    return aggregate(matrix_of(updates), rule)


def no_point_is_nearer(updates):
    """The sum of distances is no larger than at SciPy's minimum, whichever minimum that is."""
    ours = mapped(geometric_median, updates)
    for row in range(DRAWS):
        matrix = matrix_of(updates)[row].astype(np.float64)
        valid = matrix[valid_of(matrix)]

        def cost(point, valid=valid):
            return np.sum(np.linalg.norm(valid - point, axis=1))

        tree = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), ours.value)
        theirs = matrix_of(geometric_by_search(stack(matrix)).value)
        room = 1e-4 * np.abs(valid).max(initial=0)
        assert cost(matrix_of(tree)) <= cost(theirs) * (1 + 1e-4) + room


def clipping_by_loop(updates, centre, *, radius, iterations):
    matrix, middle = matrix_of(updates), matrix_of(centre)
    valid = valid_of(matrix)
    for _ in range(iterations):
        pulls = matrix[valid] - middle
        lengths = np.linalg.norm(pulls, axis=1)
        cut = np.minimum(1, radius / np.where(lengths > 0, lengths, 1))
        middle = middle + (cut[:, None] * pulls).mean(axis=0)
    return Aggregate(stack(middle), valid)


def no_step_is_longer_than_the_radius(updates, centre, *, radius, iterations):
    moved = mapped(centred_clipping, updates, centre, radius=radius, iterations=1)
    step = matrix_of(jax.tree.map(np.asarray, moved.value)) - matrix_of(centre)
    room = 1e-6 * np.abs(matrix_of(centre)).max(axis=1)
    assert np.all(np.linalg.norm(step, axis=1) <= radius * (1 + 1e-4) + room)


def clipped_by_norm(update, *, clip_norm):
    vector = matrix_of(update)
    return stack(vector * min(1, clip_norm / max(np.linalg.norm(vector), 1e-30)))


def clipping_twice_changes_nothing(update, *, clip_norm):
    once = mapped(clip_update, update, clip_norm=clip_norm)
    assert_close(mapped(clip_update, once, clip_norm=clip_norm), once, atol=1e-5)


def private_without_noise(updates, key, *, clip_norm, noise_multiplier):
    matrix = matrix_of(updates)
    valid = valid_of(matrix)
    cut = [matrix_of(clipped_by_norm(stack(one), clip_norm=clip_norm)) for one in matrix[valid]]
    return Aggregate(stack(np.sum(cut, axis=0) / CLIENTS), valid)


def noise_grows_with_its_multiplier(updates, key, *, clip_norm, noise_multiplier):
    plain, single, double = (
        matrix_of(
            mapped(private_mean, updates, key, clip_norm=clip_norm, noise_multiplier=level).value
        )
        for level in (0.0, 0.5, 1.0)
    )
    assert_close(double - plain, 2 * (single - plain), atol=1e-4)


def gossip_by_numpy(updates, mixing):
    matrix = matrix_of(updates)
    valid = valid_of(matrix)
    mixed = matrix.copy()
    for i in range(CLIENTS):
        heard = np.flatnonzero(valid)
        total = np.sum(mixing[i, heard][:, None] * matrix[heard], axis=0)
        silent = 1 - mixing[i, heard].sum()
        mixed[i] = total + silent * matrix[i] if valid[i] else total / (1 - silent)
    return Aggregate(stack(mixed), valid)


def the_mean_of_the_usable_stays(updates, mixing):
    mixed = mapped(gossip_step, updates, mixing)
    for row in range(DRAWS):
        before, after = matrix_of(updates)[row], matrix_of(mixed.value)[row]
        valid = valid_of(before)
        size = float(np.abs(before[valid]).max(initial=0))
        assert_close(after[valid].mean(axis=0), before[valid].mean(axis=0), scale=size)


def rate_by_eigenvalues(mixing):
    return np.sort(np.abs(np.linalg.eigvalsh(mixing)))[-2]


def lazier_is_slower(mixing):
    lazy = (mixing + np.eye(CLIENTS, dtype=np.float32)[None]) / 2
    slower = np.asarray(mapped(mixing_rate, lazy))
    eigenvalues = np.linalg.eigvalsh(mixing.astype(np.float64))[:, -2]
    assert_close(slower, (1 + eigenvalues) / 2, atol=1e-5)


def moves_with_the_clients(function):
    def law(updates, *rest, **options):
        sizes = np.abs(np.nan_to_num(matrix_of(updates), posinf=0)).max(axis=(1, 2))

        def move(leaf):
            return np.asarray(leaf) + sizes.reshape(-1, *[1] * (np.ndim(leaf) - 1))

        plain = mapped(function, updates, *rest, **options)
        other = mapped(function, jax.tree.map(move, updates), *rest, **options)
        expected = jax.tree.map(move, plain.value)
        assert_close(other.value, expected, atol=1e-5)
        np.testing.assert_array_equal(other.usable, plain.usable)

    return law


def ignores_the_order_of_the_clients(function):
    def law(updates, **options):
        backwards = jax.tree.map(lambda leaf: leaf[:, ::-1], updates)
        plain = mapped(function, updates, **options)
        assert_close(mapped(function, backwards, **options).value, plain.value, atol=1e-5)

    return law


def refusals(least, *rest, **options):
    few = jnp.ones((least - 1, 2))
    bad = [
        Refusal("no array", ((), *rest), options),
        Refusal("along its first axis", ((jnp.ones(least), jnp.ones(least + 1)), *rest), options),
        Refusal("along its first axis", (jnp.ones(()), *rest), options),
        Refusal("floating point", (jnp.ones(least, int), *rest), options),
        Refusal(f"{least} clients or more", (few, *rest), options),
    ]
    if "num_byzantine" in options:
        bad.append(Refusal("num_byzantine", (jnp.ones(9), *rest), {**options, "num_byzantine": -1}))
    return bad


@st.composite
def mixings(draw):
    """Metropolis matrices of a ring and some chords."""
    matrices = []
    for _ in range(DRAWS):
        links = np.asarray(ring_mixing(CLIENTS)) > 0
        chords = draw(st.lists(st.tuples(*[st.integers(0, CLIENTS - 1)] * 2), max_size=3))
        for i, j in chords:
            links[i, j] = links[j, i] = True
        matrices.append(np.asarray(metropolis_mixing(links)))
    return np.stack(matrices)


WEIGHTS = simplex(CLIENTS)
SAME = stack(np.full((CLIENTS, 3), 2.0))
NOTHING = stack(np.zeros((CLIENTS, 3)))
CENTRE = rows(3, elements=WHOLE).map(stack)

ROWS = [
    Row(
        weighted_mean,
        sample=st.tuples(in_units(updates_with_faults(reals())), in_units(WEIGHTS)),
        oracle=mean_by_numpy,
        laws=[moves_with_the_clients(weighted_mean)],
        edges=[Edge((SAME, np.ones(CLIENTS)))],
        refuses=[
            *refusals(1, None),
            Refusal("weights", (jnp.ones(3), jnp.ones(2))),
            Refusal("not negative", (jnp.ones(2), jnp.array([1.0, -1.0]))),
        ],
    ),
    Row(
        coordinate_median,
        sample=st.tuples(UPDATES),
        oracle=median_by_numpy,
        laws=[
            moves_with_the_clients(coordinate_median),
            ignores_the_order_of_the_clients(coordinate_median),
        ],
        edges=[Edge((SAME,))],
        refuses=refusals(1),
    ),
    Row(
        trimmed_mean,
        sample=st.tuples(UPDATES),
        options={"num_byzantine": FAULTY},
        oracle=trimmed_by_numpy,
        laws=[moves_with_the_clients(trimmed_mean), ignores_the_order_of_the_clients(trimmed_mean)],
        edges=[Edge((SAME,), {"num_byzantine": FAULTY})],
        refuses=refusals(3, num_byzantine=1),
    ),
    Row(
        krum,
        sample=st.tuples(UPDATES),
        options={"num_byzantine": FAULTY},
        oracle=krum_by_numpy,
        laws=[moves_with_the_clients(krum)],
        edges=[Edge((SAME,), {"num_byzantine": FAULTY})],
        refuses=refusals(5, num_byzantine=1),
        differentiable=False,
    ),
    Row(
        multi_krum,
        sample=st.tuples(UPDATES),
        options={"num_byzantine": FAULTY, "selected": 4},
        oracle=krum_by_numpy,
        laws=[moves_with_the_clients(multi_krum)],
        refuses=[
            *refusals(5, num_byzantine=1, selected=1),
            Refusal("selected", (jnp.ones(5),), {"num_byzantine": 1, "selected": 0}),
            Refusal("selected", (jnp.ones(5),), {"num_byzantine": 1, "selected": 6}),
        ],
        differentiable=False,
    ),
    Row(
        bulyan,
        sample=st.tuples(UPDATES),
        options={"num_byzantine": FAULTY},
        oracle=bulyan_by_numpy,
        laws=[moves_with_the_clients(bulyan)],
        edges=[Edge((SAME,), {"num_byzantine": FAULTY})],
        refuses=refusals(7, num_byzantine=1),
        differentiable=False,
        # Its mean of integers that nearly cancel.
        atol=1e-5,
    ),
    Row(
        geometric_median,
        sample=st.tuples(UPDATES),
        oracle=None,
        laws=[no_point_is_nearer],
        edges=[Edge((SAME,))],
        refuses=[*refusals(1), Refusal("iterations", (jnp.ones(3),), {"iterations": 0})],
        differentiable=False,
        exempt={"oracle": "a minimum may be flat: the law compares what is minimised"},
        # Steps along a flat sum of distances; the law compares what is minimised.
        rtol=1e-3,
        atol=1e-3,
    ),
    Row(
        centred_clipping,
        sample=st.tuples(updates_with_faults(), CENTRE),
        options=st.one_of(st.just(3.0), decades().map(lambda radius: abs(radius) or 1.0)).map(
            lambda radius: {"radius": radius, "iterations": 2}
        ),
        oracle=clipping_by_loop,
        laws=[no_step_is_longer_than_the_radius],
        edges=[Edge((SAME, stack(np.full(3, 2.0))), {"radius": 3.0, "iterations": 2})],
        refuses=[
            *refusals(1, jnp.ones(2), radius=1.0),
            Refusal("structure", (jnp.ones(3), {"a": jnp.ones(())}), {"radius": 1.0}),
            Refusal("one shape", (jnp.ones(3), jnp.ones(2)), {"radius": 1.0}),
            Refusal("radius", (jnp.ones(3), jnp.ones(())), {"radius": 0.0}),
            Refusal("iterations", (jnp.ones(3), jnp.ones(())), {"radius": 1.0, "iterations": 0}),
        ],
        # Each iteration rounds what the one before left.
        rtol=1e-4,
        atol=1e-5,
    ),
    Row(
        clip_update,
        sample=in_units(st.tuples(rows(3).map(stack))),
        options=st.one_of(reals(0.5, 100), decades().map(lambda norm: abs(norm) or 1.0)).map(
            lambda norm: {"clip_norm": norm}
        ),
        oracle=clipped_by_norm,
        laws=[clipping_twice_changes_nothing],
        edges=[
            Edge((stack(np.zeros(3)),), {"clip_norm": 1.0}),
            Edge((stack(np.full(3, 1e30)),), {"clip_norm": 1.0}),
        ],
        refuses=[
            Refusal("no array", ((),), {"clip_norm": 1.0}),
            Refusal("floating point", (jnp.ones(2, int),), {"clip_norm": 1.0}),
            Refusal("clip_norm", (jnp.ones(2),), {"clip_norm": 0.0}),
        ],
    ),
    Row(
        private_mean,
        sample=st.tuples(UPDATES, keys()),
        options={"clip_norm": 4.0, "noise_multiplier": 0.0},
        oracle=private_without_noise,
        laws=[noise_grows_with_its_multiplier],
        edges=[
            Edge((NOTHING, np.zeros(2, np.uint32)), {"clip_norm": 4.0, "noise_multiplier": 0.0}),
            Edge((SAME, np.zeros(2, np.uint32)), {"clip_norm": 12**0.5, "noise_multiplier": 0.0}),
        ],
        refuses=[
            *refusals(1, KEY, **PRIVATE),
            Refusal("clip_norm", (jnp.ones(2), KEY), {"clip_norm": -1.0, "noise_multiplier": 1.0}),
            Refusal(
                "noise_multiplier", (jnp.ones(2), KEY), {"clip_norm": 1.0, "noise_multiplier": -1.0}
            ),
        ],
    ),
    Row(
        gossip_step,
        sample=st.tuples(UPDATES, mixings()),
        oracle=gossip_by_numpy,
        laws=[the_mean_of_the_usable_stays],
        edges=[
            Edge((SAME, np.eye(CLIENTS))),
            Edge((NOTHING, np.full((CLIENTS,) * 2, 1 / CLIENTS))),
        ],
        refuses=[
            *refusals(1, jnp.eye(1)),
            Refusal("of the 3 clients", (jnp.ones(3), jnp.eye(2))),
            Refusal("square", (jnp.ones(3), jnp.ones((3, 2)))),
            Refusal("(client, client)", (jnp.ones(3), jnp.ones(3))),
            Refusal("sum to one", (jnp.ones(2), jnp.asarray([[1.0, 0.0], [1.0, 0.0]]))),
        ],
        dtypes=("float32", "float64"),
    ),
    Row(
        mixing_rate,
        sample=st.tuples(mixings()),
        oracle=rate_by_eigenvalues,
        laws=[lazier_is_slower],
        refuses=[
            Refusal("square", (jnp.ones((3, 2)),)),
            Refusal("sum to one", (jnp.full((2, 2), 0.6),)),
            Refusal("float32 or float64", (jnp.eye(2, dtype=jnp.bfloat16),)),
        ],
        differentiable=False,
        dtypes=("float32", "float64"),
    ),
]
