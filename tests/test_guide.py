"""The guide: queries against a naive oracle, sensitivities, and what follows from noisy sums."""

import itertools
import math
import warnings
from types import SimpleNamespace
from unittest import mock

import numpy as np
import oracle
import pytest
from scipy.special import expit, logit

from lumberjack import _guide, _tree, accounting, guide, noise
from lumberjack._guide import Binning

SEEDS = range(12)
LABELS = [(2, 1), (2, 6), (2, 4096), (3, 1), (5, 1)]  # classes, unit of soft labels
THREADS = (1, 2, 5)
QUERIES = ("class_marginals", "residual_sums", "curvature_sums", "score_histogram")


def problem(seed, n_classes=2, unit=1, max_records=60, scale=2.0):
    """Random records of all kinds, also on the edges and far outside, with a random score."""
    rng = np.random.default_rng([seed, n_classes, unit])
    given = oracle.random_problem(rng, max_records)
    X, n_features = given["X"], len(given["X"])
    edges = []
    for f in range(n_features):
        low, high = given["lower"][f], given["upper"][f]
        if given["n_categories"][f]:
            own = np.zeros(0)
        elif rng.random() < 0.5:
            own = guide.bin_edges(low, high)[1:-1]
        else:
            own = np.sort(rng.uniform(low, high, rng.integers(0, 9)))
        own = own.astype(np.float32)
        if len(own):  # exactly on an edge, next to it, and in the end bins
            places = rng.integers(0, X.shape[1], 5)
            edge = rng.choice(own)
            beyond = np.nextafter(edge, np.float32([-np.inf, np.inf]))
            X[f, places] = [edge, *beyond, np.float32(-3e38), np.float32(3e38)]
        edges.append(own)
    binning = Binning(given["n_categories"], edges)
    n_scores = 1 if n_classes == 2 else n_classes
    tables = rng.normal(0, scale, (binning.n_cells, n_scores))
    top = unit + 1 if unit > 1 else n_classes
    return SimpleNamespace(
        X=X,
        y=rng.integers(0, top, X.shape[1]).astype(np.int32),
        n_classes=n_classes,
        unit=unit,
        binning=binning,
        n_categories=given["n_categories"],
        edges=edges,
        domain=SimpleNamespace(**{k: given[k] for k in ("n_categories", "lower", "upper")}),
        tables=tables,
        intercepts=rng.normal(0, scale, n_scores),
        direction=rng.normal(0, scale, tables.shape),
        n_scores=n_scores,
        naive=oracle.NaiveScore(given["n_categories"], edges, tables),
        steps=int(rng.choice([1, 2, 3, 100, 4096])),
    )


def naive(own):
    """The oracle of a problem."""
    return oracle.NaiveScore(own.n_categories, own.edges, own.tables, own.intercepts)


def sums(own, which=slice(None), n_threads=1):
    """The exact answers of all queries for some of the records."""
    X, y = np.ascontiguousarray(own.X[:, which]), np.ascontiguousarray(own.y[which])
    score = own.binning, own.tables, own.intercepts
    return {
        "marginals": _guide.class_marginals(X, y, own.n_classes, own.unit, own.binning, n_threads),
        "residuals": _guide.residual_sums(X, y, own.unit, *score, own.steps, n_threads),
        "curvature": _guide.curvature_sums(X, *score, own.direction, 2.5, own.steps, n_threads),
        "histogram": _guide.score_histogram(X, y, own.unit, *score, 40, 8.0, n_threads),
    }


def scores(own, which=slice(None), n_threads=1, by_rows=False, centres=None):
    """Score columns and probabilities of some of the records, one row a record."""
    X = own.X[:, which]
    n = X.shape[1]
    z = np.empty((n, own.n_scores) if by_rows else (own.n_scores, n), dtype=np.float32)
    p = np.empty((n, own.n_scores))
    _guide.evaluate_score(
        np.ascontiguousarray(X.T if by_rows else X), by_rows, own.binning, own.tables,
        own.intercepts, own.intercepts if centres is None else centres, z, p, n_threads,
    )  # fmt: skip
    return (z if by_rows else z.T), p


# Kernels against the oracle


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
def test_queries_are_what_the_oracle_says(seed, n_classes, unit):
    own = problem(seed, n_classes, unit)
    score, records = naive(own), list(zip(own.X.T, own.y.tolist(), strict=True))
    n_cells = own.binning.n_cells
    expected = {
        "marginals": oracle.sum_up(
            (n_cells, n_classes), [score.marginals(x, y, n_classes, unit) for x, y in records]
        ),
        "residuals": oracle.sum_up(
            (n_cells, own.n_scores), [score.residuals(x, y, unit, own.steps) for x, y in records]
        ),
        "curvature": oracle.sum_up(
            (own.n_scores,), [score.curvature(x, own.direction, 2.5, own.steps) for x, _ in records]
        ),
        "histogram": oracle.sum_up(
            (own.n_scores, 40, 2), [score.histogram(x, y, unit, 40, 8.0) for x, y in records]
        ),
    }
    for n_threads in THREADS:
        found = sums(own, n_threads=n_threads)
        for name, exact in expected.items():
            assert found[name].dtype == np.int64
            assert np.array_equal(found[name], exact), name


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
@pytest.mark.parametrize("by_rows", [False, True])
def test_score_columns_and_probabilities_are_what_the_oracle_says(seed, n_classes, unit, by_rows):
    own = problem(seed, n_classes, unit)
    centres = own.intercepts + 0.25
    expected_z = [np.float32(naive(own).columns(x, centres)) for x in own.X.T]
    expected_p = [naive(own).probabilities(x) for x in own.X.T]
    for n_threads in THREADS:
        z, p = scores(own, n_threads=n_threads, by_rows=by_rows, centres=centres)
        assert np.array_equal(z, expected_z) and np.array_equal(p, expected_p)


def test_cells_by_hand():
    edges = [np.float32([1, 2]), np.zeros(0, np.float32), np.zeros(0, np.float32)]
    binning = Binning(np.int32([0, 3, 0]), edges)
    assert binning.cell_start.tolist() == [0, 4, 8, 10] and binning.n_cells == 10
    X = np.float32([
        [1, np.nextafter(np.float32(1), np.float32(2)), 2, 3e38, -3e38, np.nan],
        [0, 1, 2, -1, np.nan, -1],
        [0, 5, -5, np.nan, 3e38, 0],
    ])  # fmt: skip
    places = [[0, 1, 1, 2, 0, 3], [4, 5, 6, None, 7, None], [8, 8, 8, 9, 8, 8]]
    for i in range(6):
        counts = _guide.class_marginals(
            np.ascontiguousarray(X[:, i : i + 1]), np.int32([1]), 2, 1, binning
        )
        expected = np.zeros((10, 2), dtype=np.int64)
        for own in places:
            if own[i] is not None:
                expected[own[i], 1] += 1
        assert np.array_equal(counts, expected)


def test_an_unknown_category_scores_nothing():
    binning = Binning(np.int32([2]), [np.zeros(0, np.float32)])
    own = SimpleNamespace(
        X=np.float32([[-1, 0, 1, np.nan]]), y=np.int32([1, 1, 0, 0]), n_classes=2, unit=1,
        binning=binning, tables=np.array([[3.0], [-2.0], [5.0]]), intercepts=np.array([0.5]),
        direction=np.ones((3, 1)), n_scores=1, steps=1000,
    )  # fmt: skip
    _, p = scores(own)
    np.testing.assert_allclose(p[:, 0], expit([0.5, 3.5, -1.5, 5.5]), rtol=1e-15)
    unknown = sums(own, which=[0])
    assert not unknown["marginals"].any() and not unknown["residuals"].any()
    assert not unknown["curvature"].any(), "its score does not change"
    assert unknown["histogram"].sum() == 1, "but it has a score"


@pytest.mark.parametrize("n_threads", [1, 4])
def test_no_records(n_threads):
    own = problem(3)
    for exact in sums(own, which=[], n_threads=n_threads).values():
        assert not exact.any()
    z, p = scores(own, which=[], n_threads=n_threads)
    assert z.shape == p.shape == (0, 1)


def test_edges_of_a_categorical_feature_are_ignored():
    plain = Binning(np.int32([2, 0]), [[], [0.5]])
    other = Binning(np.int32([2, 0]), [[0.1, 0.2, 0.3], [0.5]])
    assert plain.cell_start.tolist() == other.cell_start.tolist() == [0, 3, 6]
    X, y = np.float32([[0, 1, 1], [0.2, 0.5, 0.7]]), np.int32([0, 1, 0])
    counts = [_guide.class_marginals(X, y, 2, 1, binning) for binning in (plain, other)]
    assert np.array_equal(*counts)


# A record's contribution does not depend on the others


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
def test_contributions_are_independent_of_the_other_records(seed, n_classes, unit):
    own = problem(seed, n_classes, unit)
    n = own.X.shape[1]
    whole = sums(own, n_threads=3)
    alone = [sums(own, which=[i]) for i in range(n)]
    for name, exact in whole.items():
        assert np.array_equal(sum(part[name] for part in alone), exact)
    order = np.random.default_rng(seed).permutation(n)
    for name, exact in sums(own, which=order, n_threads=2).items():
        assert np.array_equal(exact, whole[name])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_score_columns_are_independent_of_rows_chunks_layout_and_threads(seed, n_classes):
    own = problem(seed, n_classes)
    n = own.X.shape[1]
    z, p = scores(own)
    for by_rows, n_threads in itertools.product([False, True], THREADS):
        again = scores(own, n_threads=n_threads, by_rows=by_rows)
        assert np.array_equal(again[0], z) and np.array_equal(again[1], p)
    for i in range(n):
        one = scores(own, which=[i], by_rows=bool(i % 2))
        assert np.array_equal(one[0], z[i : i + 1]) and np.array_equal(one[1], p[i : i + 1])
    for size in (2, 7, 31):
        parts = [scores(own, which=slice(i, i + size), n_threads=2)[0] for i in range(0, n, size)]
        assert np.array_equal(np.concatenate(parts), z)


def test_score_reads_rows_the_same_in_fit_and_predict():
    # Fitting reads columns, predicting reads rows that have score columns beside them later.
    own = problem(1, 3)
    score = guide.Score(own.n_categories, tuple(own.edges), own.tables, own.intercepts)
    z, p = score.evaluate(np.ascontiguousarray(own.X.T), 2)
    assert np.array_equal(score.columns(own.X, 3).T, z) and z.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    wide = np.hstack([own.X.T, np.full((own.X.shape[1], 2), np.float32(7))])
    again, _ = score.evaluate(np.ascontiguousarray(wide))
    assert np.array_equal(again, z)
    two = problem(1, 2)
    score = guide.Score(two.n_categories, tuple(two.edges), two.tables, two.intercepts)
    _, p = score.evaluate(np.ascontiguousarray(two.X.T))
    assert p.shape == (two.X.shape[1], 2) and np.array_equal(p[:, 0], 1 - p[:, 1])


# Sensitivity


class Transcript:
    """The conversation between a guide and the records: exact sums, noise, answers.

    Parameters
    ----------
    answers : list of arrays, optional
        Give these instead of noisy sums: the same conversation with other records.
    """

    def __init__(self, answers=None):
        self.given = answers
        self.sums, self.sigmas, self.purposes, self.answers = [], [], [], []

    def listen(self):
        """Patch `Queries` while the conversation goes on."""
        transcript, original = self, guide.Queries._noisy

        def noisy(self, sums, sigma, purpose):
            transcript.sums.append(sums.copy())
            transcript.sigmas.append(sigma)
            transcript.purposes.append(purpose)
            if transcript.given is None:
                answer = original(self, sums, sigma, purpose)
            else:
                answer = transcript.given[len(transcript.answers)].copy()
            transcript.answers.append(answer.copy())
            return answer

        return mock.patch.object(guide.Queries, "_noisy", noisy)

    def loss(self, other):
        """Sum of squared distances in units of the noise: mu^2 for this pair of tables."""
        return math.fsum(
            float(((a - b).astype(np.float64) ** 2).sum()) / sigma**2
            for a, b, sigma in zip(self.sums, other.sums, self.sigmas, strict=True)
        )


def fit_guide(own, mu, seed=0, which=slice(None), **options):
    bits = noise.SeededBits(seed)
    X, y = np.ascontiguousarray(own.X[:, which]), np.ascontiguousarray(own.y[which])
    return guide.fit_guide(X, y, own.domain, own.n_classes, mu, bits, unit=own.unit, **options)


def converse(own, mu, which=slice(None), answers=None, **options):
    """Fit a guide and return the transcript and the guide."""
    transcript = Transcript(answers)
    with transcript.listen():
        found = fit_guide(own, mu, which=which, **options)
    return transcript, found


def queries_of(own, mu, which=slice(None), g=1, bits=None):
    X, y = np.ascontiguousarray(own.X[:, which]), np.ascontiguousarray(own.y[which])
    bits = bits or noise.SeededBits(0)
    return guide.Queries(X, y, own.n_classes, own.unit, own.binning, mu, g, bits, 1)


def ask_all(own, queries):
    queries.marginals()
    queries.residuals(own.tables, own.intercepts, 1)
    queries.curvature(own.tables, own.intercepts, own.direction, 1)
    queries.score_histogram(own.tables, own.intercepts)


SHARES = {
    "marginals": guide.MARGINALS_SHARE,
    "residuals 1": guide.RESIDUALS_SHARE / guide.N_ROUNDS,
    "curvature 1": guide.CURVATURE_SHARE / (guide.N_ROUNDS + 1),
    "recalibration": guide.RECALIBRATION_SHARE,
}


def adversarial(seed, n_classes, unit):
    """Records and scores at their extremes: p of 0 and 1, full reach, labels at the ends."""
    own = problem(seed, n_classes, unit, max_records=12)
    rng = np.random.default_rng([seed, 99])
    kind = seed % 4
    if kind == 0:
        own.tables = np.sign(own.tables) * 40.0
    elif kind == 1:  # where rounding is worst
        own.tables = np.round(own.tables)
        own.intercepts = logit(np.full(own.n_scores, (rng.integers(1, 8) + 0.5) / 9))
    elif kind == 2:  # p (1 - p) largest
        own.tables, own.intercepts = own.tables * 0, own.intercepts * 0
    own.direction = own.direction * 10.0 ** rng.integers(0, 4)
    top = unit if unit > 1 else n_classes - 1
    own.y = rng.choice([0, top], len(own.y)).astype(np.int32)
    own.X[:, 0] = np.nan  # all missing
    return own


@pytest.mark.parametrize("mu", [3e-4, 0.01, 0.3, 20.0])
@pytest.mark.parametrize(("n_classes", "unit"), [*LABELS, (9, 1)])
def test_one_record_changes_an_answer_by_no_more_than_is_charged(mu, n_classes, unit):
    closest = dict.fromkeys(SHARES, 0.0)
    for seed in range(24):
        own = adversarial(seed, n_classes, unit)
        empty = Transcript()
        with empty.listen():
            ask_all(own, queries_of(own, mu, which=[]))
        for i in range(own.X.shape[1]):
            lone = Transcript()
            with lone.listen():
                ask_all(own, queries_of(own, mu, which=[i]))
            assert lone.purposes == list(SHARES)
            assert lone.sigmas == empty.sigmas
            for exact, before, sigma, (name, share) in zip(
                lone.sums, empty.sums, lone.sigmas, SHARES.items(), strict=True
            ):
                norm = math.sqrt(int(((exact - before) ** 2).sum()))
                allowed = sigma * mu * math.sqrt(share)
                assert norm <= allowed * (1 + 1e-12), (name, seed, i)
                closest[name] = max(closest[name], norm / allowed)
    # No more noise than it takes, where a record of extremes shows it.
    assert closest["marginals"] == pytest.approx(1)
    assert closest["recalibration"] == pytest.approx(1)
    if n_classes == 2:
        assert closest["residuals 1"] == pytest.approx(1)
        assert closest["curvature 1"] == pytest.approx(1)
    elif mu > 0.01:  # else rounding to a coarse grid is most of what is charged
        assert closest["residuals 1"] > 0.6 and closest["curvature 1"] > 0.4


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("sign", [-1, 1])
def test_scores_beyond_all_floating_point_change_no_sensitivity(n_classes, sign):
    # e^-800 is 0 and all classes have it: probabilities must not become 0/0.
    own = problem(2, n_classes)
    own.tables = np.full_like(own.tables, sign * 800.0)
    mu = 0.5
    for which in range(own.X.shape[1]):
        transcript = Transcript()
        with transcript.listen():
            ask_all(own, queries_of(own, mu, which=[which]))
        for exact, sigma, share in zip(
            transcript.sums, transcript.sigmas, SHARES.values(), strict=True
        ):
            assert np.abs(exact).max() <= sigma * mu * math.sqrt(share) * (1 + 1e-12)
    z, p = scores(own)
    assert np.isfinite(p).all() and ((p >= 0) & (p <= 1)).all()
    assert ((z >= 0) & (z <= 1)).all()


def test_the_shares_are_one_budget():
    shares = [value for name, value in vars(guide).items() if name.endswith("_SHARE")]
    assert sum(shares) - guide.SCORE_SHARE == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
@pytest.mark.parametrize("mu", [0.02, 0.5, 8.0])
def test_all_queries_together_spend_at_most_mu(seed, n_classes, unit, mu):
    # The conversation with one record more, given the same answers, at the noise really drawn.
    own = problem(seed, n_classes, unit)
    n = own.X.shape[1]
    transcript, found = converse(own, mu, which=slice(n - 1))
    assert transcript.purposes == [
        "marginals", "curvature 0", "residuals 1", "curvature 1", "residuals 2", "curvature 2",
        "residuals 3", "curvature 3", "recalibration",
    ]  # fmt: skip
    more, same = converse(own, mu, answers=transcript.answers)
    assert more.sigmas == transcript.sigmas
    assert_equal_guides(found, same)
    assert 0 < transcript.loss(more) <= mu**2 * (1 + 1e-12)


@pytest.mark.parametrize("g", [2, 5])
@pytest.mark.parametrize(("n_classes", "unit"), [(2, 1), (2, 64), (3, 1)])
def test_a_unit_of_several_records_spends_at_most_mu(g, n_classes, unit):
    for seed in range(4):
        own = problem(seed + 20, n_classes, unit, max_records=40)
        n = own.X.shape[1]
        first = list(range(n)) + [0] * (g - 1)  # g times the same record
        transcript, _ = converse(own, 0.7, which=list(range(1, n)), records_per_unit=g)
        more, _ = converse(own, 0.7, which=first, answers=transcript.answers, records_per_unit=g)
        assert transcript.loss(more) <= 0.49 * (1 + 1e-12)
        single, _ = converse(own, 0.7, which=list(range(1, n)))
        ratios = np.array(transcript.sigmas) / np.array(single.sigmas)
        assert ratios[0] == pytest.approx(g)


@pytest.mark.parametrize("mu", [1e-3, 0.05, 1.0, 30.0])
@pytest.mark.parametrize(("n_classes", "unit"), [(2, 1), (3, 1), (9, 1)])
def test_grids_are_as_fine_as_allowed(mu, n_classes, unit):
    own = problem(4, n_classes, unit)
    transcript = Transcript()
    queries = queries_of(own, mu)
    with transcript.listen():
        ask_all(own, queries)
    sigmas = dict(zip(transcript.purposes, transcript.sigmas, strict=True))
    for name in ("residuals 1", "curvature 1"):
        assert sigmas[name] <= guide.LARGEST_SIGMA or mu < 0.05
    norm, repeats, share = math.sqrt(n_classes), 3.0, 0.1
    sigma, steps = queries._grid(norm, repeats, share)
    assert isinstance(steps, int) and 1 <= steps <= guide.LARGEST_SIGMA
    # Not much coarser than allowed.
    assert steps == guide.LARGEST_SIGMA or sigma * (steps + 1) > guide.LARGEST_SIGMA * 0.5
    assert guide.grid_steps(0.0) == guide.LARGEST_SIGMA
    assert guide.grid_steps(1e9) == 1
    for own_sigma in (0.3, 1.0, 17.3, 4096.0):
        assert guide.grid_steps(own_sigma) * own_sigma <= guide.LARGEST_SIGMA


# Nothing but noisy answers leaves the queries


def assert_equal_guides(first, second):
    """The same bits in two guides."""
    for name in ("tables", "intercepts", "n_categories"):
        a, b = getattr(first.score, name), getattr(second.score, name)
        assert a.tobytes() == b.tobytes()
    assert first.feature_weights.tobytes() == second.feature_weights.tobytes()
    for a, b in zip(first.threshold_cdfs, second.threshold_cdfs, strict=True):
        assert (a is None) == (b is None)
        assert a is None or all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
    for a, b in zip(first.category_weights, second.category_weights, strict=True):
        assert (a is None) == (b is None) and (a is None or a.tobytes() == b.tobytes())


@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
@pytest.mark.parametrize("seed", range(4))
def test_a_guide_follows_from_the_noisy_answers_alone(seed, n_classes, unit):
    own = problem(seed, n_classes, unit)
    transcript, found = converse(own, 1.0)
    for which in ([], [0], slice(None, None, 2)):
        _, again = converse(own, 1.0, which=which, answers=transcript.answers)
        assert_equal_guides(found, again)
    other = problem(seed, n_classes, unit)
    other.X = np.full_like(other.X, np.nan)
    other.y = np.zeros_like(other.y)
    _, again = converse(other, 1.0, answers=transcript.answers)
    assert_equal_guides(found, again)


class CountedBits:
    """Seeded bits that note what is drawn."""

    seeded = False

    def __init__(self):
        self.bits, self.drawn = noise.SeededBits(5), []

    def draw(self, purpose, paths, n):
        words = self.bits.draw(purpose, paths, n)
        self.drawn.append((purpose, words))
        return words


@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
def test_every_cell_of_every_answer_gets_its_own_noise(n_classes, unit):
    own = problem(6, n_classes, unit)
    bits, exact, given = CountedBits(), [], []

    def spy(name):
        original = getattr(_guide, name)

        def kernel(*args):
            exact.append(original(*args))
            return exact[-1]

        return mock.patch.object(guide._guide, name, kernel)

    def watch(name):
        original = getattr(guide.Queries, name)

        def query(self, *args):
            answer = original(self, *args)
            given.append(answer)
            return answer

        return mock.patch.object(guide.Queries, name, query)

    transcript = Transcript()
    names = ("marginals", "residuals", "curvature", "score_histogram")
    with transcript.listen():
        patches = [*map(spy, QUERIES), *map(watch, names)]
        for patch in patches:
            patch.start()
        try:
            guide.fit_guide(own.X, own.y, own.domain, n_classes, 0.8, bits, unit=unit)
        finally:
            for patch in patches:
                patch.stop()
    # Kernel by kernel: sums, sums plus noise, and the same in records as the answer.
    assert len(exact) == len(bits.drawn) == len(given) == 2 * guide.N_ROUNDS + 3
    for sums_, (purpose, words), (answer, _), sigma, seen in zip(
        exact, bits.drawn, given, transcript.sigmas, transcript.sums, strict=True
    ):
        assert words.size == sums_.size and np.array_equal(sums_, seen)
        assert sigma > 0
        noisy = sums_ + noise.rounded_gaussian(words, sigma).reshape(sums_.shape)
        ratio = answer / np.where(noisy == 0, 1, noisy)
        np.testing.assert_allclose(ratio[noisy != 0], ratio[noisy != 0].max(), rtol=1e-12)
        assert not answer[noisy == 0].any()
        assert purpose.startswith("guide ")
    purposes = [purpose for purpose, _ in bits.drawn]
    assert len(set(purposes)) == len(purposes), "no noise is used twice"
    words = np.concatenate([words.ravel() for _, words in bits.drawn])
    assert len(np.unique(words)) == len(words)


@pytest.mark.parametrize(("n_classes", "unit"), LABELS)
def test_an_infinite_mu_is_no_noise(n_classes, unit):
    own = problem(7, n_classes, unit)
    transcript, _ = converse(own, math.inf)
    assert set(transcript.sigmas) == {0.0}
    for exact, answer in zip(transcript.sums, transcript.answers, strict=True):
        assert np.array_equal(exact, answer)
    marginals, sigma = queries_of(own, math.inf).marginals()
    assert sigma == 0 and np.array_equal(marginals * unit, sums(own)["marginals"])
    residuals, sigma = queries_of(own, math.inf).residuals(own.tables, own.intercepts, 1)
    own.steps = guide.LARGEST_SIGMA
    assert sigma == 0 and np.array_equal(residuals * own.steps, sums(own)["residuals"])


def test_answers_are_in_records():
    # Far more records than noise: sums, noise and answers have the same unit.
    own = problem(8, 2, 10)
    repeated = np.repeat(np.arange(own.X.shape[1]), 4000)
    queries = queries_of(own, 2.0, which=repeated)
    counts, sigma = queries.marginals()
    exact = sums(own)["marginals"] / 10 * 4000
    assert np.abs(counts - exact).max() < 6 * sigma
    cells, sigma = queries.score_histogram(own.tables, own.intercepts)
    assert np.abs(cells - sums(own)["histogram"] / 10 * 4000).max() < 6 * sigma
    found, sigma = queries.residuals(own.tables, own.intercepts, 1)
    own.steps = 4096
    assert np.abs(found - sums(own)["residuals"] / 4096 * 4000).max() < 6 * sigma + 30
    found, sigma = queries.curvature(own.tables, own.intercepts, own.direction, 1)
    scale = 2.5**2 / 4
    assert np.abs(found - sums(own)["curvature"] / 4096 * 4000 * scale).max() < 6 * sigma + 30


def test_noise_has_the_deviation_that_is_told():
    own = problem(9, 3)
    words = noise.SystemBits()
    errors = {name: [] for name in SHARES}
    for _ in range(60):
        queries = queries_of(own, 0.5, bits=words)
        own.steps = queries._grid(math.sqrt(2), math.sqrt(len(own.X)), SHARES["residuals 1"])[1]
        answer, sigma = queries.residuals(own.tables, own.intercepts, 1)
        errors["residuals 1"].append((answer - sums(own)["residuals"] / own.steps) / sigma)
        answer, sigma = queries.marginals()
        errors["marginals"].append((answer - sums(own)["marginals"]) / sigma)
        answer, sigma = queries.score_histogram(own.tables, own.intercepts)
        errors["recalibration"].append((answer - sums(own)["histogram"]) / sigma)
        own.steps = queries._grid(2.0, 1.0, SHARES["curvature 1"])[1]
        answer, sigma = queries.curvature(own.tables, own.intercepts, own.direction, 1)
        exact = sums(own)["curvature"] / own.steps * 2.5**2 / 4
        errors["curvature 1"].append((answer - exact) / sigma)
    for name, own_errors in errors.items():
        flat = np.concatenate([error.ravel() for error in own_errors])
        assert abs(flat.std() - 1) < 6 / math.sqrt(2 * flat.size), name
        assert abs(flat.mean()) < 6 / math.sqrt(flat.size), name


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_number_of_threads_changes_nothing(n_classes):
    own = problem(10, n_classes, max_records=500)
    first = fit_guide(own, 2.0)
    for n_threads in (2, 7):
        assert_equal_guides(fit_guide(own, 2.0, n_threads=n_threads), first)
    order = np.random.default_rng(0).permutation(own.X.shape[1])
    assert_equal_guides(fit_guide(own, 2.0, which=order), first)


@pytest.mark.parametrize("n_features", [1, 3, 14, 50])
@pytest.mark.parametrize(
    ("n_classes", "regression"), [(2, False), (2, True), (3, False), (9, False)]
)
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("g", [1, 4])
def test_finite_precision_is_charged_for_the_noise_that_is_drawn(
    n_features, n_classes, regression, epsilon, g
):
    # The allowance is for at most noise_cells / 16 grid steps of deviation.
    size = {"n_estimators": 30, "max_depth": 31, "n_features": n_features, "n_classes": n_classes}
    shares = {"guide": 0.5, "structure": 0.2, "leaves": 0.3}
    found = accounting.calibrate(epsilon, 1e-6, budget_shares=shares, records_per_unit=g, **size)
    unit = 1
    if regression:
        sigma = max(found.sigma_leaves, guide.largest_sigma(found, n_features))
        unit = max(2, guide.grid_steps(sigma))
    binning = Binning(np.zeros(n_features, np.int32), [np.zeros(0, np.float32)] * n_features)
    X = np.zeros((n_features, 0), np.float32)
    queries = guide.Queries(
        X, np.zeros(0, np.int32), n_classes, unit, binning, found.mu_guide, g,
        noise.SeededBits(0), 1,
    )  # fmt: skip
    tables = np.zeros((binning.n_cells, queries.n_scores))
    own = SimpleNamespace(tables=tables, intercepts=tables[0], direction=tables)
    transcript = Transcript()
    with transcript.listen():
        ask_all(own, queries)
    largest = max(*transcript.sigmas, found.sigma_leaves * unit)
    drawn = accounting.finite_precision(
        epsilon, records_per_unit=g, noise_cells=16 * largest, **size
    )
    assert drawn.epsilon <= found.precision_epsilon and drawn.delta <= found.precision_delta


@pytest.mark.parametrize("n_features", [1, 2, 4])
def test_soft_labels_are_no_finer_than_the_noise_of_any_query_allows(n_features):
    shares = {"guide": 0.05, "structure": 0.05, "leaves": 0.9}
    size = {"n_estimators": 1, "max_depth": 7, "n_features": n_features, "n_classes": 2}
    found = accounting.calibrate(1.0, 1e-6, budget_shares=shares, **size)
    sigma = max(found.sigma_leaves, guide.largest_sigma(found, n_features))
    unit = guide.grid_steps(sigma)
    histogram = math.sqrt(1 / guide.RECALIBRATION_SHARE) / found.mu_guide
    assert histogram * unit <= guide.LARGEST_SIGMA


# Fitting the score


def noisy_cells(rng, n_cells):
    """Sums of a feature, some cells without records."""
    weights = rng.exponential(200, n_cells) * (rng.random(n_cells) < 0.8)
    offsets = rng.normal(0, rng.choice([0.01, 0.3, 1]), n_cells)
    noise_variance = float(rng.choice([1e-3, 5.0, 400.0]))
    deviation = np.sqrt(noise_variance + weights)
    return weights * offsets + rng.normal(0, 1, n_cells) * deviation, weights, noise_variance


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_ordered", [False, True])
def test_posterior_offsets_are_the_dense_bayesian_average(seed, is_ordered):
    rng = np.random.default_rng(seed)
    n_cells = int(rng.choice([2, 3, 8, guide.N_BINS + 1]))
    cells = noisy_cells(rng, n_cells)
    correlations = [np.eye(n_cells)]
    for length in guide.PRIOR_LENGTHS if is_ordered else ():
        own = np.eye(n_cells)  # the last cell, missing values, stands alone
        for i in range(n_cells - 1):
            for j in range(n_cells - 1):
                if i != j:
                    smooth = math.exp(-0.5 * ((i - j) / length) ** 2)
                    own[i, j] = (1 - guide.ROUGHNESS) * smooth
        correlations.append(own)
    covariances = [
        variance * correlation for correlation in correlations for variance in guide.PRIOR_VARIANCES
    ]
    expected = oracle.posterior_mean(*cells, covariances)
    found = guide.posterior_offsets(*cells, is_ordered)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_posterior_offsets_shrink_noise_and_keep_signal():
    weights = np.full(20, 500.0)
    truth = np.repeat([0.5, -0.5], 10)
    found = guide.posterior_offsets(weights * truth, weights, 1.0, True)
    np.testing.assert_allclose(found, truth, atol=0.1)
    noise_alone = np.random.default_rng(0).normal(0, 100, 20)
    found = guide.posterior_offsets(noise_alone, weights * 0.01, 1e4, True)
    assert np.abs(found).max() < 0.05
    assert not guide.posterior_offsets(np.zeros(5), np.zeros(5), 0.0, False).any()


@pytest.mark.parametrize("seed", range(10))
def test_centred_offsets_have_no_common_part(seed):
    rng = np.random.default_rng(seed)
    sums_, weights, noise_variance = noisy_cells(rng, 9)
    found = guide.centred_offsets(sums_ + 0.3 * weights, weights, noise_variance, True)
    assert abs((weights * found).sum()) < 1e-6 * max(weights.sum(), 1)
    assert np.abs(found).max() <= 2 * guide.LARGEST_OFFSET
    assert not guide.centred_offsets(np.zeros(4), np.zeros(4), 1.0, False).any()


def loss_of(histogram, sigma, slope, shift):
    """Log loss of a recalibrated score over the cells that stand out of the noise."""
    total = loss = 0.0
    for cell, pair in enumerate(histogram.tolist()):
        score = -8.0 + (cell + 0.5) * 16.0 / 40
        for label, count in enumerate(pair):
            if count > 2 * sigma:
                margin = (slope * score + shift) * (1 if label else -1)
                loss += count * math.log1p(math.exp(-margin))
                total += count
    return loss / total


@pytest.mark.parametrize("seed", range(8))
def test_recalibrate_finds_the_best_slope_and_intercept(seed):
    rng = np.random.default_rng(seed)
    centres = (np.arange(40) + 0.5) / 40 * 16 - 8
    slope, shift = rng.uniform(0.02, 2.5), rng.uniform(-6, 6)
    totals = 2000 * np.exp(-0.5 * ((centres - rng.normal()) / rng.uniform(0.5, 3)) ** 2)
    p = expit(slope * centres + shift)
    sigma = float(rng.choice([0.0, 3.0, 30.0]))
    histogram = np.stack([totals * (1 - p), totals * p], axis=1)
    histogram += rng.normal(0, sigma, histogram.shape)
    found = guide.recalibrate(histogram, sigma)
    assert 0.05 <= found[0] <= 2 and -5 <= found[1] <= 5
    reached = loss_of(histogram, sigma, *found)
    best = min(
        loss_of(histogram, sigma, a, b)
        for a in np.linspace(0.05, 2, 40)
        for b in np.linspace(-5, 5, 51)
    )
    near = min(
        loss_of(histogram, sigma, np.clip(found[0] + a, 0.05, 2), np.clip(found[1] + b, -5, 5))
        for a in np.linspace(-0.1, 0.1, 21)
        for b in np.linspace(-0.1, 0.1, 21)
    )
    assert reached <= min(best, near) + 1e-5


def test_recalibrate_leaves_one_class_alone():
    histogram = np.zeros((40, 2))
    histogram[20:25, 1] = 1000
    assert tuple(guide.recalibrate(histogram, 5.0)) == (1.0, 0.0)
    assert tuple(guide.recalibrate(np.zeros((40, 2)), 5.0)) == (1.0, 0.0)
    histogram[3, 0] = 9.9  # below two deviations
    assert tuple(guide.recalibrate(histogram, 5.0)) == (1.0, 0.0)


def test_class_prior_is_the_mean_over_the_features_and_never_0():
    marginals = np.array([[30.0, 10], [10, 10], [50, 40], [-7, 0]])
    parts = [slice(0, 2), slice(2, 4)]
    prior = guide.class_prior(marginals, parts)
    np.testing.assert_allclose(prior, np.array([41.5, 30]) / 71.5)
    for one_sided in (np.array([[90.0, -3]]), np.array([[-5.0, -3]]), np.array([[0.0, 1e9]])):
        prior = guide.class_prior(one_sided, [slice(0, 1)])
        assert (prior > 0).all() and (prior < 1).all() and prior.sum() == pytest.approx(1, abs=1e-3)


def test_common_offset_is_the_mean_over_the_features():
    added = np.array([[3.0], [5], [-8], [4]])
    weights = np.array([[10.0], [30], [0.1], [0.2]])
    parts = [slice(0, 2), slice(2, 4)]
    np.testing.assert_allclose(guide.common_offset(added, weights, parts), [(0.2 - 4) / 2 + 0.9])


# Planning splits


def impurity(counts):
    """Gini impurity times the number of records."""
    total = sum(counts)
    return total - sum(c * c for c in counts) / total if total else 0.0


def gain_of(left, right):
    """Decrease of the impurity per record, never negative."""
    whole = [a + b for a, b in zip(left, right, strict=True)]
    decrease = impurity(whole) - impurity(left) - impurity(right)
    return max(decrease, 0.0) / max(sum(whole), 1)


def random_counts(rng, n_cells, n_classes):
    kind = rng.integers(0, 4)
    counts = rng.exponential(50, (n_cells, n_classes))
    if kind == 0:
        counts = counts.round()
    if kind == 1:
        counts[rng.random(n_cells) < 0.7] = 0
    if kind == 2:
        counts[:, 1:] = 0
    return counts * (kind != 3 or rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n_classes", [2, 4])
def test_gains_are_those_of_a_loop(seed, n_classes):
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, int(rng.integers(1, 9)), n_classes)
    rows = counts.tolist()
    total = [math.fsum(column) for column in zip(*rows, strict=True)]
    gains = [gain_of(row, [t - c for t, c in zip(total, row, strict=True)]) for row in rows]
    best, weights = guide.category_gains(counts)
    assert best == pytest.approx(max(gains), rel=1e-6, abs=1e-9)
    if sum(gains) > 1e-6:
        expected = [0.8 * gain / sum(gains) + 0.2 / len(rows) for gain in gains]
        np.testing.assert_allclose(weights, expected, rtol=1e-6, atol=1e-9)
    assert (weights > 0).all() and np.isfinite(weights).all()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n_classes", [2, 4])
def test_threshold_cdf_is_that_of_a_loop(seed, n_classes):
    rng = np.random.default_rng(seed)
    n_bins = int(rng.choice([2, 3, guide.N_BINS]))
    counts = random_counts(rng, n_bins, n_classes)
    rows = counts.tolist()
    gains = [0.0]  # of the edges, none at the ends
    for edge in range(1, n_bins):
        left = [math.fsum(column) for column in zip(*rows[:edge], strict=True)]
        right = [math.fsum(column) for column in zip(*rows[edge:], strict=True)]
        gains.append(gain_of(left, right))
    gains.append(0.0)
    near = [(a + b) / 2 for a, b in itertools.pairwise(gains)]
    mass = [math.fsum(row) for row in rows]
    density = [0.2 / n_bins] * n_bins
    for b in range(n_bins):
        density[b] += 0.3 * mass[b] / sum(mass) if sum(mass) else 0.0
        density[b] += 0.5 * near[b] / sum(near) if sum(near) > 1e-6 else 0.0
    best, cdf = guide.threshold_cdf(counts)
    assert best == pytest.approx(max(gains), rel=1e-6, abs=1e-9)
    assert cdf.shape == (n_bins + 1,) and cdf[0] == 0 and cdf[-1] == 1
    assert (np.diff(cdf) > 0).all()
    if sum(near) > 1e-6 or sum(mass) == 0:
        expected = np.append(0, np.cumsum(density)) / math.fsum(density)
        np.testing.assert_allclose(cdf, expected, rtol=1e-6, atol=1e-9)


def test_gini_gain_by_hand():
    assert guide.gini_gain(np.array([10.0, 0]), np.array([0.0, 10])) == pytest.approx(0.5)
    assert guide.gini_gain(np.array([5.0, 5]), np.array([5.0, 5])) == 0
    assert guide.gini_gain(np.zeros(3), np.zeros(3)) == 0
    several = guide.gini_gain(np.array([[10.0, 0], [5, 5]]), np.array([[0.0, 10], [5, 5]]))
    np.testing.assert_allclose(several, [0.5, 0])


def plan_of(marginals, sigma, domain, n_scores=1):
    """A plan from marginals without missing values."""
    score = SimpleNamespace(n_scores=n_scores)
    padded = [np.vstack([own, np.full((1, own.shape[1]), 1e6)]) for own in marginals]
    found = guide.plan_splits(padded, sigma, domain, score)
    assert all(a is b for a, b in zip(found.marginals, padded, strict=True))
    return found


def small_domain():
    return SimpleNamespace(
        n_categories=np.int32([0, 3, 0]),
        lower=np.float32([-1, 0, 5]),
        upper=np.float32([1, 0, 5.5]),
    )


def test_plan_splits_by_hand():
    domain, sigma = small_domain(), 4.0
    rng = np.random.default_rng(0)
    useless = np.full((guide.N_BINS, 2), 50.0)
    useful = np.zeros((guide.N_BINS, 2))
    useful[:16, 0] = useful[16:, 1] = 50.0
    categories = np.array([[100.0, 20], [7.9, 300], [10, 10]])
    blurred = [own + rng.uniform(-3, 3, own.shape) * (own == 0) for own in (useful, useless)]
    found = plan_of([blurred[1], categories, blurred[0]], sigma, domain)
    cut = np.where(categories > 8, categories, 0)
    gains = [
        guide.threshold_cdf(useless)[0],
        guide.category_gains(cut)[0],
        guide.threshold_cdf(useful)[0],
    ]
    weights = np.sqrt(np.array(gains) / max(gains)) + 1e-12
    weights = 0.9 * weights / weights.sum() + 0.1 / 3
    np.testing.assert_allclose(found.feature_weights, [*(0.75 * weights), 0.25])
    assert found.feature_weights[2] > 5 * found.feature_weights[0]
    np.testing.assert_array_equal(found.category_weights[1], guide.category_gains(cut)[1])
    assert found.category_weights[0] is None and found.threshold_cdfs[1] is None
    for f, own in ((0, useless), (2, useful)):
        edges, cdf = found.threshold_cdfs[f]
        np.testing.assert_array_equal(cdf, guide.threshold_cdf(own)[1])
        assert edges[0] == domain.lower[f] and edges[-1] == domain.upper[f]
        np.testing.assert_allclose(np.diff(edges), (edges[-1] - edges[0]) / guide.N_BINS)
    several = plan_of([blurred[1], categories, blurred[0]], sigma, domain, n_scores=5)
    np.testing.assert_allclose(several.feature_weights[3:], 0.05)


def assert_valid(found, domain, n_scores):
    """Weights positive, densities increasing from 0 to 1, everything finite."""
    n_features = len(domain.n_categories)
    weights = found.feature_weights
    assert weights.shape == (n_features + n_scores,) and (weights > 0).all()
    assert weights.sum() == pytest.approx(1)
    assert weights[n_features:].sum() == pytest.approx(guide.SCORE_SHARE)
    for f in range(n_features):
        if domain.n_categories[f]:
            own = found.category_weights[f]
            assert found.threshold_cdfs[f] is None and own.shape == (domain.n_categories[f],)
            assert (own > 0).all() and own.sum() <= 1 + 1e-9
        else:
            edges, cdf = found.threshold_cdfs[f]
            assert found.category_weights[f] is None
            assert edges[0] == domain.lower[f] and edges[-1] == domain.upper[f]
            assert (np.diff(edges) >= 0).all()
            assert cdf[0] == 0 and cdf[-1] == 1 and (np.diff(cdf) > 0).all()
    score = found.score
    assert score.n_scores == n_scores
    assert np.isfinite(score.tables).all() and np.isfinite(score.intercepts).all()
    assert np.abs(score.tables).max(initial=0) < 100
    assert isinstance(found.split_plan(domain), _tree.SplitPlan)


# Any records, any noise


def table_like(kind, n_classes, rng):
    """Records of one kind and their domain."""
    n_records = {"one record": 1, "two records": 2}.get(kind, 300)
    n_categories = np.int32([0, 4, 0, 1])
    lower, upper = np.float32([0, 0, -5, 0]), np.float32([1, 0, 5, 0])
    X = np.stack([
        rng.random(n_records), rng.integers(-1, 4, n_records), rng.normal(0, 9, n_records),
        np.zeros(n_records),
    ]).astype(np.float32)  # fmt: skip
    y = rng.integers(0, n_classes, n_records).astype(np.int32)
    if kind == "one class":
        y[:] = n_classes - 1
    if kind == "constant features":
        X[:] = X[:, :1]
    if kind == "all missing":
        X[:] = np.nan
    if kind == "all unknown":
        X[[1, 3]] = -1
    if kind == "separable":
        X[0] = (y + 0.5) / n_classes
    features = {"one numeric": [0], "one categorical": [1], "one category": [3]}.get(kind, range(4))
    if kind == "degenerate range":
        upper[:] = lower
    if kind == "huge range":
        lower[[0, 2]], upper[[0, 2]] = -3e38, 3e38
    features = list(features)
    domain = SimpleNamespace(
        n_categories=n_categories[features], lower=lower[features], upper=upper[features]
    )
    return np.ascontiguousarray(X[features]), y, domain


KINDS = [
    "ordinary", "one class", "constant features", "all missing", "all unknown", "separable",
    "one numeric", "one categorical", "one category", "one record", "two records",
    "degenerate range", "huge range",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("mu", [1e-6, 1e-2, 1.0, 1e3, math.inf])
def test_any_records_and_any_noise_give_a_valid_guide(kind, n_classes, mu):
    rng = np.random.default_rng(5)
    X, y, domain = table_like(kind, n_classes, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(2):
            found = guide.fit_guide(X, y, domain, n_classes, mu, noise.SeededBits(seed))
            assert_valid(found, domain, 1 if n_classes == 2 else n_classes)
            z, p = found.score.evaluate(np.ascontiguousarray(X.T))
            assert ((z >= 0) & (z <= 1)).all() and ((p >= 0) & (p <= 1)).all()
            np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-9)


@pytest.mark.parametrize("mu", [1e-6, 0.1, math.inf])
@pytest.mark.parametrize("kind", ["ordinary", "one class", "one record", "all missing"])
def test_any_soft_labels_give_a_valid_guide(kind, mu):
    X, y, domain = table_like(kind, 2, np.random.default_rng(1))
    y = np.random.default_rng(2).integers(0, 101, len(y)).astype(np.int32)
    found = guide.fit_guide(X, y, domain, 2, mu, noise.SeededBits(0), unit=100)
    assert_valid(found, domain, 1)


def log_loss(p, y):
    return -np.log(np.maximum(p[np.arange(len(y)), y], 1e-12)).mean()


def correlated_table(n_classes, rng, n_records=20_000):
    """39 features: a few informative ones, their copies and coarser forms."""
    base = rng.random((5, n_records)).astype(np.float32)
    linear = 4 * base[0] + 3 * (base[1] > 0.7) + 3 * np.abs(base[2] - 0.5) - 4
    y = (linear + rng.logistic(0, 1, n_records) > 0).astype(np.int32)
    if n_classes == 3:
        y += ((base[3] + base[0] + rng.normal(0, 0.3, n_records)) > 1.3).astype(np.int32)
    columns, n_categories = [*base], [0] * 5
    for number in range(34):
        steps = (2, 3, 5, 12, 0)[number // 5 % 5]
        own = base[number % 5]
        columns.append(np.minimum(np.floor(own * steps), steps - 1) if steps else own)
        n_categories.append(steps if number % 2 else 0)
        if not number % 2 and steps:
            columns[-1] = columns[-1] / np.float32(steps)
    n_features = len(columns)
    domain = SimpleNamespace(
        n_categories=np.int32(n_categories),
        lower=np.zeros(n_features, np.float32),
        upper=np.float32([0 if c else 1 for c in n_categories]),
    )
    return np.ascontiguousarray(columns, dtype=np.float32), y, domain


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("mu", [0.05, 0.3, 3.0, math.inf])
def test_correlated_features_do_not_break_the_score(n_classes, mu):
    X, y, domain = correlated_table(n_classes, np.random.default_rng(0))
    assert len(X) == 39
    prior = np.bincount(y) / len(y)
    for seed in range(2):
        found = guide.fit_guide(X, y, domain, n_classes, mu, noise.SeededBits(seed))
        _, p = found.score.evaluate(np.ascontiguousarray(X.T))
        reached, trivial = log_loss(p, y), -np.log(prior) @ prior
        assert reached < trivial
        if mu >= 0.3:
            assert reached < 0.93 * trivial
        alone = guide.fit_guide(
            np.ascontiguousarray(X[:5]), y,
            SimpleNamespace(**{name: own[:5] for name, own in vars(domain).items()}),
            n_classes, mu, noise.SeededBits(seed),
        )  # fmt: skip
        _, p = alone.score.evaluate(np.ascontiguousarray(X[:5].T))
        if mu >= 3:  # copies of features take away little
            assert reached < 1.08 * log_loss(p, y)


def test_informative_features_and_thresholds_are_split_more_often():
    rng = np.random.default_rng(0)
    n_records = 30_000
    X = rng.random((4, n_records)).astype(np.float32)
    y = (X[2] > 0.8).astype(np.int32)
    domain = SimpleNamespace(
        n_categories=np.zeros(4, np.int32),
        lower=np.zeros(4, np.float32),
        upper=np.ones(4, np.float32),
    )
    found = guide.fit_guide(X, y, domain, 2, 0.3, noise.SeededBits(0))
    assert found.feature_weights[2] > 3 * max(found.feature_weights[[0, 1, 3]])
    edges, cdf = found.threshold_cdfs[2]
    low, high = np.interp([0.7, 0.9], edges, cdf)
    assert high - low > 0.3 and high - low > 1.4 * 0.2
    z = found.score.columns(X)[0]
    assert z[y == 1].mean() - z[y == 0].mean() > 0.5
