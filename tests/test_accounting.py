"""Accounting against independent computations: mpmath, dp_accounting, quadrature, adversaries."""

import dataclasses
import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, gaussian_mechanism
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from lumberjack import accounting
from lumberjack.accounting import (
    calibrate,
    exponential_epsilon,
    exponential_rho,
    finite_precision,
    fixed_j_delta,
    forest_delta,
    gaussian_delta,
    gaussian_mu,
    recomputed_delta,
    slack_for_tail,
    tail_delta,
    zcdp_delta,
    zcdp_rho,
)

PAPER = {"n_estimators": 30, "max_depth": 100, "n_features": 14, "n_classes": 2}
SHARES = {"structure": 0.75, "leaves": 0.25}
GUIDED = {"guide": 0.25, "structure": 0.35, "leaves": 0.40}

EPSILONS = (1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 8.0, 20.0, 50.0)
DELTAS = (1e-12, 1e-9, 1e-6, 1e-4, 1e-2)
TESTS = (1, 2, 10, 210, 1000, 10_000)


# ------------------------------------------------------------------------------------------------
# oracles


def exact_gaussian_delta(epsilon, mu):
    """delta_G in the textbook form with as many digits as its cancellation needs (mu <= 60)."""
    lost = (epsilon / mu + mu) ** 2 / 4.6 + 3 * abs(math.log10(mu))
    with mpmath.workdps(40 + int(lost)):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        lower = mpmath.ncdf(-mu / 2 - epsilon / mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * lower


def exact_zcdp_delta(epsilon, rho):
    """The zCDP conversion, its order found by bisection in high precision."""
    with mpmath.workdps(50):
        epsilon, rho = mpmath.mpf(epsilon), mpmath.mpf(rho)
        low, high = mpmath.mpf(-800), mpmath.mpf(1200)  # ln(alpha - 1)
        for _ in range(100):
            middle = (low + high) / 2
            slope = (1 + 2 * mpmath.exp(middle)) * rho - epsilon - mpmath.log1p(mpmath.exp(-middle))
            low, high = (middle, high) if slope < 0 else (low, middle)
        beta = mpmath.exp(low)
        exponent = beta * ((1 + beta) * rho - epsilon) - mpmath.log(beta)
        return mpmath.exp(exponent + (1 + beta) * mpmath.log(beta / (1 + beta)))


def exact_tail(n_tests, sigma, slack):
    with mpmath.workdps(60):
        fail = mpmath.ncdf(-mpmath.mpf(slack) / mpmath.mpf(sigma))
        return -mpmath.expm1(n_tests * mpmath.log1p(-fail))


def textbook_delta(epsilon, mu):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def adversary_delta(epsilon, n_tests, sigma, slack, direction, resolution=16):
    """Upper bound of the best adaptive adversary's delta, by dynamic programming.

    State: the likelihood ratio y = e^l of the transcript so far. W(y) = e^l V(l) is the value under
    the other table: W_0(y) = max(y - e^epsilon, 0), and each step is the larger of
      a shared test   W(y) <- E W(y Z),  ln Z ~ N(-mu^2/2, mu^2),  mu = 1/sigma,
      a lone test     W(y) <- q y + W((1 - q) y)          (adding a unit)
                      W(y) <- (1 - q) W(y / (1 - q))      (removing a unit).
    W is increasing, convex in y and at most y, and all steps keep that. So on a grid that is
    uniform in l every discretisation can be made an upper bound: interpolate by chords in y, spread
    the mass of Z in a cell to its ends without moving its mean, replace W by y above the grid and
    by its lowest value below. Their error is of second order in the step mu / resolution.
    """
    mu = 1 / sigma
    step = mu / resolution
    fail = -math.expm1(log_ndtr(slack / sigma))
    loss = -float(log_ndtr(slack / sigma))
    reach = 9 * mu * math.sqrt(n_tests) + n_tests * (0.5 * mu**2 + loss)
    below = math.ceil(reach / step)
    above = math.ceil((reach + epsilon) / step)
    y = np.exp(step * np.arange(-below, above + 1))
    value = np.maximum(y - math.exp(epsilon), 0.0)

    width = 9 * resolution
    edges = step * np.arange(-width, width + 1)
    mass = np.diff(norm.cdf(edges, loc=-(mu**2) / 2, scale=mu))
    mean = np.diff(norm.cdf(edges, loc=mu**2 / 2, scale=mu))
    z = np.exp(edges)
    high = np.clip((mean - mass * z[:-1]) / np.diff(z), 0.0, mass)
    kernel = np.zeros(len(edges))
    kernel[:-1] += mass - high
    kernel[1:] += high
    kernel[0] += norm.cdf(edges[0], loc=-(mu**2) / 2, scale=mu)
    missing = norm.sf(edges[-1], loc=mu**2 / 2, scale=mu)
    top = y[-1] * z[width + 1 :]

    shift = loss / step
    whole, part = int(shift), shift - int(shift)
    ends = step * np.array([0.0, 1.0, part])
    if direction == "add":  # between y e^-(whole+1)step and y e^-whole step
        ends = -ends
    weight = (math.exp(ends[2]) - 1) / (math.exp(ends[1]) - 1)

    def shifted(value, by):
        if direction == "add":
            return np.concatenate([np.full(by, value[0]), value])[: len(value)]
        over = y[-1] * np.exp(step * np.arange(1, by + 1))
        return np.concatenate([value, over])[by:]

    for _ in range(n_tests):
        padded = np.concatenate([np.full(width, value[0]), value, top])
        shared = np.convolve(padded, kernel[::-1], mode="valid") + missing * y
        lone = (1 - weight) * shifted(value, whole) + weight * shifted(value, whole + 1)
        lone = fail * y + lone if direction == "add" else (1 - fail) * lone
        value = np.minimum(np.maximum(shared, lone), y)
    return float(value[below])


def one_direction(epsilon, n_tests, sigma, slack, direction):
    """Our bound and the fixed-j expression for one direction, in plain floating point."""
    mu, log_pass = math.sqrt(n_tests) / sigma, float(log_ndtr(slack / sigma))
    j = np.arange(n_tests)
    mu_j = np.sqrt(n_tests - j) / sigma
    if direction == "add":
        ours = gaussian_delta(epsilon, mu) - math.expm1(n_tests * log_pass)
        fixed = [
            -math.expm1(i * log_pass)
            + math.exp(i * log_pass) * gaussian_delta(epsilon - i * log_pass, m)
            for i, m in zip(j, mu_j, strict=True)
        ]
        return ours, max(*fixed, -math.expm1(n_tests * log_pass))
    ours = gaussian_delta(epsilon + n_tests * log_pass, mu)
    return ours, max(
        gaussian_delta(epsilon + i * log_pass, m) for i, m in zip(j, mu_j, strict=True)
    )


def smallest_fixed_j(epsilon, delta, n_tests):
    """sigma and slack of smallest slack that the fixed-j expression allows: the paper's rule."""

    def slack(sigma):
        def excess(ratio):
            value = fixed_j_delta(epsilon, n_tests=n_tests, sigma=sigma, slack=ratio * sigma)
            return math.log(value / delta)

        return sigma * brentq(excess, 0.0, 12.0, xtol=1e-9) if excess(12.0) < 0 else math.inf

    least = math.sqrt(n_tests) / gaussian_mu(epsilon, delta)
    found = minimize_scalar(
        slack, bounds=(least * (1 + 1e-4), 1.2 * least), method="bounded", options={"xatol": 1e-4}
    )
    return found.x, found.fun


# ------------------------------------------------------------------------------------------------
# Gaussian


def test_gaussian_delta_bounds_the_exact_value_closely():
    rng = np.random.default_rng(0)
    checked = 0
    while checked < 400:
        epsilon = 10 ** rng.uniform(-6, 2.3)
        mu = epsilon / rng.uniform(0.1, 37) if rng.random() < 0.6 else 10 ** rng.uniform(-3, 1.7)
        if epsilon / mu - mu / 2 > 36.5 or mu > 60:
            continue
        checked += 1
        excess = gaussian_delta(epsilon, mu) / exact_gaussian_delta(epsilon, mu) - 1
        assert 0 <= excess < 1e-11, (epsilon, mu)


@pytest.mark.parametrize("mu", [0.1, 0.3, 0.999, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [-3.0, -0.1, -1e-6, 0.0])
def test_gaussian_delta_at_epsilon_of_zero_and_below(epsilon, mu):
    excess = gaussian_delta(epsilon, mu) / exact_gaussian_delta(epsilon, mu) - 1
    assert 0 <= excess < 1e-11


def test_gaussian_delta_limits():
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(math.inf, 1.0) == 0.0
    assert gaussian_delta(1.0, math.inf) == gaussian_delta(-math.inf, 1.0) == 1.0
    assert gaussian_delta(200.0, 1e6) == 1.0
    assert gaussian_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1), rel=1e-14)
    # what underflows is bounded by the smallest normal number, not lost
    assert gaussian_delta(1.0, 1e-6) == gaussian_delta(1.0, 1e-310) == np.finfo(float).tiny


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_gaussian_mu_inverts_gaussian_delta(epsilon):
    for delta in (*DELTAS, 1e-300, 1e-100, 0.5, 0.99):
        mu = gaussian_mu(epsilon, delta)
        assert delta * (1 - 1e-9) < gaussian_delta(epsilon, mu) <= delta
        assert gaussian_mu(epsilon, gaussian_delta(epsilon, mu)) == pytest.approx(mu, rel=1e-10)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_gaussian_mu_agrees_with_dp_accounting(epsilon, delta):
    sigma = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(sigma, rel=1e-6)


@pytest.mark.parametrize("sigmas", [(1.0,), (3.0, 4.0), (2.0, 5.0, 9.0, 9.0)])
def test_composition_agrees_with_dp_accounting(sigmas):
    """mu^2 = sum of mu_i^2 against numerical convolution of privacy loss distributions."""
    mu = math.sqrt(sum(1 / s**2 for s in sigmas))
    for pessimistic in (False, True):
        losses = [
            privacy_loss_distribution.from_gaussian_mechanism(
                s, value_discretization_interval=1e-3, pessimistic_estimate=pessimistic
            )
            for s in sigmas
        ]
        composed = losses[0]
        for loss in losses[1:]:
            composed = composed.compose(loss)
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            theirs = composed.get_delta_for_epsilon(epsilon)
            ours = gaussian_delta(epsilon, mu)
            assert ours == pytest.approx(theirs, rel=0.03)
            assert (theirs >= ours * (1 - 1e-6)) == pessimistic


def test_textbook_form_overshoots_and_ours_does_not():
    """Calibrating by the textbook form promises a delta that does not hold exactly."""
    textbook, ours = [], []
    for epsilon in (1e-6, 1e-5, 1e-3, 0.1, 1.0):
        for delta in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8):
            mu = gaussian_mu(epsilon, delta)
            ours.append(float(exact_gaussian_delta(epsilon, mu) / delta - 1))
            mu = brentq(
                lambda m, e=epsilon, d=delta: textbook_delta(e, m) - d,
                mu / 2,
                mu * 2,
                xtol=1e-300,
                rtol=1e-15,
            )
            textbook.append(float(exact_gaussian_delta(epsilon, mu) / delta - 1))
    assert max(textbook) > 1e-9
    assert min(ours) > -1e-10 and max(ours) <= 0


# ------------------------------------------------------------------------------------------------
# zCDP and the exponential mechanism


def test_zcdp_delta_bounds_the_exact_value_closely():
    rng = np.random.default_rng(1)
    for _ in range(120):
        epsilon, delta = 10 ** rng.uniform(-6, 2.3), 10 ** rng.uniform(-300, -0.1)
        rho = zcdp_rho(epsilon, delta)
        excess = zcdp_delta(epsilon, rho) / exact_zcdp_delta(epsilon, rho) - 1
        assert 0 <= excess < 1e-11, (epsilon, delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_zcdp_rho_inverts_zcdp_delta(epsilon):
    for delta in (*DELTAS, 1e-300, 0.5, 0.99):
        rho = zcdp_rho(epsilon, delta)
        assert delta * (1 - 1e-9) < zcdp_delta(epsilon, rho) <= delta
        assert zcdp_rho(epsilon, zcdp_delta(epsilon, rho)) == pytest.approx(rho, rel=1e-10)


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 5.0])
@pytest.mark.parametrize("excess", [0.05, 1.0, 5.0])
def test_zcdp_delta_agrees_with_dp_accounting(rho, excess):
    """Their minimum over a grid of orders is never below ours, and equal on a fine grid."""
    epsilon = rho + excess * math.sqrt(rho)
    orders = 1 + np.exp(np.linspace(math.log(0.02), math.log(1e5), 20_001))
    theirs, best = rdp_privacy_accountant.compute_delta(orders, orders * rho, epsilon)
    assert zcdp_delta(epsilon, rho) <= theirs * (1 + 1e-12)
    at_best = (best - 1) * (best * rho - epsilon + math.log1p(-1 / best)) - math.log(best)
    if math.isclose(math.exp(at_best), theirs):  # their other bound, by KL, was not smaller
        assert zcdp_delta(epsilon, rho) == pytest.approx(theirs, rel=1e-5)


def test_zcdp_event_of_dp_accounting():
    accountant = rdp_privacy_accountant.RdpAccountant().compose(dp_event.ZCDpEvent(0.02))
    assert zcdp_delta(1.0, 0.02) <= accountant.get_delta(1.0)
    assert zcdp_delta(1.0, 0.02) == pytest.approx(accountant.get_delta(1.0), rel=0.02)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_zcdp_of_a_gaussian_is_looser_than_its_own_delta(mu):
    for epsilon in (-1.0, 0.0, 0.1, 1.0, 5.0):
        assert zcdp_delta(epsilon, mu**2 / 2) >= gaussian_delta(epsilon, mu) * (1 - 1e-11)


def test_zcdp_limits():
    assert zcdp_delta(1.0, 0.0) == zcdp_delta(math.inf, 1.0) == 0.0
    assert zcdp_delta(1.0, math.inf) == zcdp_delta(1.0, 1e6) == 1.0
    assert zcdp_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1), rel=1e-14)
    assert zcdp_delta(-1.0, 1e-12) == pytest.approx(1 - math.exp(-1), rel=1e-5)


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("counts", [(0, 0), (5, 5), (40, 2, 0), (1, 2, 3, 4)])
def test_exponential_mechanism_is_zcdp(counts, records):
    """Renyi divergences of the leaf's draw, both directions, against alpha rho."""
    epsilon = 0.7
    after = np.array(counts, dtype=float)
    after[0] += records

    def log_probabilities(n):
        return epsilon * n - np.logaddexp.reduce(epsilon * n)

    p, q = log_probabilities(np.array(counts, dtype=float)), log_probabilities(after)
    rho = exponential_rho(1, epsilon, records)
    for first, second in ((p, q), (q, p)):
        for alpha in (1.001, 1.5, 2.0, 8.0, 64.0):
            terms = alpha * first + (1 - alpha) * second
            assert np.logaddexp.reduce(terms) / (alpha - 1) <= alpha * rho


def test_replacing_a_record_is_not_monotone():
    """Replacing has twice the range: its divergence breaks the rho of add/remove."""
    epsilon = 0.7
    p = 1 / (1 + math.exp(-epsilon))  # counts (1, 0) against (0, 1)
    divergence = (2 * p - 1) * math.log(p / (1 - p))
    assert divergence > exponential_rho(1, epsilon)


@pytest.mark.parametrize("records", [1, 4])
@pytest.mark.parametrize("rho", [1e-300, 1e-9, 0.01, 3.0])
def test_exponential_epsilon_inverts_rho(rho, records):
    epsilon = exponential_epsilon(30, rho, records)
    assert rho * (1 - 1e-14) <= exponential_rho(30, epsilon, records) <= rho


# ------------------------------------------------------------------------------------------------
# tests of the search and the tail


@pytest.mark.parametrize("depth", [*range(1, 70), 127, 128, 1023])
def test_tests_per_record(depth):
    def most_tests(h):  # the search's own recursion: one test at the middle, then one side
        return (
            1 if h == 1 else 1 + max(most_tests(h // 2), most_tests(h - h // 2 - 1) if h > 2 else 0)
        )

    assert accounting.tests_per_record(7, depth) == 7 * most_tests(depth)


@pytest.mark.parametrize("n_tests", [*TESTS, 10**6])
def test_tail_and_its_inverse(n_tests):
    for sigma in (0.3, 1.0, 81.14, 1e4):
        for delta in (*DELTAS, 1e-300, 0.5, 0.99):
            slack = slack_for_tail(n_tests, sigma, delta)
            tail = tail_delta(n_tests, sigma, slack)
            assert slack >= 0 and tail <= delta
            if slack > 0:
                assert tail > delta * (1 - 1e-9)
            excess = tail / exact_tail(n_tests, sigma, slack) - 1
            assert 0 <= excess < 1e-11


def test_tail_limits():
    assert tail_delta(0, 5.0, 1.0) == tail_delta(5, 0.0, 1.0) == 0.0
    assert tail_delta(1, 1.0, 0.0) == pytest.approx(0.5)
    assert 0 < tail_delta(3, 1.0, 1e6) < 3e-308
    assert slack_for_tail(1, 1.0, 0.6) == 0.0


# ------------------------------------------------------------------------------------------------
# the adaptive bound


@pytest.mark.parametrize("direction", ["add", "remove"])
@pytest.mark.parametrize(
    ("epsilon", "n_tests", "sigma", "ratio"),
    [
        (0.1, 1, 4.0, 2.5),
        (1.0, 2, 2.0, 3.0),
        (1.0, 7, 3.0, 1.5),
        (0.5, 20, 12.0, 3.0),
        (2.0, 20, 5.0, 4.5),
        (0.05, 20, 30.0, 1.0),
        (1.0, 60, 30.0, 5.0),
        (4.0, 60, 8.0, 5.0),
    ],
)
def test_fixed_j_below_adversary_below_bound(epsilon, n_tests, sigma, ratio, direction):
    slack = ratio * sigma
    bound, fixed = one_direction(epsilon, n_tests, sigma, slack, direction)
    coarse = adversary_delta(epsilon, n_tests, sigma, slack, direction, resolution=24)
    fine = adversary_delta(epsilon, n_tests, sigma, slack, direction, resolution=48)
    # both are upper bounds with an error of second order, so the error of `fine` is at most about
    # (coarse - fine) / 3; the bound must hold with the whole difference as its reserve
    error = abs(coarse - fine)
    assert fine <= coarse * (1 + 1e-12)
    assert error < 0.01 * fine
    assert fixed <= fine * (1 + 1e-9)
    assert fine - error <= bound * (1 + 1e-9)


def test_adversary_at_the_calibrated_point():
    """At m = 210 an adaptive adversary nearly doubles the fixed-j delta; our bound holds."""
    epsilon, sigma, slack = 0.75, 81.14, 469.6
    fixed = fixed_j_delta(epsilon, n_tests=210, sigma=sigma, slack=slack)
    assert fixed == pytest.approx(0.75e-6, rel=0.02)
    worst = max(
        adversary_delta(epsilon, 210, sigma, slack, d, resolution=24) for d in ("add", "remove")
    )
    assert 1.7 < worst / fixed < 1.8
    bound = forest_delta(epsilon, mu=math.sqrt(210) / sigma, n_tests=210, sigma=sigma, slack=slack)
    assert worst <= bound < 1.2 * worst


@pytest.mark.parametrize("direction", ["add", "remove"])
@pytest.mark.parametrize(("epsilon", "sigma", "ratio"), [(0.5, 2.0, 2.0), (1.0, 1.5, 3.0)])
def test_adversary_of_two_tests_by_quadrature(epsilon, sigma, ratio, direction):
    """The dynamic program against nested integration, and both against the bound."""
    mu, slack, log_pass = 1 / sigma, ratio * sigma, float(log_ndtr(ratio))
    fail = -math.expm1(log_pass)

    def end(loss):
        return max(0.0, -math.expm1(epsilon - loss))

    def lone(value, loss):
        if direction == "add":
            return fail + (1 - fail) * value(loss + log_pass)
        return value(loss - log_pass)

    def last(loss):
        return max(lone(end, loss), gaussian_delta(epsilon - loss, mu))

    shared, _ = quad(
        lambda x: norm.pdf(x, mu**2 / 2, mu) * last(x), -9 * mu, 9 * mu, limit=400, epsabs=1e-12
    )
    exact = max(lone(last, 0.0), shared)
    coarse, fine = (
        adversary_delta(epsilon, 2, sigma, slack, direction, resolution=r) for r in (64, 128)
    )
    assert exact * (1 - 1e-7) <= fine <= coarse * (1 + 1e-12)
    assert fine == pytest.approx(exact, rel=2e-3)
    bound, fixed = one_direction(epsilon, 2, sigma, slack, direction)
    assert fixed <= exact * (1 + 1e-7)
    assert exact <= bound * (1 + 1e-7)


@pytest.mark.parametrize("n_tests", [1, 2, 3])
def test_fixed_j_by_integration(n_tests):
    """The privacy loss of j lone and n - j shared tests integrated directly."""
    epsilon, sigma, slack = 0.6, 2.0, 5.0
    log_pass, best = float(log_ndtr(slack / sigma)), 0.0
    for j in range(n_tests + 1):
        mu = math.sqrt(n_tests - j) / sigma
        for sign in (1, -1):  # add, remove

            def excess(x, mu=mu, shift=sign * j * log_pass):
                loss = mu * x + mu**2 / 2 + shift
                return norm.pdf(x) * max(0.0, -math.expm1(epsilon - loss))

            kink = (epsilon - sign * j * log_pass - mu**2 / 2) / mu if mu else math.inf
            value = quad(excess, kink, kink + 15)[0] if mu else 0.0
            if sign == 1:
                value = -math.expm1(j * log_pass) + math.exp(j * log_pass) * value
            best = max(best, value)
    assert fixed_j_delta(epsilon, n_tests=n_tests, sigma=sigma, slack=slack) == pytest.approx(
        best, rel=1e-7
    )


def test_forest_delta_is_the_formula():
    for epsilon, mu, n_tests, sigma, slack in (
        (1.0, 0.2, 210, 81.0, 480.0),
        (0.1, 1.0, 5, 3.0, 4.0),
        (1e-3, 3.0, 50, 2.0, 1.0),
    ):
        log_pass = n_tests * float(log_ndtr(slack / sigma))
        expected = max(
            gaussian_delta(epsilon, mu) - math.expm1(log_pass),
            gaussian_delta(epsilon + log_pass, mu),
        )
        ours = forest_delta(epsilon, mu=mu, n_tests=n_tests, sigma=sigma, slack=slack)
        assert ours == pytest.approx(min(expected, 1.0), rel=1e-11)
        rho = mu**2 / 2 + 0.01
        expected = max(
            zcdp_delta(epsilon, rho) - math.expm1(log_pass), zcdp_delta(epsilon + log_pass, rho)
        )
        ours = forest_delta(epsilon, mu=mu, rho=0.01, n_tests=n_tests, sigma=sigma, slack=slack)
        assert ours == pytest.approx(min(expected, 1.0), rel=1e-11)


def test_forest_delta_limits():
    common = {"n_tests": 3, "slack": 4.0}
    assert forest_delta(1.0, mu=0.1, sigma=0.0, **common) == 1.0
    assert forest_delta(math.inf, mu=0.1, sigma=1.0, **common) == 0.0
    assert forest_delta(1.0, mu=0.3, n_tests=0, sigma=0.0, slack=0.0) == pytest.approx(
        gaussian_delta(1.0, 0.3), rel=1e-12
    )


# ------------------------------------------------------------------------------------------------
# calibration: reference values


@pytest.mark.parametrize(
    ("epsilon", "sigma", "slack"),
    [
        (0.5, 155.18, 898.1),
        (1, 81.14, 469.6),
        (2, 42.64, 246.8),
        (4, 22.64, 131.0),
        (8, 12.24, 70.8),
    ],
)
def test_published_values_are_the_fixed_j_optimum(epsilon, sigma, slack):
    """The paper's noise is what minimises the threshold under the fixed-j expression."""
    ours = smallest_fixed_j(0.75 * epsilon, 0.75e-6, 210)
    assert ours[0] == pytest.approx(sigma, rel=5e-3)
    assert ours[1] == pytest.approx(slack, rel=2e-3)


@pytest.mark.parametrize(
    ("epsilon", "sigma", "slack"),
    [(0.5, 158.7, 946.1), (1, 82.9, 493.9), (2, 43.6, 259.0), (4, 23.1, 137.2), (8, 12.5, 74.0)],
)
def test_sound_values(epsilon, sigma, slack):
    noise = calibrate(epsilon, 1e-6, budget_shares=SHARES, accounting="split", **PAPER)
    assert noise.sigma_tests == pytest.approx(sigma, rel=5e-3)
    assert noise.slack == pytest.approx(slack, rel=2e-3)
    assert noise.threshold == pytest.approx(1 + noise.slack, rel=1e-12)
    assert noise.tests_per_record == 210


def test_joint_against_split():
    joint = calibrate(1.0, 1e-6, budget_shares=SHARES, **PAPER)
    split = calibrate(1.0, 1e-6, budget_shares=SHARES, accounting="split", **PAPER)
    assert round(joint.threshold) == 428 and round(split.threshold) == 495
    assert round(joint.sigma_leaves) == 47 and round(split.sigma_leaves) == 98


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_joint_split_of_delta_is_the_best(epsilon, delta):
    """No other noise level, on a grid around the one chosen, allows a smaller threshold."""
    noise = calibrate(
        epsilon,
        delta,
        n_estimators=10,
        max_depth=31,
        budget_shares=GUIDED,
        n_features=5,
        n_classes=2,
    )
    mu = math.hypot(noise.mu_structure, noise.mu_leaves, noise.mu_guide)
    core_epsilon = epsilon - noise.precision_epsilon
    core_delta = (delta - noise.precision_delta) * math.exp(-noise.precision_epsilon / 2)
    for factor in (0.8, 0.95, 0.99, 0.999, 1.001, 1.01, 1.05):
        rest = core_delta - gaussian_delta(core_epsilon, mu * factor)
        if rest > 0:
            other = slack_for_tail(noise.tests_per_record, noise.sigma_tests / factor, rest)
            assert noise.slack <= other * (1 + 1e-4)


# ------------------------------------------------------------------------------------------------
# calibration: what was asked is what holds


def exact_joint_delta(noise):
    """Delta of a joint counts calibration in high precision, without the allowance."""
    g, m = noise.records_per_unit, noise.tests_per_record
    epsilon = noise.epsilon - noise.precision_epsilon
    mu = mpmath.sqrt(
        g**2 * m / mpmath.mpf(noise.sigma_tests) ** 2
        + g**2 * noise.n_estimators / mpmath.mpf(noise.sigma_leaves) ** 2
        + mpmath.mpf(noise.mu_guide) ** 2
    )
    tail = exact_tail(g * m, noise.sigma_tests, noise.slack)
    add = exact_gaussian_delta(epsilon, mu) + tail
    return max(add, exact_gaussian_delta(epsilon + mpmath.log1p(-tail), mu))


@pytest.mark.parametrize("records", [1, 5])
@pytest.mark.parametrize("shares", [SHARES, GUIDED])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_exact_delta_of_a_calibration(epsilon, shares, records):
    for delta in (1e-8, 1e-6, 1e-3):
        noise = calibrate(
            epsilon,
            delta,
            n_estimators=10,
            max_depth=15,
            budget_shares=shares,
            n_features=4,
            n_classes=2,
            records_per_unit=records,
        )
        exact = exact_joint_delta(noise)
        room = (delta - noise.precision_delta) * math.exp(-noise.precision_epsilon / 2)
        assert room * (1 - 1e-8) < exact <= room


def random_setting(rng):
    accounting_ = ("joint", "split")[rng.integers(2)]
    structure = rng.uniform(0.05, 0.9)
    guide = rng.uniform(0, 1 - structure) * (accounting_ == "joint" and rng.random() < 0.5)
    return {
        "epsilon": 10 ** rng.uniform(-2, 1),
        "delta": 10 ** rng.uniform(-8, -1),
        "n_estimators": int(10 ** rng.uniform(0, 2)),
        "max_depth": int(10 ** rng.uniform(0, 2.1)),
        "budget_shares": {"guide": guide, "structure": structure, "leaves": 1 - structure - guide},
        "n_features": int(rng.integers(1, 50)),
        "n_classes": int(rng.integers(2, 5)),
        "leaf": ("counts", "majority")[rng.integers(2)],
        "accounting": accounting_,
        "records_per_unit": int(rng.choice([1, 1, 2, 10])),
    }


def check_calibration(setting):
    try:
        noise = calibrate(**setting)
    except ValueError as error:
        assert "finite precision" in str(error)
        return False
    delta = recomputed_delta(noise)
    assert delta <= setting["delta"]
    if noise.slack > 0:  # an absurdly large delta may leave some of it unused
        assert delta > setting["delta"] * (1 - 1e-6)
    numbers_ = [v for v in dataclasses.astuple(noise) if isinstance(v, float)]
    assert all(math.isfinite(v) and v >= 0 for v in numbers_)
    assert (noise.threshold - noise.records_per_unit) - noise.slack >= 0
    assert (noise.sigma_leaves is None) == (setting["leaf"] == "majority")
    assert (noise.epsilon_leaf is None) == (setting["leaf"] == "counts")
    return True


def test_recomputed_delta_never_exceeds_delta():
    """10^4 random settings, not one ulp above."""
    rng = np.random.default_rng(20240229)
    accepted = sum(check_calibration(random_setting(rng)) for _ in range(10_000))
    assert accepted > 8_500


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    epsilon=st.floats(1e-6, 200.0),
    delta=st.floats(1e-300, 0.999),
    n_estimators=st.integers(1, 1000),
    max_depth=st.integers(1, 1000),
    share=st.floats(1e-3, 0.999),
    leaf=st.sampled_from(["counts", "majority"]),
    accounting_=st.sampled_from(["joint", "split"]),
    records=st.integers(1, 100),
)
def test_any_setting_is_calibrated_or_refused(
    epsilon, delta, n_estimators, max_depth, share, leaf, accounting_, records
):
    check_calibration(
        {
            "epsilon": epsilon,
            "delta": delta,
            "n_estimators": n_estimators,
            "max_depth": max_depth,
            "budget_shares": {"structure": share, "leaves": 1 - share},
            "leaf": leaf,
            "accounting": accounting_,
            "records_per_unit": records,
            "n_features": 3,
            "n_classes": 2,
        }
    )


def test_split_shares_never_sum_to_more_than_the_whole():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        epsilon, delta, share = rng.uniform(0.01, 9), rng.uniform(1e-9, 1e-2), rng.uniform(0.01, 1)
        shares = accounting._check_shares({"structure": share, "leaves": 1 - share}, "split")
        for whole, parts in zip(
            (epsilon, delta),
            zip(*accounting._split_budget(epsilon, delta, shares), strict=True),
            strict=True,
        ):
            assert sum(map(Fraction, parts)) <= Fraction(whole)


def test_shares_are_shares_of_the_account():
    noise = calibrate(2.0, 1e-6, budget_shares=GUIDED, **PAPER)
    parts = np.square([noise.mu_guide, noise.mu_structure, noise.mu_leaves])
    np.testing.assert_allclose(parts / parts.sum(), [0.25, 0.35, 0.40], rtol=1e-9)
    noise = calibrate(2.0, 1e-6, budget_shares=GUIDED, leaf="majority", **PAPER)
    parts = np.array([noise.mu_guide**2 / 2, noise.mu_structure**2 / 2, noise.rho_leaves])
    np.testing.assert_allclose(parts / parts.sum(), [0.25, 0.35, 0.40], rtol=1e-9)
    assert noise.mu_leaves == 0.0 and noise.sigma_leaves is None
    assert dict(noise.budget_shares) == pytest.approx(GUIDED)


def test_split_majority_and_counts_spend_the_same_rho():
    common = {"budget_shares": SHARES, "accounting": "split", **PAPER}
    counts = calibrate(1.0, 1e-6, **common)
    majority = calibrate(1.0, 1e-6, leaf="majority", **common)
    assert counts.mu_leaves**2 / 2 == pytest.approx(majority.rho_leaves, rel=1e-9)


def test_records_per_unit():
    """A unit of g records: noise g times, n_tests g times in the tail, threshold g + slack."""
    one = calibrate(1.0, 1e-6, budget_shares=SHARES, **PAPER)
    four = calibrate(1.0, 1e-6, budget_shares=SHARES, records_per_unit=4, **PAPER)
    assert four.tests_per_record == one.tests_per_record
    assert four.sigma_leaves == pytest.approx(4 * one.sigma_leaves, rel=0.01)
    assert four.mu_structure == pytest.approx(4 * math.sqrt(210) / four.sigma_tests)
    assert four.threshold == pytest.approx(4 + four.slack)
    tail = tail_delta(840, four.sigma_tests, four.slack)
    assert tail < 1e-6 and tail > tail_delta(210, four.sigma_tests, four.slack)
    majority = calibrate(
        1.0, 1e-6, budget_shares=SHARES, records_per_unit=4, leaf="majority", **PAPER
    )
    assert majority.rho_leaves == pytest.approx(30 * (4 * majority.epsilon_leaf) ** 2 / 8)


def test_weakened_calibrations_are_caught():
    """Recomputing notices every parameter that was made less private."""
    noise = calibrate(1.0, 1e-6, budget_shares=GUIDED, **PAPER)
    for change in (
        {"sigma_tests": noise.sigma_tests / 2},
        {"slack": noise.slack / 2},
        {"sigma_leaves": noise.sigma_leaves / 2},
        {"mu_guide": noise.mu_guide * 2},
        {"n_estimators": 60},
        {"tests_per_record": 420},
        {"records_per_unit": 2},
        {"sigma_leaves": 0.0},
        {"sigma_tests": 0.0},
    ):
        changed = dataclasses.replace(noise, **change)
        if "records_per_unit" in change:
            changed = dataclasses.replace(changed, threshold=noise.threshold + 1)
        assert recomputed_delta(changed) > 1e-6, change
    with pytest.raises(ValueError, match="threshold is below"):
        recomputed_delta(dataclasses.replace(noise, threshold=noise.slack))
    split = calibrate(1.0, 1e-6, budget_shares=SHARES, accounting="split", **PAPER)
    assert recomputed_delta(dataclasses.replace(split, mu_guide=0.1)) == 1.0


def test_calibration_is_frozen_data():
    noise = calibrate(1.0, 1e-6, budget_shares=SHARES, **PAPER)
    assert pickle.loads(pickle.dumps(noise)) == noise
    with pytest.raises(dataclasses.FrozenInstanceError):
        noise.sigma_tests = 1.0


def test_threshold():
    noise = calibrate(1.0, 1e-6, budget_shares=SHARES, threshold=600, **PAPER)
    assert noise.threshold == 600.0
    least = calibrate(1.0, 1e-6, budget_shares=SHARES, **PAPER).threshold
    assert calibrate(1.0, 1e-6, budget_shares=SHARES, threshold=least, **PAPER).threshold == least
    with pytest.raises(ValueError, match="threshold must be at least"):
        calibrate(1.0, 1e-6, budget_shares=SHARES, threshold=np.nextafter(least, 0) - 1e-9, **PAPER)


def test_default_threshold_keeps_empty_nodes_out():
    rng = np.random.default_rng(5)
    for _ in range(5000):
        unit, slack = int(rng.integers(1, 100)), 10 ** rng.uniform(-12, 8)
        threshold = accounting._default_threshold(unit, slack)
        assert (threshold - unit) - slack >= 0
        assert threshold <= (unit + slack) * (1 + 1e-12)


@pytest.mark.parametrize("leaf", ["counts", "majority"])
def test_epsilon_infinite(leaf):
    noise = calibrate(math.inf, None, budget_shares=GUIDED, threshold=1, leaf=leaf, **PAPER)
    assert (noise.sigma_tests, noise.slack, noise.threshold) == (0.0, 0.0, 1.0)
    assert noise.sigma_leaves == (0.0 if leaf == "counts" else None)
    assert noise.epsilon_leaf == (None if leaf == "counts" else math.inf)
    assert noise.mu_guide == math.inf
    assert recomputed_delta(noise) == 0.0
    assert calibrate(math.inf, None, budget_shares=SHARES, threshold=1, **PAPER).mu_guide == 0.0
    with pytest.raises(ValueError, match="threshold must be given with epsilon=inf"):
        calibrate(math.inf, 1e-6, budget_shares=SHARES, **PAPER)


# ------------------------------------------------------------------------------------------------
# finite precision


def test_finite_precision_is_small_for_ordinary_settings_and_grows():
    sizes = {**PAPER, "n_features": 100, "n_classes": 10}
    epsilon, delta = finite_precision(1.0, **sizes)
    assert 0 < epsilon < 1e-3 and 0 < delta < 1e-9
    for name in ("n_estimators", "max_depth", "n_features", "n_classes"):
        more = finite_precision(1.0, **{**sizes, name: 2 * sizes[name]})
        assert more.epsilon > epsilon and more.delta > delta
    unit = finite_precision(1.0, records_per_unit=3, **sizes)
    assert unit.epsilon == pytest.approx(3 * epsilon) and unit.delta == pytest.approx(3 * delta)
    assert finite_precision(2.0, **sizes).delta == pytest.approx(
        delta * (1 + math.exp(2)) / (1 + math.e)
    )
    assert finite_precision(1e6, **sizes).delta == 1.0


def test_allowance_is_subtracted():
    noise = calibrate(1.0, 1e-6, budget_shares=SHARES, **PAPER)
    mu = math.hypot(noise.mu_structure, noise.mu_leaves)
    alone = forest_delta(
        1.0 - noise.precision_epsilon,
        mu=mu,
        n_tests=210,
        sigma=noise.sigma_tests,
        slack=noise.slack,
    )
    assert alone + noise.precision_delta < 1e-6
    assert (noise.precision_epsilon, noise.precision_delta) == finite_precision(
        1.0, guide=False, **PAPER
    )
    guided = calibrate(1.0, 1e-6, budget_shares=GUIDED, **PAPER)
    assert (guided.precision_epsilon, guided.precision_delta) == finite_precision(
        1.0, noise_cells=2**16, **PAPER
    )


def test_large_noise_gets_a_larger_allowance():
    noise = calibrate(
        1e-3, 1e-6, budget_shares=SHARES, n_estimators=1, max_depth=1, n_features=1, n_classes=2
    )
    assert noise.sigma_leaves > 2**12
    cells = 2 ** math.ceil(math.log2(16 * noise.sigma_leaves))
    least = finite_precision(
        1e-3, n_estimators=1, max_depth=1, n_features=1, n_classes=2, guide=False, noise_cells=cells
    )
    assert noise.precision_epsilon >= least.epsilon and noise.precision_delta >= least.delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "match"),
    [
        (1e-7, 1e-6, "epsilon=1e-07 cannot carry.*larger epsilon"),
        (1.0, 1e-14, "delta=1e-14 cannot carry.*larger delta or a smaller epsilon"),
        (1.0, 1e-300, "delta=1e-300 cannot carry"),
        (200.0, 1e-6, "delta=1e-06 cannot carry.*smaller epsilon"),
    ],
)
def test_refuses_what_cannot_carry_finite_precision(epsilon, delta, match):
    with pytest.raises(ValueError, match=match):
        calibrate(epsilon, delta, budget_shares=SHARES, **PAPER)


# ------------------------------------------------------------------------------------------------
# numerical edges and errors


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 200.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.5])
@pytest.mark.parametrize("n_tests", [1, 10**6])
def test_edges_are_finite(epsilon, delta, n_tests):
    mu, rho = gaussian_mu(epsilon, delta), zcdp_rho(epsilon, delta)
    sigma = math.sqrt(n_tests) / gaussian_mu(epsilon, delta / 2)
    slack = slack_for_tail(n_tests, sigma, delta / 2)
    values = [mu, rho, sigma, slack, exponential_epsilon(n_tests, rho)]
    assert all(0 <= v < math.inf for v in values) and min(mu, rho, sigma) > 0
    for delta_ in (
        forest_delta(
            epsilon, mu=math.sqrt(n_tests) / sigma, n_tests=n_tests, sigma=sigma, slack=slack
        ),
        forest_delta(epsilon, mu=mu, rho=rho, n_tests=n_tests, sigma=sigma, slack=slack),
    ):
        assert 0 < delta_ <= 1
    assert 0 <= fixed_j_delta(epsilon, n_tests=n_tests, sigma=sigma, slack=slack) <= 1


@pytest.mark.parametrize("shares", [SHARES, GUIDED])
@pytest.mark.parametrize(
    ("epsilon", "delta", "trees", "depth"),
    [(1e-6, 0.01, 1, 1), (1e-3, 1e-9, 1, 1), (10.0, 0.9, 1, 1), (1.0, 1e-6, 50_000, 2**19)],
)
def test_calibration_at_the_edges(epsilon, delta, trees, depth, shares):
    setting = {
        "epsilon": epsilon,
        "delta": delta,
        "n_estimators": trees,
        "max_depth": depth,
        "budget_shares": shares,
        "n_features": 1,
        "n_classes": 2,
        "leaf": "counts",
    }
    check_calibration(setting)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epsilon": 0.0}, "epsilon must be a number > 0"),
        ({"epsilon": -1.0}, "epsilon must be a number > 0"),
        ({"epsilon": math.nan}, "epsilon must be a number > 0"),
        ({"epsilon": "1"}, "epsilon must be a number > 0"),
        ({"epsilon": True}, "epsilon must be a number > 0"),
        ({"delta": 0.0}, "delta must be a number with 0 < delta < 1"),
        ({"delta": 1.0}, "delta must be a number with 0 < delta < 1"),
        ({"delta": None}, "delta must be a number with 0 < delta < 1"),
        ({"n_estimators": 0}, "n_estimators must be an integer >= 1"),
        ({"n_estimators": 2.5}, "n_estimators must be an integer >= 1"),
        ({"n_estimators": True}, "n_estimators must be an integer >= 1"),
        ({"max_depth": -3}, "max_depth must be an integer >= 1"),
        ({"max_depth": None}, "max_depth must be an integer >= 1"),
        ({"records_per_unit": 0}, "records_per_unit must be an integer >= 1"),
        ({"n_features": 0}, "n_features must be an integer >= 1"),
        ({"n_classes": 0}, "n_classes must be an integer >= 1"),
        ({"leaf": "mean"}, "leaf must be one of 'counts', 'majority'"),
        ({"accounting": "rdp"}, "accounting must be one of 'joint', 'split'"),
        ({"threshold": math.inf}, "threshold must be a finite number"),
        ({"threshold": 3}, "threshold must be at least"),
        ({"budget_shares": None}, "budget_shares must be a dict"),
        ({"budget_shares": {"structure": 0.5, "leafs": 0.5}}, "unknown name 'leafs'"),
        ({"budget_shares": {"structure": 1.25, "leaves": -0.25}}, r"\['leaves'\] must be a finite"),
        ({"budget_shares": {"structure": 0.5, "leaves": 0.4}}, "must sum to 1"),
        ({"budget_shares": {"structure": 0.5, "leaves": 0.5 + 2e-9}}, "must sum to 1"),
        ({"budget_shares": {"structure": 1.0}}, r"\['leaves'\] must be > 0"),
        ({"budget_shares": {"structure": 0, "leaves": 1}}, r"\['structure'\] must be > 0"),
        ({"budget_shares": GUIDED, "accounting": "split"}, r"\['guide'\] must be 0 with acc"),
    ],
)
def test_errors_name_the_parameter(change, match):
    setting = {"epsilon": 1.0, "delta": 1e-6, "budget_shares": SHARES, **PAPER, **change}
    with pytest.raises(ValueError, match=match):
        calibrate(**setting)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: gaussian_delta(math.nan, 1.0), "epsilon"),
        (lambda: gaussian_delta(1.0, -1.0), "mu"),
        (lambda: gaussian_mu(1.0, 0.0), "delta"),
        (lambda: zcdp_delta(1.0, -1e-9), "rho"),
        (lambda: zcdp_rho(0.0, 0.1), "epsilon"),
        (lambda: tail_delta(-1, 1.0, 1.0), "n_tests"),
        (lambda: tail_delta(1, -1.0, 1.0), "sigma"),
        (lambda: tail_delta(1, 1.0, -1.0), "slack"),
        (lambda: slack_for_tail(0, 1.0, 0.1), "n_tests"),
        (lambda: fixed_j_delta(1.0, n_tests=1, sigma=0.0, slack=1.0), "sigma"),
        (lambda: exponential_rho(1, -1.0), "epsilon"),
        (lambda: finite_precision(math.inf, **PAPER), "epsilon"),
    ],
)
def test_errors_of_the_formulas(call, match):
    with pytest.raises(ValueError, match=f"^{match} must be"):
        call()


# ------------------------------------------------------------------------------------------------
# one hierarchy

METHODS = ("binary_search", "top_down", "top_down_dense")


def hierarchy_noise(epsilon=1.0, delta=1e-6, method="binary_search", **changes):
    """Noise of a hierarchy; the dense baseline has no threshold of its own."""
    settings = {"height": 100, "threshold": 1e6 if method == "top_down_dense" else None}
    return accounting.calibrate_hierarchy(epsilon, delta, method=method, **{**settings, **changes})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
@pytest.mark.parametrize("records", [1, 5])
def test_exact_delta_of_a_hierarchy(method, epsilon, records):
    noise = hierarchy_noise(epsilon, 1e-7, method, count_share=0.3, records_per_unit=records)
    n_tests = 7 if method == "binary_search" else 100
    assert noise.tests_per_record == n_tests == accounting.hierarchy_tests(method, 100)
    with mpmath.workdps(60):
        mu = mpmath.sqrt(
            (records * mpmath.sqrt(n_tests) / mpmath.mpf(noise.sigma_tests)) ** 2
            + (records / mpmath.mpf(noise.sigma_counts)) ** 2
        )
        assert (records / mpmath.mpf(noise.sigma_counts)) ** 2 / mu**2 == pytest.approx(0.3)
        core = mpmath.mpf(epsilon) - mpmath.mpf(noise.precision_epsilon)
        fail = mpmath.mpf(1)
        if method != "top_down_dense":
            ratio = mpmath.mpf(noise.slack) / mpmath.mpf(noise.sigma_tests)
            fail = mpmath.ncdf(ratio) ** (records * n_tests)
        delta = max(
            exact_gaussian_delta(core, mu) + 1 - fail,
            exact_gaussian_delta(core + mpmath.log(fail), mu),
        )
        delta = delta * mpmath.exp(noise.precision_epsilon / 2) + noise.precision_delta
    assert 0.999e-7 < delta <= 1e-7
    assert delta <= recomputed_delta(noise) <= 1e-7
    # the noise of the paper for the rho of the tests
    rho = noise.mu_structure**2 / 2
    assert noise.sigma_tests == pytest.approx(records * math.sqrt(n_tests / (2 * rho)))


def test_a_hierarchy_is_a_forest_of_one_tree_with_counts():
    forest = calibrate(1.0, 1e-6, n_estimators=1, max_depth=100, n_features=1, n_classes=1,
                       budget_shares=SHARES)  # fmt: skip
    noise = hierarchy_noise(count_share=0.25)
    assert noise.threshold == pytest.approx(forest.threshold, rel=1e-6)
    assert noise.sigma_counts == pytest.approx(forest.sigma_leaves, rel=1e-6)
    assert accounting.spending(noise).gaussian == pytest.approx(
        accounting.spending(forest).gaussian, rel=1e-6
    )
    assert accounting.spending(noise).tail == pytest.approx(
        accounting.spending(forest).tail, rel=1e-3
    )


@settings(deadline=None, max_examples=60)
@given(
    st.floats(1e-3, 20), st.floats(1e-12, 0.3), st.integers(1, 1024), st.sampled_from(METHODS),
    st.floats(0, 0.99), st.integers(1, 20),
)  # fmt: skip
def test_any_hierarchy_is_calibrated_or_refused(epsilon, delta, height, method, share, records):
    try:
        noise = hierarchy_noise(
            epsilon, delta, method, height=height, count_share=share, records_per_unit=records
        )
    except ValueError as error:
        assert "finite precision" in str(error)
        return
    assert recomputed_delta(noise) <= delta
    needed = accounting.needed_precision(noise)
    assert (noise.precision_epsilon, noise.precision_delta) >= needed
    spent = accounting.spending(noise)
    assert all(math.isfinite(own) for own in spent)
    assert (spent.tail == 0) == (method == "top_down_dense")
    assert (noise.sigma_counts is None) == (share == 0)


def test_weakened_hierarchies_are_caught():
    for method in METHODS:
        noise = hierarchy_noise(method=method, count_share=0.5)
        # the slack shrinks, too: with the same slack, less noise makes the tail smaller
        for changes in (
            {"sigma_tests": 0.999 * noise.sigma_tests, "slack": 0.999 * noise.slack},
            {"sigma_counts": 0.999 * noise.sigma_counts},
            {"tests_per_record": noise.tests_per_record + 1},
            {"records_per_unit": 2},
        ):
            weak = dataclasses.replace(noise, threshold=1e7, **changes)
            assert recomputed_delta(weak) > 1e-6
    with pytest.raises(ValueError, match="empty nodes could pass"):
        recomputed_delta(dataclasses.replace(hierarchy_noise(), threshold=1.0))


def test_the_search_needs_less_noise_than_the_baseline_as_the_levels_grow():
    ratios = [
        hierarchy_noise(height=2**j - 1).sigma_tests
        / hierarchy_noise(height=2**j - 1, method="top_down").sigma_tests
        for j in range(1, 11)
    ]
    expected = [math.sqrt(j / (2**j - 1)) for j in range(1, 11)]
    assert ratios == pytest.approx(expected, rel=0.02)
    assert ratios[0] == pytest.approx(1.0)


def test_hierarchies_with_large_noise_get_a_larger_allowance():
    small, large = hierarchy_noise(), hierarchy_noise(1e-3, count_share=0.01)
    assert large.sigma_counts > 2**11 / 16
    assert accounting.needed_precision(large) <= (large.precision_epsilon, large.precision_delta)
    assert large.precision_delta > small.precision_delta


def test_a_hierarchy_without_noise():
    noise = hierarchy_noise(math.inf, threshold=3)
    assert (noise.sigma_tests, noise.sigma_counts, noise.threshold) == (0.0, None, 3.0)
    assert hierarchy_noise(math.inf, threshold=3, count_share=0.5).sigma_counts == 0.0
    assert recomputed_delta(noise) == 0 and math.isinf(accounting.spending(noise).gaussian)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"height": 0}, "height must be"),
        ({"height": 2.5}, "height must be"),
        ({"method": "sideways"}, "method must be one of"),
        ({"count_share": 1.0}, "count_share must be"),
        ({"count_share": -0.1}, "count_share must be"),
        ({"records_per_unit": 0}, "records_per_unit must be"),
        ({"threshold": 2}, "threshold must be at least .* smaller height"),
        ({"threshold": math.nan}, "threshold must be"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"delta": 0}, "delta must be"),
        ({"epsilon": 1e-9}, "finite precision .* smaller height"),
        ({"method": "top_down_dense", "threshold": None}, "threshold must be given"),
        ({"epsilon": math.inf, "threshold": None}, "threshold must be given"),
    ],
)
def test_errors_of_a_hierarchy_name_the_parameter(changes, match):
    with pytest.raises(ValueError, match=match):
        hierarchy_noise(**changes)


# ------------------------------------------------------------------------------------------------
# accuracy of the search


@pytest.mark.parametrize("beta", [0.02, 0.2, 0.7])
def test_max_error_by_simulation(beta):
    # All tests that two trees of height 7 and ten records can make: 2 * 10 * 3.
    alpha = accounting.max_error(7, 2, 10, beta, sigma=4.0)
    largest = np.abs(np.random.default_rng(0).normal(0, 4.0, (40_000, 60))).max(axis=1)
    exceeded = float(np.mean(largest >= alpha))
    expected = 1 - (1 - beta / 60) ** 60  # the union bound is a little more
    assert abs(exceeded - expected) < 5 * math.sqrt(expected / 40_000)
    assert expected <= beta


def test_max_error_is_the_formula_and_below_its_closed_form():
    for h, k, n, beta in [(1, 1, 1, 0.5), (100, 30, 10**6, 1e-9), (1023, 1, 10**9, 1e-300)]:
        tests = k * n * math.ceil(math.log2(h + 1))
        alpha = accounting.max_error(h, k, n, beta, sigma=3.0)
        with mpmath.workdps(400):
            tail = 2 * mpmath.ncdf(-mpmath.mpf(alpha) / 3) * tests
            assert 0.999 * beta < tail <= beta
        assert alpha <= 3.0 * math.sqrt(2 * math.log(2 * tests / beta))
    assert accounting.max_error(7, 1, 10, 0.1, sigma=0.0) == 0


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.99])
@pytest.mark.parametrize("delta", [1e-9, 1e-4])
@pytest.mark.parametrize(("trees", "depth"), [(1, 1), (1, 64), (30, 100)])
def test_the_closed_form_is_private_and_looser_than_what_is_calibrated(
    epsilon, delta, trees, depth
):
    sigma, slack = accounting.closed_form_noise(epsilon, delta, n_estimators=trees, max_depth=depth)
    m = accounting.tests_per_record(trees, depth)
    assert sigma == pytest.approx(math.sqrt(2 * m * math.log(2.5 / delta)) / epsilon)
    bound = forest_delta(epsilon, mu=math.sqrt(m) / sigma, n_tests=m, sigma=sigma, slack=slack)
    assert bound <= delta
    if trees == 1:
        exact = hierarchy_noise(epsilon, delta, height=depth)
        assert exact.sigma_tests < sigma and exact.slack < slack


def test_errors_of_accuracy_name_the_parameter():
    for changes, match in [({"beta": 0}, "beta"), ({"n_records": 0}, "n_records"),
                           ({"sigma": -1}, "sigma"), ({"max_depth": 0}, "max_depth")]:  # fmt: skip
        own = {"max_depth": 3, "n_estimators": 1, "n_records": 5, "beta": 0.1, "sigma": 1.0}
        with pytest.raises(ValueError, match=f"^{match} must be"):
            accounting.max_error(**{**own, **changes})
    with pytest.raises(ValueError, match="epsilon must be a number with 0 < epsilon < 1"):
        accounting.closed_form_noise(1.0, 1e-6, n_estimators=1, max_depth=3)
