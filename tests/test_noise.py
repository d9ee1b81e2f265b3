"""Samplers against their exact distributions, and the generator against plain integers."""

import hashlib
import os
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lumberjack import noise

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


@pytest.fixture(autouse=True)
def high_precision():
    with mpmath.workprec(200):
        yield


def uniform_bits(seed, n):
    """Bits that owe nothing to the generator under test."""
    return np.random.default_rng(seed).integers(0, MASK, size=n, dtype=np.uint64, endpoint=True)


def upper_tail(x):
    return mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2


def assert_fits(observed, probabilities):
    """Chi-square test of counts, rare cells pooled; the seeds are fixed, so it cannot flicker."""
    observed, expected = np.asarray(observed, float), np.asarray(probabilities, float)
    assert expected.sum() == pytest.approx(1, abs=1e-9)
    expected = expected * observed.sum()
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    keep = expected > 0
    assert observed[~keep].sum() == 0
    assert stats.chisquare(observed[keep], expected[keep], sum_check=False).pvalue > 1e-3


# --- bit sources ---------------------------------------------------------------------------------


def mix64_oracle(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def seeded_oracle(key, purpose, path, i):
    digest = hashlib.blake2b(
        purpose.encode(),
        key=key.to_bytes(16, "little"),
        digest_size=8,
        person=b"lumberjack noise",
    ).digest()
    start = mix64_oracle(int.from_bytes(digest, "little") + mix64_oracle(path) & MASK)
    return mix64_oracle(start + (i + 1) * GOLDEN & MASK)


def test_mix64_is_splitmix64():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = [(1234567 + (i + 1) * GOLDEN) & MASK for i in range(5)]
    assert noise.mix64(states).tolist() == published
    assert [mix64_oracle(z) for z in states] == published


def test_mix64_leaves_its_argument_alone():
    values = np.arange(3, dtype=np.uint64)
    noise.mix64(values)
    assert values.tolist() == [0, 1, 2]


@given(
    key=st.integers(0, 2**128 - 1),
    purpose=st.text(max_size=20),
    paths=st.lists(st.integers(0, MASK), max_size=5),
    n=st.integers(0, 4),
)
@settings(max_examples=200, deadline=None)
def test_seeded_bits_are_the_documented_function(key, purpose, paths, n):
    drawn = noise.SeededBits(key).draw(purpose, paths, n)
    assert drawn.dtype == np.uint64
    assert drawn.shape == (len(paths), n)
    assert drawn.tolist() == [[seeded_oracle(key, purpose, p, i) for i in range(n)] for p in paths]


def test_seeded_bits_known_answers():
    """Frozen values: a changed generator changes every seeded forest."""
    drawn = noise.SeededBits(2**100 + 17).draw("test", [0, 1, MASK], 2)
    assert drawn.tolist() == [
        [48246650660890924, 14630132778422738450],
        [734002207437354624, 14324924402589294216],
        [13441469191370095873, 16411520112937349973],
    ]


def test_seeded_bits_do_not_depend_on_the_company():
    bits = noise.SeededBits(3)
    paths = np.arange(50, dtype=np.uint64) * np.uint64(GOLDEN)
    whole = bits.draw("alarm", paths, 7)
    assert np.array_equal(bits.draw("alarm", paths[::-1], 7)[::-1], whole)
    assert np.array_equal(bits.draw("alarm", paths[10:12], 3), whole[10:12, :3])


def test_seeded_bits_are_separated():
    paths = np.arange(2000, dtype=np.uint64)
    draws = [
        noise.SeededBits(key).draw(purpose, paths, 3)
        for key in (0, 1, 2**64)
        for purpose in ("test", "alarm", "thin", "leaves")
    ]
    values = np.concatenate([d.ravel() for d in draws])
    assert len(np.unique(values)) == len(values)


@pytest.mark.parametrize("source", [noise.SeededBits(11), noise.SystemBits()])
def test_bits_are_uniform(source):
    drawn = source.draw("test", np.arange(20_000, dtype=np.uint64), 4)
    ones = [int(((drawn >> np.uint64(b)) & np.uint64(1)).sum()) for b in range(64)]
    deviation = (np.array(ones) - drawn.size / 2) / np.sqrt(drawn.size / 4)
    assert np.abs(deviation).max() < 8  # unseeded bits fail this once in 10^13 runs
    correlation = np.corrcoef(drawn.astype(float).T)
    assert np.abs(correlation - np.eye(4)).max() < 8 / np.sqrt(len(drawn))


def test_seeded_bits_are_uniform_in_cells():
    drawn = noise.SeededBits(12).draw("test", np.arange(100_000, dtype=np.uint64), 2)
    for cells in (drawn >> np.uint64(56), drawn & np.uint64(255)):
        assert_fits(np.bincount(cells.ravel().astype(int), minlength=256), np.full(256, 1 / 256))


@pytest.mark.parametrize("key", [-1, 2**128])
def test_seeded_bits_refuse_keys_out_of_range(key):
    with pytest.raises(ValueError, match="key"):
        noise.SeededBits(key)


def test_system_bits_are_fresh_and_hold_nothing():
    bits = noise.SystemBits()
    drawn = np.concatenate([bits.draw("test", [1, 2], 3).ravel() for _ in range(20)])
    assert drawn.dtype == np.uint64
    assert len(np.unique(drawn)) == 120
    assert vars(bits) == {}
    assert bits.draw("test", [], 3).shape == (0, 3)
    assert bits.draw("test", [1, 2], 0).shape == (2, 0)


def test_system_bits_read_the_operating_system_once_a_call(monkeypatch):
    sizes = []

    def urandom(size):
        sizes.append(size)
        return bytes(range(size))

    monkeypatch.setattr(os, "urandom", urandom)
    drawn = noise.SystemBits().draw("test", [1, 2], 2)
    assert sizes == [32]
    assert drawn.tobytes() == bytes(range(32))
    drawn[0, 0] = 1  # the caller owns it


FORK = """
import os
from lumberjack.noise import SystemBits
bits = SystemBits()
bits.draw("test", [1], 100)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, bits.draw("test", [1], 8).tobytes())
    os._exit(0)
ours = bits.draw("test", [1], 8).tobytes()
theirs = os.read(read, 64)
os.waitpid(child, 0)
words = {b[i : i + 8] for b in (ours, theirs) for i in range(0, 64, 8)}
print(len(words))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_system_bits_are_not_shared_after_a_fork():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["16"]


# --- keys ----------------------------------------------------------------------------------------


def noise_of(random_state):
    return noise.derive_keys(random_state)[1].draw("test", [1], 4).tolist()


def test_derive_keys_without_seed():
    (seed, bits), (other, _) = noise.derive_keys(None), noise.derive_keys(None)
    assert isinstance(bits, noise.SystemBits)
    assert not bits.seeded
    assert 0 <= seed < 2**64
    assert seed != other


@pytest.mark.parametrize("seed", [0, 1, 255, 256, 2**32, 2**200, np.int64(5), np.uint8(6)])
def test_derive_keys_from_integers(seed):
    split_seed, bits = noise.derive_keys(seed)
    assert isinstance(bits, noise.SeededBits)
    assert bits.seeded
    assert isinstance(split_seed, int)
    assert 0 <= split_seed < 2**64
    assert noise.derive_keys(int(seed))[0] == split_seed
    assert noise_of(seed) == noise_of(int(seed))


def test_derive_keys_separates_seeds_and_uses():
    seeds = [0, 1, 2, 256, 65536, 2**64, 2**128]
    split_seeds = [noise.derive_keys(s)[0] for s in seeds]
    keys = [noise.derive_keys(s)[1]._key for s in seeds]
    halves = [half for key in keys for half in (key & MASK, key >> 64)]
    assert len({*split_seeds, *halves}) == 3 * len(seeds)


def test_derive_keys_from_a_random_state():
    first, again = np.random.RandomState(3), np.random.RandomState(3)
    assert noise.derive_keys(first)[0] == noise.derive_keys(again)[0]
    assert noise_of(first) == noise_of(again)
    assert noise_of(first) != noise_of(np.random.RandomState(3))  # the state has moved on
    assert noise.derive_keys(np.random.RandomState(3))[0] != noise.derive_keys(3)[0]


@pytest.mark.parametrize(
    "random_state", [-1, 1.0, "1", True, np.random.default_rng(0), np.random, [1]]
)
def test_derive_keys_refuses_anything_else(random_state):
    with pytest.raises(ValueError, match="random_state must be None, a non-negative integer"):
        noise.derive_keys(random_state)


# --- the table of tests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigma", "slack", "g", "extra"),
    [
        (81.14, 469.6, 1, 0.0),
        (12.24, 70.8, 1, 0.0),
        (155.18, 898.1, 7, 0.0),
        (0.5, 3.3, 1, 0.0),
        (82.9, 493.9, 2, 250.75),
        (1.0, 0.0, 1, 0.0),
        (3000.0, 60.0, 1, 0.0),
        (0.01, 0.05, 1, 0.95),
    ],
)
def test_table_matches_phi(sigma, slack, g, extra):
    threshold = g + slack + extra
    thresholds, probabilities = noise.test_table(sigma, threshold, slack, g, 10**9)
    assert thresholds.dtype == np.uint64
    assert probabilities.dtype == np.float64
    assert len(thresholds) == len(probabilities)
    cut = max(0, int(mpmath.floor(mpmath.mpf(threshold) - g - mpmath.mpf(slack))))
    assert not thresholds[: cut + 1].any()
    assert not probabilities[: cut + 1].any()
    for c in np.unique(np.linspace(cut + 1, len(thresholds) - 1, 600).astype(int)):
        z = (mpmath.mpf(int(c)) - mpmath.mpf(threshold)) / mpmath.mpf(sigma)
        smaller, got = upper_tail(abs(z)), int(thresholds[c])
        ours = mpmath.mpf(got if z < 0 else 2**64 - got) / 2**64
        assert abs(ours - smaller) <= mpmath.mpf(2) ** -40 * smaller + mpmath.mpf(2) ** -64
        if z < 0 and smaller > mpmath.mpf(2) ** -64:
            assert abs(mpmath.mpf(float(probabilities[c])) / smaller - 1) < mpmath.mpf(2) ** -40
        elif z >= 0:
            assert abs(float(probabilities[c]) - float(1 - smaller)) <= 2**-52


@given(
    sigma=st.floats(1e-3, 1e3),
    slack=st.floats(0, 1e4),
    g=st.integers(1, 100),
    extra=st.floats(0, 1e3),
    max_count=st.integers(0, 10**4),
)
@settings(max_examples=200, deadline=None)
def test_table_invariants(sigma, slack, g, extra, max_count):
    threshold = g + slack + extra
    thresholds, probabilities = noise.test_table(sigma, threshold, slack, g, max_count)
    assert thresholds[0] == 0
    assert probabilities[0] == 0
    assert (thresholds[1:] >= thresholds[:-1]).all()
    assert (np.diff(probabilities) >= 0).all()
    assert probabilities[-1] < 1
    assert len(thresholds) <= max_count + 1
    if len(thresholds) <= max_count:  # cut short only where nothing changes any more
        assert thresholds[-1] == MASK
        assert probabilities[-1] == np.nextafter(1, 0)
    longer = noise.test_table(sigma, threshold, slack, g, max_count + 10)
    assert np.array_equal(longer[0][: len(thresholds)], thresholds)


def test_empty_nodes_are_light_even_if_the_threshold_was_rounded_down():
    slack = next(s for s in (k / 10 for k in range(1, 10_000)) if (1 + s) - 1 < s)
    thresholds, probabilities = noise.test_table(0.1, 1 + slack, slack, 1, 100)
    assert thresholds[0] == 0
    assert probabilities[0] == 0
    thresholds, _ = noise.test_table(1e3, 1 + slack, slack, 1, 100)
    assert thresholds[0] == 0
    assert thresholds[1] > 0


def test_table_at_the_threshold_is_a_fair_coin():
    thresholds, probabilities = noise.test_table(7.0, 41.0, 40.0, 1, 100)
    assert thresholds[41] == 2**63
    assert probabilities[41] == 0.5


@pytest.mark.parametrize("threshold", [1, 1.5, 20, 19.0001])
def test_table_without_noise(threshold):
    thresholds, probabilities = noise.test_table(0.0, threshold, 0.0, 1, 100)
    heavy = np.arange(len(thresholds)) >= threshold
    assert heavy[-1]
    assert np.array_equal(thresholds, np.where(heavy, np.uint64(MASK), np.uint64(0)))
    assert np.array_equal(probabilities, heavy.astype(float))


def test_table_without_noise_ignores_the_unit():
    _, probabilities = noise.test_table(0.0, 2, 0.0, 5, 100)
    assert probabilities.tolist() == [0, 0, 1]


def test_table_with_hardly_any_noise():
    _, probabilities = noise.test_table(1e-300, 10.5, 1.0, 1, 100)
    assert np.array_equal(probabilities > 0.5, np.arange(len(probabilities)) >= 10.5)
    assert probabilities[-1] < 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": np.nan}, "sigma"),
        ({"sigma": np.inf}, "sigma"),
        ({"slack": -0.1}, "slack"),
        ({"slack": np.nan}, "slack"),
        ({"records_per_unit": 0}, "records_per_unit"),
        ({"threshold": 4.9}, "threshold"),
        ({"threshold": np.inf}, "threshold"),
        ({"sigma": 0.0, "threshold": 0.0}, "threshold"),
        ({"max_count": -1}, "max_count"),
    ],
)
def test_table_refuses_parameters_out_of_range(change, name):
    good = {"sigma": 1.0, "threshold": 5.0, "slack": 4.0, "records_per_unit": 1}
    good["max_count"] = 10
    noise.test_table(**good)
    with pytest.raises(ValueError, match=f"^{name} must"):
        noise.test_table(**(good | change))


# --- rounded Gaussian ----------------------------------------------------------------------------


def rounded_gaussian_probabilities(sigma, values):
    """P(round(N(0, sigma^2)) = v), from the tail on v's side."""
    low = (np.abs(values) - 0.5) / sigma
    return np.where(
        values == 0,
        1 - 2 * stats.norm.sf(0.5 / sigma),
        stats.norm.sf(low) - stats.norm.sf(low + 1 / sigma),
    )


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 3.7, 47.3, 400.0])
def test_rounded_gaussian_has_its_distribution(sigma):
    drawn = noise.rounded_gaussian(uniform_bits(1, 400_000), sigma)
    reach = int(10 * sigma) + 2
    assert np.abs(drawn).max() <= reach
    observed = np.bincount(drawn + reach, minlength=2 * reach + 1)
    assert_fits(observed, rounded_gaussian_probabilities(sigma, np.arange(-reach, reach + 1)))


def test_rounded_gaussian_with_large_sigma():
    sigma = 2.0**30
    drawn = noise.rounded_gaussian(uniform_bits(2, 200_000), sigma)
    assert stats.kstest(drawn / sigma, "norm").pvalue > 1e-3
    assert len(np.unique(drawn % 2)) == 2
    assert abs((drawn % 2).mean() - 0.5) < 5 / np.sqrt(4 * len(drawn))


@pytest.mark.parametrize("n_bits", [24, 40, 55])
def test_rounded_gaussian_far_in_the_tail(n_bits):
    """Given that the tail beyond N is below 2^(n_bits - 64)."""
    sigma = 47.3
    tails = uniform_bits(3, 200_000) >> np.uint64(64 - n_bits)
    drawn = noise.rounded_gaussian(tails, sigma)
    inside = mpmath.mpf(2) ** (n_bits - 64)
    values = np.arange(drawn.min(), int(9.3 * sigma) + 1)
    edges = [min(upper_tail((v - 0.5) / mpmath.mpf(sigma)) / inside, 1) for v in values]
    probabilities = np.array([float(a - b) for a, b in zip(edges, [*edges[1:], 0], strict=True)])
    observed = np.bincount(drawn - values[0], minlength=len(values))
    assert_fits(observed, probabilities)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 47.3, 98.11, 4096.0, 2.0**20 + 0.1, 2.0**32])
def test_rounded_gaussian_is_the_exact_inverse(sigma):
    """The value changes exactly where (t + 1/2) / 2^64 crosses Phi(-(v + 1/2) / sigma)."""
    values = np.unique(np.geomspace(1, 9 * sigma, 60).astype(int)) if sigma > 1 else [0, 1, 2]
    for v in map(int, values):
        boundary = upper_tail((mpmath.mpf(v) + 0.5) / mpmath.mpf(sigma)) * 2**64 - 0.5
        last_beyond = int(mpmath.ceil(boundary)) - 1  # the largest t below the boundary
        if last_beyond < 0:
            continue
        t = np.array([last_beyond, last_beyond + 1], dtype=np.uint64)
        drawn = noise.rounded_gaussian(t, sigma)
        assert drawn[0] >= v + 1
        assert drawn[1] <= v
        assert noise.rounded_gaussian(t | np.uint64(2**63), sigma).tolist() == (-drawn).tolist()


def test_rounded_gaussian_quantiles_of_extreme_bits():
    for exponent in (0, 1, 2, 5, 10, 20, 30, 45, 62):
        t = 2**exponent - 1
        p = (mpmath.mpf(t) + 0.5) / 2**64
        z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p)
        for sigma in (10.0, 1000.0, 2.0**31):
            drawn = noise.rounded_gaussian(np.array([t], dtype=np.uint64), sigma)
            assert drawn.tolist() == [int(mpmath.nint(mpmath.mpf(sigma) * z))]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.floats(0, 2.0**32))
@settings(max_examples=200, deadline=None)
def test_rounded_gaussian_is_symmetric(tails, sigma):
    tails = np.array(tails, dtype=np.uint64)
    positive = noise.rounded_gaussian(tails, sigma)
    assert positive.dtype == np.int64
    assert (positive >= 0).all()
    assert np.array_equal(noise.rounded_gaussian(tails | np.uint64(2**63), sigma), -positive)


def test_rounded_gaussian_keeps_shapes_and_knows_zero():
    bits = uniform_bits(4, 12).reshape(3, 4)
    assert noise.rounded_gaussian(bits, 5.0).shape == (3, 4)
    assert not noise.rounded_gaussian(bits, 0.0).any()
    assert noise.rounded_gaussian(bits[:0], 5.0).shape == (0, 4)
    assert noise.rounded_gaussian(bits[:, ::2], 5.0).tolist() == (
        noise.rounded_gaussian(bits, 5.0)[:, ::2].tolist()
    )


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, 2.0**33])
def test_rounded_gaussian_refuses_sigma_out_of_range(sigma):
    with pytest.raises(ValueError, match="sigma"):
        noise.rounded_gaussian(np.zeros(1, dtype=np.uint64), sigma)


@pytest.mark.parametrize("bits", [[1, 2], np.zeros(2), np.zeros(2, dtype=np.int64)])
def test_samplers_take_nothing_but_bits(bits):
    with pytest.raises(TypeError, match="bits must be an array of uint64"):
        noise.rounded_gaussian(bits, 1.0)
    with pytest.raises(TypeError, match="bits must be an array of uint64"):
        noise.exponential_choice([[1, 2], [3, 4]], 1.0, bits)


def test_upper_tail_in_decimal_arithmetic():
    with noise.decimal.localcontext(noise.decimal.Context(prec=80)):
        for x in ("0", "1e-20", "0.1", "1", "3.5", "6.123456789", "9.2", "10"):
            ours = mpmath.mpf(str(noise._upper_tail(noise.decimal.Decimal(x))))
            assert abs(ours / upper_tail(x) - 1) < mpmath.mpf(10) ** -30


# --- exponential mechanism -----------------------------------------------------------------------


def exponential_probabilities(counts, epsilon):
    weights = [mpmath.exp(mpmath.mpf(epsilon) * (c - max(counts))) for c in counts]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize(
    ("counts", "epsilon"),
    [
        ([3, 0], 0.5),
        ([0, 3], 0.5),
        ([0, 0, 0], 2.0),
        ([5, 7, 6, 0, 7], 0.3),
        ([1000, 990, 985, 1001], 0.1),
        ([4, 9, 1], 0.0),
    ],
)
def test_exponential_choice_has_its_distribution(counts, epsilon):
    n = 200_000
    chosen = noise.exponential_choice(np.tile(counts, (n, 1)), epsilon, uniform_bits(5, n))
    assert chosen.dtype == np.int64
    expected = [float(p) for p in exponential_probabilities(counts, epsilon)]
    assert_fits(np.bincount(chosen, minlength=len(counts)), expected)


def masses(counts, epsilon):
    """How many of the 2^64 bit patterns choose each class, found by bisection."""

    def choice(b):
        return int(noise.exponential_choice([counts], epsilon, np.array([b], dtype=np.uint64))[0])

    found, start = [0] * len(counts), 0
    while start < 2**64:
        low, high, current = start, 2**64, choice(start)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if choice(middle) == current else (low, middle)
        found[current] += high - start
        start = high
    return found


@pytest.mark.parametrize(
    ("counts", "epsilon"),
    [
        ([3, 0], 0.5),
        ([0, 3], 0.5),
        ([0, 43], 1.0),
        ([43, 0, 40, 30, 20, 42], 1.0),
        ([0, 0, 0], 1.0),
        ([10**9, 10**9 - 3000, 10**9 - 10**7], 0.01),
        ([100, 400, 399], 0.1),
    ],
)
def test_exponential_choice_masses_are_exact(counts, epsilon):
    largest = counts.index(max(counts))
    for c, (mass, p) in enumerate(
        zip(masses(counts, epsilon), exponential_probabilities(counts, epsilon), strict=True)
    ):
        allowed = 1 if c != largest else len(counts) - 1
        assert abs(mass - p * 2**64) <= allowed + mpmath.mpf(2) ** (64 - 40) * p


def test_exponential_choice_reaches_the_far_tail():
    bits = np.array([0, 77, 78, 79, MASK], dtype=np.uint64)
    assert int(mpmath.floor(exponential_probabilities([0, 40], 1)[0] * 2**64)) == 78
    chosen = noise.exponential_choice(np.tile([0, 40], (5, 1)), 1.0, bits)
    assert chosen.tolist() == [0, 0, 1, 1, 1]
    chosen = noise.exponential_choice(np.tile([40, 0], (5, 1)), 1.0, bits)
    assert chosen.tolist() == [1, 1, 0, 0, 0]


def test_exponential_choice_with_extreme_parameters():
    counts = np.array([[2**62, 0, 5], [0, 0, 2**62], [4, 4, 4]])
    bits = np.array([0, 0, MASK], dtype=np.uint64)
    assert noise.exponential_choice(counts, 1e308, bits).tolist() == [0, 2, 0]
    assert noise.exponential_choice(counts, 5e-324, bits).tolist() == [1, 0, 0]


def test_exponential_choice_without_noise_takes_the_first_of_equals():
    counts = [[1, 3, 3], [0, 0, 0], [5, 3, 9]]
    bits = np.array([0, MASK, 1], dtype=np.uint64)
    assert noise.exponential_choice(counts, np.inf, bits).tolist() == [1, 0, 2]


def test_exponential_choice_treats_leaves_alone():
    rng = np.random.default_rng(6)
    counts, bits = rng.integers(0, 20, size=(500, 4)), uniform_bits(7, 500)
    together = noise.exponential_choice(counts, 0.4, bits)
    alone = [
        int(noise.exponential_choice(counts[i : i + 1], 0.4, bits[i : i + 1])[0])
        for i in range(500)
    ]
    assert together.tolist() == alone
    assert noise.exponential_choice(counts[:0], 0.4, bits[:0]).shape == (0,)


def test_exponential_choice_with_many_classes_cannot_overflow():
    bits = np.array([0, 2**63, MASK], dtype=np.uint64)
    counts = np.zeros((3, 5000), dtype=np.int64)
    assert noise.exponential_choice(counts, 1.0, bits).tolist() == [1, 2501, 0]


def test_exponential_choice_with_one_class_has_no_choice():
    assert noise.exponential_choice([[7], [0]], 1.0, uniform_bits(8, 2)).tolist() == [0, 0]


@pytest.mark.parametrize("epsilon", [-0.1, np.nan])
def test_exponential_choice_refuses_epsilon_out_of_range(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        noise.exponential_choice([[1, 2]], epsilon, np.zeros(1, dtype=np.uint64))
