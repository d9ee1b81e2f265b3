r"""Privacy accounting: from (epsilon, delta) to noise and back.

Pure functions of public numbers; no data, no randomness. Three rules hold throughout.

- *Rounding.* Every function that returns a delta returns an upper bound of the exact value:
  the rounding error of its own arithmetic is bounded and added (relatively 1e-11 at most for
  delta >= 1e-300). Every inverse ends with a check of the forward function. What was calibrated
  therefore satisfies the exact inequality, not only its floating-point image.
- *Log space.* Small probabilities are handled as logarithms, differences of close numbers are
  rewritten as sums or integrals of positive terms.
- *One neighbouring relation.* Two tables are neighbours if one is the other plus one unit; a unit
  is up to ``g = records_per_unit`` records.

Symbols: ``k`` trees, ``h`` depth, ``m = k (1 + floor(log2 h))`` tests one record can be in,
``sigma`` noise of a test, ``Delta`` slack, ``tau`` threshold of the tests, ``Phi`` and ``phi`` the
standard normal distribution function and density.
"""

# Notes beside the code
# =====================
#
# Assumptions of all notes. Neighbours differ by adding or removing one unit of at most g records.
# Names, kinds, bounds, categories, classes and hyperparameters are public and the same for both
# tables. The noise is secret and independent of everything public, of the splits in particular.
# The observer sees the result of every query, the path of every test included, but not how long
# anything took and not the memory of the process: timing is out of scope.
#
# Note 1: a unit and its tests
# ----------------------------
# A record is in at most m tests (the search tests at most 1 + floor(log2 h) nodes that contain it
# in each of k trees). Let c_v <= g be how many records of the unit are in the tested node v: the
# sum of c_v over all tests is at most g m, so the sum of c_v^2 is at most g^2 m, and at most g m
# tests see the unit at all. The same holds for the k leaves of each record, with k for m. The
# search chooses the next test from the results of earlier ones: everything below is adaptive.
#
# Note 2: the adaptive bound (forest_delta)
# -----------------------------------------
# Let D be a table, D' the table with one unit more, c' >= c the counts of a tested node in D' and
# D. A test with threshold tau passes with probability p(count), where p(x) = 0 if
# x <= tau - g - Delta and p(x) = Phi((x - tau) / sigma) otherwise. tau >= g + Delta, so an empty
# node never passes. A test on D' is
#   - "lone" if c <= tau - g - Delta: on D it fails surely, and on D' it passes with probability
#     q_v <= Phi((c + g - tau) / sigma) <= Phi(-Delta / sigma) =: q;
#   - "shared" otherwise: on both tables it is the event count + N(0, sigma^2) >= tau, that is, a
#     post-processing of a Gaussian mechanism of sensitivity c' - c <= g.
# Let P be the distribution of the transcript (all results in order, those of Gaussian leaves and
# guide included) on D', Q on D, and P0 the one on D' when lone tests always fail. Under P0 and Q
# lone tests say nothing and the rest is an adaptive composition of Gaussian mechanisms, so the
# pair (P0, Q) is mu-GDP, in both orders, with mu^2 the sum of all (sensitivity / sigma)^2 (Dong,
# Roth, Su 2022, section 3). L = -g m ln(1 - q) = -g m ln Phi(Delta / sigma).
#   Add. Run P and P0 on the same randomness; they agree unless a lone test passes. There are at
#   most g m lone tests, whatever the adversary chooses, and each one fails with probability at
#   least 1 - q given the past, so by induction none passes with probability at least e^-L. Hence
#   P(S) <= P0(S) + 1 - e^-L <= e^eps Q(S) + delta_G(eps; mu) + 1 - e^-L.
#   Remove. A transcript x that P0 can give contains no passed lone test, and
#   P(x) = P0(x) * product over its lone tests of (1 - q_v) >= e^-L P0(x). Hence
#   Q(S) <= e^(eps - L) P0(S) + delta_G(eps - L; mu) <= e^eps P(S) + delta_G(eps - L; mu).
# delta_G may be replaced by any curve valid for the pair (P0, Q) in both orders: as soon as an
# exponential mechanism is part of the transcript, by that of zCDP with rho = mu^2 / 2 + rho_leaf
# (zCDP composes adaptively, Bun and Steinke 2016, lemma 2.3).
# A maximum over a *fixed* number of lone tests (Wilkins et al. 2024, fixed_j_delta) is exact for a
# histogram of fixed size but no bound here: the adversary may decide, test by test and knowing the
# loss so far, which kind comes next.
#
# Note 3: rounded Gaussian noise
# ------------------------------
# For an integer count n, round(n + N(0, sigma^2)) = n + round(N(0, sigma^2)) in distribution,
# because rounding to the nearest integer commutes with shifts by integers (ties have probability
# 0). The left side is a function of the output of the Gaussian mechanism that does not look at the
# data: post-processing. So integer noise round(N(0, sigma^2)) has exactly the guarantee of
# N(0, sigma^2), with no discretisation term. The same holds on a public grid, in grid steps.
# Assumes: contributions are integers (or were put on the grid record by record, without
# increasing their norm).
#
# Note 4: the exponential mechanism (exponential_rho)
# ---------------------------------------------------
# A leaf draws class c with probability proportional to exp(eps_t n_c). Adding one record raises
# one count by 1 and changes no other, so the log-ratio of the probabilities of outcome c on the
# two tables is eps_t [c is its class] - ln(Z'/Z): its range over outcomes is eps_t, not 2 eps_t,
# because counts are monotone in the records. The mechanism is eps_t-bounded-range (Dong, Durfee,
# Rogers 2020), and eps-bounded range implies (eps^2 / 8)-zCDP (Cesar and Rogers 2021; Rogers and
# Steinke, "A better privacy analysis of the exponential mechanism", 2021) by Hoeffding's lemma. A
# unit with c_v records in leaf v has range c_v eps_t, and by note 1 the sum is at most
# k (g eps_t)^2 / 8. Assumes: the public list of classes, add/remove (replacing a record is not
# monotone), unweighted counts.
#
# Note 5: finite precision (finite_precision)
# -------------------------------------------
# Let P, Q be ideal and P', Q' what the samplers do: probabilities in product form off by a factor
# of at most e^s over all draws that can depend on a unit, then by at most t in total variation.
# P'(S) <= e^s P(S) + t <= e^s (e^eps Q(S) + delta) + t
#       <= e^(eps + 2 s) Q'(S) + e^s delta + (1 + e^(eps + 2 s)) t.
# So 2 s is subtracted from epsilon, and delta is reduced by (1 + e^eps) t and a factor e^-s. Both
# tables are sampled inexactly: that is the factor 2 of s.
#
# Note 6: several fits (account_limits, accounts_delta)
# -----------------------------------------------------
# An analyst chooses fits one after another, each with its parameters, from the results of all
# earlier ones. Limits are fixed before the first fit: M = mu^2 and L of note 2, rho, and the 2 s
# and t of note 5. A fit takes what its calibration spends from every account before it reads a
# record and is refused if one would be overdrawn. So on *every* path, not only on average,
#   sum of mu_i^2 <= M, sum of L_i <= L, sum of rho_i <= rho, sum of s_i <= s, sum of t_i <= t.
# Whether a fit is refused is a function of earlier results: it tells nothing new.
# Let P, Q and P0 be as in note 2, for the whole interaction.
#   The pair (P0, Q), in both orders, is an adaptive composition of Gaussian mechanisms whose mu_i
#   are themselves chosen adaptively, under the constraint that the sum of mu_i^2 never exceeds M:
#   it is sqrt(M)-GDP (a filter: Smith and Thakurta 2022, "Fully adaptive composition for Gaussian
#   differential privacy"; the log-likelihood ratio is that of a Brownian motion, stopped before
#   time M, and stopping is post-processing). With exponential mechanisms, it is zCDP with
#   M/2 + rho (Feldman and Zrnic 2021, "Individual privacy accounting via a Renyi filter", for each
#   order; Whitehouse, Ramdas, Rogers and Wu 2023, "Fully adaptive composition in differential
#   privacy").
#   Add. From a state with l left of L, no lone test passes with probability at least e^-l: by
#   backward induction over the tests, as each fails with probability at least e^-l_j and the l_j
#   of a path sum to at most l. Hence P(S) <= P0(S) + 1 - e^-L.
#   Remove. On a transcript that P0 can give, P(x) >= P0(x) times the product over its lone tests
#   of e^-l_j, so P(x) >= e^-L P0(x).
# Both directions of note 2 follow with the limits in place of what one forest spends, and note 5
# in the form K' f <= e^s_i K f + t_i for every step and every f in [0, 1], again by backward
# induction: P'(S) <= e^s (P(S) + t) and Q(S) <= e^s (Q'(S) + t), so that
#   P'(S) <= e^(eps + 2 s) Q'(S) + e^s delta + (e^s + e^(eps + 2 s)) t.
# What would not do: adding up the mu_i^2 and the L_i and letting a fit through as long as
# delta(sum of mu_i^2, sum of L_i) <= delta. The set of pairs that this allows is not one box. The
# analyst can spend on the Gaussian side first and, depending on the loss seen so far, turn the
# rest into lone tests (which add failure probability whatever the loss) or into more Gaussian
# noise (which pays where the loss is already near eps): it has the larger of two values in each
# case, an expectation of a maximum where delta() knows only a maximum of expectations. A dynamic
# program over such analysts reaches 1.97 times delta. With fixed limits there is nothing to turn
# into anything else: what is left of one account is worthless to the others.
# Assumes, beside the assumptions of all notes: every query on the records is charged; a record's
# part in a query (the fold it falls in, say) depends on that record and on fresh or public
# randomness, not on the other records.

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

__all__ = [
    "Calibration",
    "FinitePrecision",
    "HierarchyCalibration",
    "Spending",
    "account_delta",
    "account_limits",
    "accounts_delta",
    "calibrate",
    "calibrate_hierarchy",
    "closed_form_noise",
    "count_noise",
    "exponential_epsilon",
    "exponential_rho",
    "finite_precision",
    "fixed_j_delta",
    "forest_delta",
    "gaussian_delta",
    "gaussian_mu",
    "hierarchy_precision",
    "hierarchy_tests",
    "max_error",
    "needed_precision",
    "recomputed_delta",
    "slack_for_tail",
    "spending",
    "tail_delta",
    "tests_per_record",
    "zcdp_delta",
    "zcdp_rho",
]

_ULP = 2.0**-52
_TINY = 2.2250738585072014e-308  # smallest normal double: what an underflowing delta is reported as
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# Gauss-Legendre rule on [0, 1] for _log_gaussian_delta: 64 nodes leave a relative error below
# 1e-15 because the integrand is entire and falls by e^-45 over the interval.
_DECADES = 45.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS

# Finite precision, see finite_precision.
_RELATIVE_ERROR = 2.0**-40
_ABSOLUTE_ERROR = 2.0**-64
_ALARMS_PER_NODE = 32
_NOISE_CELLS = 2**11
_GRID_CELLS = 2**16  # sums on a grid: at most 2^12 steps of sigma (guide.LARGEST_SIGMA)
_GUIDE_QUERIES = 9  # marginals, 3 rounds of residuals, 4 of curvature, one histogram

_SHARES = ("guide", "structure", "leaves")
_METHODS = ("binary_search", "top_down", "top_down_dense")
_RESIDUAL_SHARE = 0.75  # of the budget for counts, see count_noise

# What a ledger sets aside for finite precision: of min(epsilon, 1) and of delta.
_LEDGER_PRECISION_EPSILON = 1 / 400
_LEDGER_PRECISION_DELTA = 1 / 100


# ---------------------------------------------------------------------------------------------
# checks


def _check_integer(name: str, value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be an integer >= 1, not a bool.")
    try:
        value = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}.") from None
    if value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
    return value


def _check_real(name: str, value: Any, requirement: str, holds: Callable[[Any], bool]) -> float:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if not real or math.isnan(value) or not holds(value):
        raise ValueError(f"{name} must be {requirement}, got {value!r}.")
    return float(value)


def _check_epsilon(epsilon: float) -> float:
    return _check_real(
        "epsilon", epsilon, "a number > 0 (math.inf switches all noise off)", lambda v: v > 0
    )


def _check_delta(delta: float) -> float:
    return _check_real(
        "delta",
        delta,
        "a number with 0 < delta < 1, usually below 1 / (number of records)",
        lambda v: 0 < v < 1,
    )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def _check_shares(shares: Mapping[str, float], accounting: str) -> tuple[float, ...]:
    """Return the shares (guide, structure, leaves), divided by their sum."""
    try:
        shares = dict(shares)
    except (TypeError, ValueError):
        raise ValueError(
            f"budget_shares must be a dict with the keys {', '.join(map(repr, _SHARES))}, "
            f"got {shares!r}."
        ) from None
    unknown = [name for name in shares if name not in _SHARES]
    if unknown:
        raise ValueError(
            f"budget_shares holds the unknown name {unknown[0]!r}; known are "
            f"{', '.join(map(repr, _SHARES))}."
        )
    values = [
        _check_real(
            f"budget_shares[{name!r}]",
            shares.get(name, 0.0),
            "a finite number >= 0",
            lambda v: 0 <= v < math.inf,
        )
        for name in _SHARES
    ]
    total = math.fsum(values)
    if abs(total - 1.0) > 1e-9:
        raise ValueError(f"budget_shares must sum to 1, they sum to {total!r}.")
    for name, value in zip(_SHARES, values, strict=True):
        if value == 0 and name != "guide":
            raise ValueError(
                f"budget_shares[{name!r}] must be > 0: no finite noise protects the {name} "
                "without a share of the budget."
            )
    if values[0] > 0 and accounting == "split":
        raise ValueError(
            "budget_shares['guide'] must be 0 with accounting='split', which pays for structure "
            "and leaves only; use accounting='joint' or splitter='random'."
        )
    return tuple(value / total for value in values)


# ---------------------------------------------------------------------------------------------
# rounding


def _up(value: float, relative: float = 4 * _ULP) -> float:
    """Round a non-negative number up by a relative error and cap it at 1."""
    return min(1.0, math.nextafter(value * (1.0 + relative), math.inf))


def _exp_up(log_value: float) -> float:
    """Upper bound of exp(log_value) as a delta: in [smallest normal double, 1]."""
    if log_value >= 0:
        return 1.0
    if log_value < -708.0:
        return _TINY
    return _up(math.exp(log_value), (4 - log_value) * _ULP)


def _nudge(value: float, sign: int, holds: Callable[[float], bool]) -> float:
    """Move a positive value up (sign 1) or down (-1) by as few ulps as make `holds` true."""
    step = _ULP
    while not holds(value):
        value *= 1.0 + sign * step
        step = min(2 * step, 0.5)
    return value


def _log_root(function: Callable[[float], float], start: float) -> float:
    """Root of an increasing function of log(x), bracketed outwards from x = start."""
    low = high = math.log(start)
    while function(low) > 0:
        high, low = low, low - 1.0
    while function(high) < 0:
        low, high = high, high + 1.0
    if low == high:
        return math.exp(low)
    return math.exp(brentq(function, low, high, xtol=1e-15, rtol=4 * _ULP, maxiter=200))


# ---------------------------------------------------------------------------------------------
# Gaussian differential privacy


def _log_gaussian_delta(epsilon: float, mu: float) -> float:
    r"""Upper bound of ln delta_G(epsilon; mu) for epsilon >= 0, mu > 0.

    With a = mu/2 - epsilon/mu and b = a - mu, e^epsilon phi(b) = phi(a), so that
    delta_G = phi(a) (R(a) - R(b)), R = Phi/phi. R(x) is the integral over t > 0 of
    exp(x t - t^2/2); hence, without any cancellation,

        R(a) - R(b) = integral over t > 0 of exp(a t - t^2/2) (1 - exp(-mu t)).

    The quadrature serves mu < 1; from mu = 1 on the difference loses no more than two digits.
    """
    mu = max(mu, 1e-300)
    shift = epsilon / mu
    if shift > 1e100:
        return -math.inf
    a = 0.5 * mu - shift
    if mu < 1.0:
        end = 2 * _DECADES / (math.sqrt(a * a + 2 * _DECADES) - a)
        t = end * _NODES
        integral = float(_WEIGHTS @ (np.exp(t * (a - 0.5 * t)) * -np.expm1(-mu * t)))
        log_delta = math.log(end * integral) - 0.5 * a * a - _HALF_LOG_2PI
    elif a <= 0:
        mills = float(erfcx(-a * math.sqrt(0.5)) - erfcx((mu - a) * math.sqrt(0.5)))
        log_delta = math.log(0.5 * mills) - 0.5 * a * a
    else:
        other = 0.5 * math.exp(-0.5 * a * a) * float(erfcx((mu - a) * math.sqrt(0.5)))
        log_delta = math.log1p(-float(ndtr(-a)) - other)
    # a carries a relative error of 2 ulp of its terms, and d ln phi(a) = -a da.
    steepness = -a if a < 0 else min(a, 1.0)
    return log_delta + (128 + 8 * steepness * (0.5 * mu + shift)) * _ULP


def gaussian_delta(epsilon: float, mu: float) -> float:
    r"""Delta of mu-Gaussian differential privacy at epsilon.

    .. math:: \delta_G(\epsilon; \mu) = \Phi(\mu/2 - \epsilon/\mu)
              - e^\epsilon \Phi(-\mu/2 - \epsilon/\mu)

    Parameters
    ----------
    epsilon : float
        Any real number; a negative one is answered by
        delta_G(-e) = 1 - exp(-e) + exp(-e) delta_G(e).
    mu : float
        Sensitivity divided by the standard deviation of the noise, >= 0. Gaussian mechanisms
        compose, adaptively too, by adding mu^2.

    Returns
    -------
    float
        Upper bound of the exact value, above it by less than 1e-11 relative if that is >= 1e-300;
        the smallest normal double where it underflows.

    References
    ----------
    Balle and Wang (2018), "Improving the Gaussian mechanism for differential privacy", theorem 8.
    Dong, Roth and Su (2022), "Gaussian differential privacy", corollary 2.13 and section 3.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    epsilon = _check_real("epsilon", epsilon, "a number", lambda v: True)
    mu = _check_real("mu", mu, "a number >= 0", lambda v: v >= 0)
    if epsilon == math.inf:
        return 0.0
    if mu == 0 or epsilon == -math.inf:
        return _up(-math.expm1(epsilon)) if epsilon < 0 else 0.0
    if mu == math.inf:
        return 1.0
    if epsilon < 0:
        return _up(math.exp(epsilon) * gaussian_delta(-epsilon, mu) - math.expm1(epsilon))
    return _exp_up(_log_gaussian_delta(epsilon, mu))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu whose :func:`gaussian_delta` at epsilon is at most delta.

    Parameters
    ----------
    epsilon : float
        > 0; infinity gives infinity.
    delta : float
        0 < delta < 1.

    Returns
    -------
    float
        mu, rounded down: ``gaussian_delta(epsilon, mu) <= delta`` always holds.

    Examples
    --------
    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    epsilon, delta = _check_epsilon(epsilon), _check_delta(delta)
    if epsilon == math.inf:
        return math.inf
    log_delta = math.log(delta)
    quantile = -float(ndtri_exp(log_delta))
    start = max(delta, 2 * epsilon / (quantile + math.sqrt(quantile * quantile + 2 * epsilon)))
    mu = _log_root(lambda s: _log_gaussian_delta(epsilon, math.exp(s)) - log_delta, start)
    return _nudge(mu, -1, lambda value: gaussian_delta(epsilon, value) <= delta)


# ---------------------------------------------------------------------------------------------
# zero-concentrated differential privacy


def _log_zcdp_bound(beta: float, epsilon: float, rho: float) -> float:
    """Upper bound of ln delta from the order alpha = 1 + beta, rounding errors added."""
    terms = (
        beta * (1 + beta) * rho,
        -beta * epsilon,
        -beta * math.log1p(1 / beta),
        -math.log1p(beta),
    )
    return math.fsum(terms) + 8 * _ULP * math.fsum(map(abs, terms)) + 4 * _ULP


def _log_zcdp_delta(epsilon: float, rho: float) -> float:
    """Upper bound of ln delta of rho-zCDP at epsilon (rho > 0), the best order found.

    The logarithm of the bound is convex in beta = alpha - 1 with derivative
    (1 + 2 beta) rho - epsilon - ln(1 + 1/beta), which increases. Every beta gives a valid bound,
    so the root need not be exact.
    """
    if 3 * rho - epsilon > 700:
        return 0.0
    low = math.log(min(1.0, math.exp(-max(3 * rho - epsilon, 0.0))))
    high = math.log(min(1e150, max(1.0, (max(epsilon, 0.0) + 0.7) / (2 * rho))))

    def derivative(log_beta: float) -> float:
        beta = math.exp(log_beta)
        return (1 + 2 * beta) * rho - epsilon - math.log1p(1 / beta)

    if derivative(high) <= 0:
        log_beta = high
    elif derivative(low) >= 0:
        log_beta = low
    else:
        log_beta = brentq(derivative, low, high, xtol=1e-9, rtol=1e-9, maxiter=500)
    return min(0.0, _log_zcdp_bound(math.exp(log_beta), epsilon, rho))


def zcdp_delta(epsilon: float, rho: float) -> float:
    r"""Delta of rho-zCDP at epsilon.

    .. math:: \delta = \inf_{\alpha > 1} \frac{e^{(\alpha-1)(\alpha\rho-\epsilon)}}{\alpha-1}
              \left(1-\frac1\alpha\right)^\alpha

    Parameters
    ----------
    epsilon : float
        Any real number.
    rho : float
        >= 0.

    Returns
    -------
    float
        Upper bound of the expression, at most 1.

    References
    ----------
    Bun and Steinke (2016), "Concentrated differential privacy: simplifications, extensions, and
    lower bounds". Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential
    privacy", corollary 13 (the optimal form).

    Examples
    --------
    >>> f"{zcdp_delta(1.0, 0.02):.2e}"
    '8.83e-08'
    """
    epsilon = _check_real("epsilon", epsilon, "a number", lambda v: True)
    rho = _check_real("rho", rho, "a number >= 0", lambda v: v >= 0)
    if epsilon == math.inf:
        return 0.0
    if rho == 0 or epsilon == -math.inf:
        return _up(-math.expm1(epsilon)) if epsilon < 0 else 0.0
    if rho == math.inf:
        return 1.0
    return _exp_up(_log_zcdp_delta(epsilon, rho))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho whose :func:`zcdp_delta` at epsilon is at most delta.

    Parameters
    ----------
    epsilon : float
        > 0; infinity gives infinity.
    delta : float
        0 < delta < 1.

    Returns
    -------
    float
        rho, rounded down: ``zcdp_delta(epsilon, rho) <= delta`` always holds.

    Examples
    --------
    >>> round(zcdp_rho(1.0, 1e-6), 5)
    0.02436
    """
    epsilon, delta = _check_epsilon(epsilon), _check_delta(delta)
    if epsilon == math.inf:
        return math.inf
    log_delta = math.log(delta)
    # Bun and Steinke's simple form, epsilon = rho + 2 sqrt(rho ln(1/delta)), solved for rho.
    start = (epsilon / (math.sqrt(epsilon - log_delta) + math.sqrt(-log_delta))) ** 2
    rho = _log_root(lambda s: _log_zcdp_delta(epsilon, math.exp(s)) - log_delta, start)
    return _nudge(rho, -1, lambda value: zcdp_delta(epsilon, value) <= delta)


def exponential_rho(n_draws: int, epsilon: float, records_per_unit: int = 1) -> float:
    """Rho of draws of the exponential mechanism with weights exp(epsilon * count).

    n_draws (records_per_unit epsilon)^2 / 8, see note 4 at the head of the module.

    Parameters
    ----------
    n_draws : int
        Draws that one record can be in (one a tree), >= 1.
    epsilon : float
        Weight of one record in the exponent, >= 0.
    records_per_unit : int, default=1
        Records of one unit.

    Returns
    -------
    float
        rho of their (adaptive) composition.

    References
    ----------
    Cesar and Rogers (2021), "Bounding, concentrating, and truncating: unifying privacy loss
    composition for data analytics". Rogers and Steinke (2021), "A better privacy analysis of the
    exponential mechanism".

    Examples
    --------
    >>> round(exponential_rho(30, 0.1), 6), round(exponential_rho(30, 0.1, records_per_unit=2), 6)
    (0.0375, 0.15)
    """
    n_draws = _check_integer("n_draws", n_draws)
    records_per_unit = _check_integer("records_per_unit", records_per_unit)
    epsilon = _check_real("epsilon", epsilon, "a number >= 0", lambda v: v >= 0)
    return n_draws * (records_per_unit * epsilon) ** 2 / 8


def exponential_epsilon(n_draws: int, rho: float, records_per_unit: int = 1) -> float:
    """Largest epsilon whose :func:`exponential_rho` is at most rho.

    Parameters
    ----------
    n_draws : int
        Draws that one record can be in (one a tree), >= 1.
    rho : float
        >= 0; infinity gives infinity.
    records_per_unit : int, default=1
        Records of one unit.

    Returns
    -------
    float
        Weight of one record in the exponent, rounded down.

    Examples
    --------
    >>> round(exponential_epsilon(30, 0.0375), 6)
    0.1
    """
    n_draws = _check_integer("n_draws", n_draws)
    records_per_unit = _check_integer("records_per_unit", records_per_unit)
    rho = _check_real("rho", rho, "a number >= 0", lambda v: v >= 0)
    if rho in (0.0, math.inf):
        return rho
    epsilon = math.sqrt(8 * rho / n_draws) / records_per_unit
    return _nudge(epsilon, -1, lambda e: exponential_rho(n_draws, e, records_per_unit) <= rho)


# ---------------------------------------------------------------------------------------------
# tests of the search


def tests_per_record(n_estimators: int, max_depth: int) -> int:
    """Tests m that one record can be in: n_estimators * (1 + floor(log2(max_depth))).

    A depth of 2^j costs as many tests as 2^(j+1) - 1, so depths of the form 2^j - 1 waste nothing.

    Parameters
    ----------
    n_estimators : int
        Trees, >= 1.
    max_depth : int
        Levels of a tree, >= 1.

    Returns
    -------
    int

    Examples
    --------
    >>> tests_per_record(30, 100), tests_per_record(30, 127), tests_per_record(30, 31)
    (210, 210, 150)
    """
    n_estimators = _check_integer("n_estimators", n_estimators)
    return n_estimators * _check_integer("max_depth", max_depth).bit_length()


tests_per_record.__test__ = False  # type: ignore[attr-defined]  # pytest would collect the name


def _log_fail_loss(n_tests: int, ratio: float) -> float:
    """Upper bound of L = -n_tests ln Phi(ratio)."""
    if n_tests == 0:
        return 0.0
    loss = -n_tests * float(log_ndtr(ratio))
    return max(loss * (1.0 + (32 + 4 * ratio * ratio) * _ULP), _TINY)


def _slack_ratio(n_tests: int, loss: float) -> float:
    """Ratio slack / sigma >= 0 at which -n_tests ln Phi(ratio) is `loss`."""
    return max(0.0, -float(ndtri_exp(math.log(-math.expm1(-loss / n_tests)))))


def tail_delta(n_tests: int, sigma: float, slack: float) -> float:
    r"""Probability that a node that only the unit can fill passes one of n tests.

    .. math:: 1 - \Phi(\Delta/\sigma)^n

    Parameters
    ----------
    n_tests : int
        Tests that one unit can be in: records_per_unit * :func:`tests_per_record`; 0 gives 0.
    sigma : float
        Standard deviation of the noise of a test, >= 0, in records. 0 gives 0.
    slack : float
        Delta >= 0, in records.

    Returns
    -------
    float
        Upper bound of the exact value.

    References
    ----------
    Wilkins, Kifer, Zhang and Karrer (2024), "Exact privacy analysis of the Gaussian sparse
    histogram mechanism", for tests fixed beforehand; note 2 for adaptive ones.

    Examples
    --------
    >>> f"{tail_delta(7, 11.5, 60.0):.2e}"
    '6.35e-07'
    """
    n_tests = _check_n_tests(n_tests)
    sigma = _check_real("sigma", sigma, "a finite number >= 0", lambda v: 0 <= v < math.inf)
    slack = _check_real("slack", slack, "a number >= 0", lambda v: v >= 0)
    if n_tests == 0 or sigma == 0:
        return 0.0
    return _up(-math.expm1(-_log_fail_loss(n_tests, slack / sigma)))


def _check_n_tests(n_tests: Any) -> int:
    is_zero = isinstance(n_tests, numbers.Integral) and n_tests == 0
    return 0 if is_zero and not isinstance(n_tests, bool) else _check_integer("n_tests", n_tests)


def slack_for_tail(n_tests: int, sigma: float, delta: float) -> float:
    """Smallest slack whose :func:`tail_delta` is at most delta (rounded up).

    Parameters
    ----------
    n_tests : int
        Tests that one unit can be in, >= 1.
    sigma : float
        Standard deviation of the noise of a test, >= 0.
    delta : float
        0 < delta < 1.

    Returns
    -------
    float
        Slack in records, >= 0.

    Examples
    --------
    >>> slack = slack_for_tail(7, 11.5, 5e-7)
    >>> round(slack, 1), tail_delta(7, 11.5, slack) <= 5e-7
    (60.5, True)
    """
    n_tests, delta = _check_integer("n_tests", n_tests), _check_delta(delta)
    sigma = _check_real("sigma", sigma, "a finite number >= 0", lambda v: 0 <= v < math.inf)
    if tail_delta(n_tests, sigma, 0.0) <= delta:
        return 0.0
    slack = max(sigma * _slack_ratio(n_tests, -math.log1p(-delta)), sigma * _ULP)
    return _nudge(slack, 1, lambda v: tail_delta(n_tests, sigma, v) <= delta)


def _curve_delta(epsilon: float, mu: float, rho: float) -> float:
    """Delta of all but the lone tests: Gaussian, or zCDP as soon as rho > 0."""
    if rho > 0:
        return zcdp_delta(epsilon, (0.5 * mu * mu + rho) * (1 + 8 * _ULP))
    return gaussian_delta(epsilon, mu * (1 + 8 * _ULP))


def _add_remove_delta(epsilon: float, mu: float, rho: float, loss: float) -> tuple[float, float]:
    """The two directions of note 2 for L = loss."""
    add = _up(_curve_delta(epsilon, mu, rho) - math.expm1(-loss))
    remove = _curve_delta(math.nextafter(epsilon - loss, -math.inf), mu, rho)
    return add, remove


def account_delta(epsilon: float, *, mu: float = 0.0, rho: float = 0.0, loss: float = 0.0) -> float:
    r"""Delta at epsilon of accounts that are spent to the last, in both directions.

    .. math:: \delta = \max\left( \delta_G(\epsilon; \mu) + 1 - e^{-L},\;
              \delta_G(\epsilon - L; \mu) \right)

    Parameters
    ----------
    epsilon : float
        Any real number.
    mu : float, default=0.0
        Root of the sum of mu^2 over all Gaussian mechanisms, tests included.
    rho : float, default=0.0
        zCDP of exponential mechanisms. If > 0, delta_G(.; mu) is replaced by the zCDP delta of
        mu^2/2 + rho.
    loss : float, default=0.0
        L, the sum of -n ln Phi(slack / sigma) over all forests, n the tests of a unit.

    Returns
    -------
    float
        Upper bound of the expression, at most 1. Sound for accounts whose limits were fixed
        beforehand (note 6 at the head of the module), not for sums that are added up later.

    Examples
    --------
    >>> round(account_delta(1.0, mu=1.0, loss=0.01), 6)
    0.136887
    """
    epsilon = _check_real("epsilon", epsilon, "a number", lambda v: True)
    mu = _check_real("mu", mu, "a number >= 0", lambda v: v >= 0)
    rho = _check_real("rho", rho, "a number >= 0", lambda v: v >= 0)
    loss = _check_real("loss", loss, "a number >= 0", lambda v: v >= 0)
    if epsilon == math.inf:
        return 0.0 if loss < math.inf else 1.0
    return max(_add_remove_delta(epsilon, mu, rho, loss))


def forest_delta(
    epsilon: float, *, mu: float, rho: float = 0.0, n_tests: int, sigma: float, slack: float
) -> float:
    r"""Delta of a whole forest at epsilon, sound under adaptive choice of the tests.

    .. math:: \delta = \max\left( \delta_G(\epsilon; \mu) + 1 - \Phi(\Delta/\sigma)^n,\;
              \delta_G(\epsilon + n \ln\Phi(\Delta/\sigma); \mu) \right)

    The first is for adding a unit, the second for removing it; proof in note 2 at the head of
    the module.

    Parameters
    ----------
    epsilon : float
        > 0; infinity gives 0.
    mu : float
        Root of the sum of mu^2 over all Gaussian parts, *the tests included*, >= 0.
    rho : float, default=0.0
        zCDP of exponential mechanisms. If > 0, delta_G(.; mu) is replaced by the zCDP delta of
        mu^2/2 + rho in both directions.
    n_tests : int
        Tests that one unit can be in: records_per_unit * :func:`tests_per_record`.
    sigma : float
        Standard deviation of the noise of a test, in records. 0 (no noise) gives 1.
    slack : float
        Delta, in records.

    Returns
    -------
    float
        Upper bound of the expression, at most 1.

    Examples
    --------
    A tree of seven tests a record, which together are 0.23-GDP:

    >>> f"{forest_delta(1.0, mu=0.23, n_tests=7, sigma=11.5, slack=60.0):.2e}"
    '1.18e-06'
    """
    epsilon, n_tests = _check_epsilon(epsilon), _check_n_tests(n_tests)
    mu = _check_real("mu", mu, "a number >= 0", lambda v: v >= 0)
    rho = _check_real("rho", rho, "a number >= 0", lambda v: v >= 0)
    sigma = _check_real("sigma", sigma, "a finite number >= 0", lambda v: 0 <= v < math.inf)
    slack = _check_real("slack", slack, "a number >= 0", lambda v: v >= 0)
    if epsilon == math.inf:
        return 0.0
    if n_tests and sigma == 0:
        return 1.0
    loss = _log_fail_loss(n_tests, slack / sigma) if n_tests else 0.0
    return account_delta(epsilon, mu=mu, rho=rho, loss=loss)


def fixed_j_delta(epsilon: float, *, n_tests: int, sigma: float, slack: float) -> float:
    r"""Delta of n tests of which a number j fixed beforehand is lone: for comparison only.

    The maximum over j of

    .. math:: 1 - \Phi^j + \Phi^j \delta_G(\epsilon - j\ln\Phi; \mu_j), \quad
              \delta_G(\epsilon + j\ln\Phi; \mu_j), \qquad
              \mu_j = \sqrt{n - j} / \sigma, \quad \Phi = \Phi(\Delta/\sigma).

    This is exact for histograms whose cells are fixed beforehand. A search that chooses its tests
    adaptively can exceed it, so nothing is calibrated by it; :func:`forest_delta` is the bound.
    Computed in the textbook form, relative error up to about 1e-8.

    Parameters
    ----------
    epsilon : float
        > 0.
    n_tests : int
        >= 1.
    sigma, slack : float
        In records, sigma > 0, slack >= 0.

    Returns
    -------
    float
        The maximum; neither bound nor rounded.

    References
    ----------
    Wilkins, Kifer, Zhang and Karrer (2024), "Exact privacy analysis of the Gaussian sparse
    histogram mechanism".

    Examples
    --------
    >>> fixed = fixed_j_delta(1.0, n_tests=7, sigma=11.5, slack=60.0)
    >>> adaptive = forest_delta(1.0, mu=7**0.5 / 11.5, n_tests=7, sigma=11.5, slack=60.0)
    >>> f"{fixed:.2e}", f"{adaptive:.2e}"
    ('6.35e-07', '1.18e-06')
    """
    epsilon, n_tests = _check_epsilon(epsilon), _check_integer("n_tests", n_tests)
    sigma = _check_real("sigma", sigma, "a finite number > 0", lambda v: 0 < v < math.inf)
    slack = _check_real("slack", slack, "a number >= 0", lambda v: v >= 0)
    if epsilon == math.inf:
        return 0.0
    lone = np.arange(n_tests)
    mu = np.sqrt(n_tests - lone) / sigma
    log_fail = float(log_ndtr(slack / sigma))
    add = _textbook_delta(epsilon - lone * log_fail, mu)
    add = np.exp(lone * log_fail) * add - np.expm1(lone * log_fail)
    remove = _textbook_delta(epsilon + lone * log_fail, mu)
    all_lone = -math.expm1(n_tests * log_fail), -math.expm1(min(0.0, epsilon + n_tests * log_fail))
    return max(float(add.max()), float(remove.max()), *all_lone)


def _textbook_delta(epsilon: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """delta_G as a difference of two terms; cancels for small mu."""
    upper = log_ndtr(0.5 * mu - epsilon / mu)
    lower = np.minimum(epsilon + log_ndtr(-0.5 * mu - epsilon / mu) - upper, 0.0)
    return -np.exp(upper) * np.expm1(lower)


# ---------------------------------------------------------------------------------------------
# finite precision


class FinitePrecision(NamedTuple):
    """What inexact sampling may cost: both numbers are subtracted before calibration.

    Attributes
    ----------
    epsilon, delta : float
        In the sense of (epsilon, delta)-differential privacy, >= 0.

    Examples
    --------
    >>> allowance = hierarchy_precision(1.0, height=100, method="binary_search")
    >>> f"{allowance.epsilon:.1e}", f"{allowance.delta:.1e}"
    ('8.4e-08', '4.2e-14')
    """

    epsilon: float
    delta: float


def finite_precision(
    epsilon: float,
    *,
    n_estimators: int,
    max_depth: int,
    n_features: int,
    n_classes: int,
    records_per_unit: int = 1,
    guide: bool = True,
    noise_cells: float = _NOISE_CELLS,
) -> FinitePrecision:
    """Allowance for the finite precision of the samplers, from public numbers alone.

    Counted are the draws that can depend on one unit, never the draws made (a private number).

    - Search: for each of m tests of a record the nodes on its path, at most `max_depth`; in each
      node one draw for the first alarm and, per alarm, one for the next skip and one for the
      thinning. (On a path only one node of each round draws skips, which pays for the last
      thinning in the tested node.) A node draws alarms only while their expected number is below
      1/2, so more than 32 have a probability below 2^-150, which is far inside the absolute
      allowance. With g records per unit, g times as many.
    - Noise: `n_classes` cells in a leaf of each tree, and for a guide up to 9 queries of
      (n_features + 1) n_classes cells, again times g.

    A draw of the search is off by a relative error of 2^-40. A plain test, one comparison of 64
    bits, adds an absolute error of 2^-64; there are at most m. (The draws of alarms resolve small
    probabilities to 2^-76 of themselves and add none.) Rounded Gaussian noise has many outcomes,
    and 2^-64 is the error of each boundary between two of them: at most 12 sigma + 8 <
    `noise_cells` outcomes have a probability too small (< 2^-23) for 2^-64 to count as a relative
    error. An error of x ulp in the argument of the normal distribution moves a cell's probability
    by a relative x sigma ulp: noise_cells / 2^10 times 2^-40 for sigma = noise_cells / 16.
    The sums enter as in note 5 at the head of the module.

    Parameters
    ----------
    epsilon : float
        The epsilon asked for, finite and > 0.
    n_estimators, max_depth, n_features, n_classes : int
        Size of the forest and of its public domain.
    records_per_unit : int, default=1
        Records of one unit.
    guide : bool, default=True
        Whether a guide is sampled.
    noise_cells : int, default=2048
        At least 16 times the largest sigma, in grid steps, of rounded Gaussian noise.

    Returns
    -------
    FinitePrecision
        (epsilon, delta) to subtract; delta is capped at 1. Beyond that, the rest of delta
        shrinks by the factor exp(-allowance.epsilon / 2).

    Examples
    --------
    >>> allowance = finite_precision(
    ...     1.0, n_estimators=30, max_depth=100, n_features=14, n_classes=2
    ... )
    >>> f"{allowance.epsilon:.1e}", f"{allowance.delta:.1e}"
    ('2.5e-06', '1.4e-13')
    """
    epsilon = _check_real("epsilon", epsilon, "a finite number > 0", lambda v: 0 < v < math.inf)
    n_classes = _check_integer("n_classes", n_classes)
    records_per_unit = _check_integer("records_per_unit", records_per_unit)
    n_tests = tests_per_record(n_estimators, max_depth)
    search = n_tests * max_depth * (2 * _ALARMS_PER_NODE + 2)
    cells = n_estimators + _GUIDE_QUERIES * (_check_integer("n_features", n_features) + 1) * guide
    noise = n_classes * cells
    return _allowance(epsilon, records_per_unit, search, n_tests, noise, noise_cells)


def _allowance(
    epsilon: float, unit: int, draws: int, n_tests: int, noise: int, noise_cells: float
) -> FinitePrecision:
    """Allowance from what one record is in: draws of the search, tests, and noisy cells."""
    relative = unit * (draws + noise * noise_cells / 2**10) * _RELATIVE_ERROR
    absolute = unit * (n_tests + noise * noise_cells) * _ABSOLUTE_ERROR
    # 1 + r on one side and 1 / (1 - r) on the other differ by less than r^2, covered by the 2^-30.
    return FinitePrecision(
        2 * relative * (1 + 2.0**-30),
        _up(absolute * (1 + math.exp(min(epsilon, 600.0)))),
    )


# ---------------------------------------------------------------------------------------------
# calibration


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Noise of a forest and the guarantee that it was calibrated for; only public numbers.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee asked for. `delta` is 0.0 with `epsilon` infinite.
    accounting : {"joint", "split"}
    leaf : {"counts", "majority"}
    n_estimators, max_depth, records_per_unit : int
    budget_shares : tuple of (str, float)
        Pairs (name, share) for guide, structure, leaves; they sum to 1.
    tests_per_record : int
        m, without the factor records_per_unit.
    sigma_tests : float
        Standard deviation of the noise of a test, in records.
    slack : float
        Delta, in records.
    threshold : float
        tau >= records_per_unit + slack, in records. In floating point too,
        ``(threshold - records_per_unit) - slack >= 0``.
    sigma_leaves : float or None
        Standard deviation of the noise of a leaf count; None for majority leaves.
    epsilon_leaf : float or None
        Weight of one record in the exponential mechanism; None for counts leaves.
    mu_guide : float
        mu of the whole guide for one *unit*: queries with l2 sensitivity s_i per record and noise
        sigma_i must satisfy sum (records_per_unit s_i / sigma_i)^2 <= mu_guide^2. 0.0 if no guide.
    precision_epsilon, precision_delta : float
        Allowance for finite precision, already subtracted (see `finite_precision`).

    Examples
    --------
    >>> shares = {"structure": 0.75, "leaves": 0.25}
    >>> noise = calibrate(1.0, 1e-6, n_estimators=30, max_depth=100, budget_shares=shares,
    ...                   n_features=14, n_classes=2)
    >>> round(noise.sigma_tests, 1), round(noise.sigma_leaves, 1), round(noise.threshold)
    (72.3, 47.3, 428)
    """

    epsilon: float
    delta: float
    accounting: str
    leaf: str
    n_estimators: int
    max_depth: int
    records_per_unit: int
    budget_shares: tuple[tuple[str, float], ...]
    tests_per_record: int
    sigma_tests: float
    slack: float
    threshold: float
    sigma_leaves: float | None
    epsilon_leaf: float | None
    mu_guide: float
    precision_epsilon: float
    precision_delta: float

    @property
    def mu_structure(self) -> float:
        """mu of all tests for one unit: records_per_unit sqrt(m) / sigma_tests."""
        return _gaussian_mu_of(self.records_per_unit, self.tests_per_record, self.sigma_tests)

    @property
    def mu_leaves(self) -> float:
        """mu of Gaussian leaf counts for one unit; 0.0 for majority leaves."""
        if self.leaf == "majority":
            return 0.0
        sigma = cast(float, self.sigma_leaves)  # None for majority leaves only
        return _gaussian_mu_of(self.records_per_unit, self.n_estimators, sigma)

    @property
    def rho_leaves(self) -> float:
        """zCDP of majority leaves for one unit; 0.0 for counts leaves (see `mu_leaves`)."""
        if self.leaf == "counts":
            return 0.0
        epsilon = cast(float, self.epsilon_leaf)  # None for counts leaves only
        return exponential_rho(self.n_estimators, epsilon, self.records_per_unit)

    @property
    def mu_parts(self) -> tuple[float, float, float]:
        """mu of every Gaussian part for one unit: structure, leaves, guide."""
        return self.mu_structure, self.mu_leaves, self.mu_guide

    @property
    def lone_tests(self) -> int:
        """Tests of one unit that could be of nodes which it alone fills (note 2)."""
        return self.records_per_unit * self.tests_per_record


def _gaussian_mu_of(sensitivity: int, count: int, sigma: float) -> float:
    return math.inf if sigma == 0 else sensitivity * math.sqrt(count) / sigma


def _core_budget(epsilon: float, delta: float, precision: FinitePrecision) -> tuple[float, float]:
    """What remains of (epsilon, delta) for exact samplers, rounded down."""
    core_epsilon = math.nextafter(epsilon - precision.epsilon, -math.inf)
    rest = math.nextafter(delta - precision.delta, -math.inf)
    return core_epsilon, rest * math.exp(-0.5 * precision.epsilon) * (1 - 16 * _ULP)


def _split_budget(
    epsilon: float, delta: float, shares: tuple[float, ...]
) -> tuple[tuple[float, float], ...]:
    """(epsilon, delta) of structure and leaves; each pair sums to at most the whole, exactly."""
    down = 1 - 4 * _ULP
    return tuple((epsilon * share * down, delta * share * down) for share in shares[1:])


def _best_tests(
    epsilon: float,
    delta: float,
    n_tests: int,
    largest: float,
    parts: Callable[[float], tuple[float, float]],
) -> tuple[float, float]:
    """Scale M of the budget and ratio slack / sigma at which the slack is smallest.

    `parts` maps M to (mu, rho) and `largest` is the M that leaves nothing to the tail. All sigma
    are proportional to 1 / M, so the slack is proportional to ratio / M.
    """

    def ratio(scale: float) -> float:
        mu, rho = parts(scale)
        rest = delta - _curve_delta(epsilon, mu, rho)
        if rest <= 0:
            return math.inf
        loss = -math.log1p(-rest)
        if _add_remove_delta(epsilon, mu, rho, loss)[1] > delta:
            loss = brentq(
                lambda v: _add_remove_delta(epsilon, mu, rho, v)[1] - delta, 0.0, loss, xtol=_TINY
            )
        return _slack_ratio(n_tests, max(loss, _TINY))

    log_max = math.log(largest)
    # The optimum is a few per cent below the largest scale; a factor of e^3 covers delta near 1.
    found = minimize_scalar(
        lambda s: min(ratio(math.exp(s)) / math.exp(s - log_max), 1e300),
        bounds=(log_max - 3.0, log_max),
        method="bounded",
        options={"xatol": 1e-5},
    )
    scale = math.exp(found.x)
    return scale, ratio(scale)


def _joint_parts(leaf: str, shares: tuple[float, ...]) -> Callable[[float], tuple[float, float]]:
    """Map from the scale M to (mu, rho) of everything: M^2 is mu^2, or 2 rho with majority."""
    if leaf == "counts":
        return lambda scale: (scale, 0.0)
    gaussian = math.sqrt(shares[0] + shares[1])
    return lambda scale: (gaussian * scale, 0.5 * shares[2] * scale * scale)


def _largest_scale(epsilon: float, delta: float, leaf: str) -> float:
    if leaf == "counts":
        return gaussian_mu(epsilon, delta)
    return math.sqrt(2 * zcdp_rho(epsilon, delta))


def _noise_of(
    leaf: str,
    mu_tests: float,
    mu_leaves: float,
    mu_guide: float,
    ratio: float,
    *,
    n_tests: int,
    n_estimators: int,
    unit: int,
) -> dict[str, Any]:
    """Noise fields of a `Calibration` from the mu of each part (majority: mu^2 / 2 = rho)."""
    sigma = unit * math.sqrt(n_tests) / mu_tests
    majority = leaf == "majority"
    rho = 0.5 * mu_leaves * mu_leaves
    return {
        "sigma_tests": sigma,
        "slack": sigma * ratio,
        "sigma_leaves": None if majority else unit * math.sqrt(n_estimators) / mu_leaves,
        "epsilon_leaf": exponential_epsilon(n_estimators, rho, unit) if majority else None,
        "mu_guide": mu_guide,
    }


def _parts(
    epsilon: float,
    delta: float,
    leaf: str,
    accounting: str,
    shares: tuple[float, ...],
    n_tests_of_unit: int,
) -> tuple[float, float, float, float]:
    """mu of tests, leaves and guide, and the ratio slack / sigma, before the last nudge."""
    if accounting == "joint":
        largest = _largest_scale(epsilon, delta, leaf)
        scale, ratio = _best_tests(
            epsilon, delta, n_tests_of_unit, largest, _joint_parts(leaf, shares)
        )
        guide, tests, leaves = (scale * math.sqrt(share) for share in shares)
        return tests, leaves, guide, ratio
    (epsilon_1, delta_1), (epsilon_2, delta_2) = _split_budget(epsilon, delta, shares)
    largest = gaussian_mu(epsilon_1, delta_1)
    tests, ratio = _best_tests(
        epsilon_1, delta_1, n_tests_of_unit, largest, lambda scale: (scale, 0.0)
    )
    return tests, math.sqrt(2 * zcdp_rho(epsilon_2, delta_2)), 0.0, ratio


def _default_threshold(unit: int, slack: float) -> float:
    """unit + slack, rounded so that (threshold - unit) - slack >= 0 holds in floating point."""
    threshold: float = unit + slack
    while (threshold - unit) - slack < 0:
        threshold = math.nextafter(threshold, math.inf)
    return threshold


def _check_threshold(
    threshold: float | None,
    unit: int,
    slack: float,
    smaller: str = "fewer trees, a smaller max_depth or a larger share for the structure",
) -> float:
    if threshold is None:
        return _default_threshold(unit, slack)
    least = _default_threshold(unit, slack)  # told in full: rounded it would be refused, too
    threshold = _check_real("threshold", threshold, "a finite number", math.isfinite)
    if (threshold - unit) - slack < 0:
        raise ValueError(
            f"threshold must be at least records_per_unit + slack = {least!r} for this epsilon "
            f"and delta, got {threshold!r}; use threshold=None for the smallest one, or {smaller}."
        )
    return threshold


def _threshold_without_noise(threshold: float | None) -> float:
    if threshold is None:
        raise ValueError(
            "threshold must be given with epsilon=inf: without noise nothing else decides which "
            "nodes are heavy; with threshold=1 all are that are not empty."
        )
    return _check_real("threshold", threshold, "a finite number > 0", lambda v: 0 < v < math.inf)


def _no_noise(
    fields: dict[str, Any], shares: tuple[float, ...], threshold: float | None
) -> Calibration:
    threshold = _threshold_without_noise(threshold)
    counts = fields["leaf"] == "counts"
    return Calibration(
        **fields,
        delta=0.0,
        sigma_tests=0.0,
        slack=0.0,
        threshold=threshold,
        sigma_leaves=0.0 if counts else None,
        epsilon_leaf=None if counts else math.inf,
        mu_guide=math.inf if shares[0] > 0 else 0.0,
        precision_epsilon=0.0,
        precision_delta=0.0,
    )


def _refuse_precision(
    epsilon: float,
    delta: float,
    precision: FinitePrecision,
    smaller: str = "fewer trees or a smaller max_depth",
) -> NoReturn:
    what, remedy = (
        (f"epsilon={epsilon!r}", "use a larger epsilon")
        if precision.epsilon >= 0.5 * epsilon
        else (f"delta={delta!r}", "use a larger delta or a smaller epsilon")
    )
    raise ValueError(
        f"{what} cannot carry the finite precision of the samplers (allowance: epsilon "
        f"{precision.epsilon:.3g}, delta {precision.delta:.3g}): {remedy}, {smaller}; "
        "epsilon=inf switches all noise off."
    )


def _largest_noise(noise: Mapping[str, Any], unit: int, n_features: int, n_classes: int) -> float:
    """Largest sigma, in grid steps, of leaf counts and of the queries of a guide.

    A grid is never coarser than one record. On that grid the queries have a sensitivity s and a
    share w of mu^2 (guide.py) with s / sqrt(w) at most 16 sqrt(F C): sqrt(F / 0.45) for marginals,
    sqrt(7.5 F) (sqrt(2) + sqrt(C) / 2) for residuals, sqrt(80) (2 + sqrt(C) / 2) for curvature,
    sqrt(10 C) for the histogram.
    """
    leaves = noise["sigma_leaves"] or 0.0
    if noise["mu_guide"] == 0:
        return leaves
    return max(leaves, 16.0 * unit * math.sqrt(n_features * n_classes) / noise["mu_guide"])


def calibrate(
    epsilon: float,
    delta: float,
    *,
    n_estimators: int,
    max_depth: int,
    budget_shares: Mapping[str, float],
    n_features: int,
    n_classes: int,
    leaf: str = "counts",
    accounting: str = "joint",
    records_per_unit: int = 1,
    threshold: float | None = None,
    soft_labels: bool = False,
) -> Calibration:
    """Noise of a forest that is (epsilon, delta)-differentially private.

    The split of delta between the Gaussian curve and the tail of the tests is chosen so that the
    threshold is smallest.

    Parameters
    ----------
    epsilon : float
        > 0. Infinity means no noise; `threshold` must then be given and `delta` is ignored.
    delta : float
        0 < delta < 1.
    n_estimators, max_depth : int
        Trees and levels of the forest.
    budget_shares : dict
        Shares "guide" (optional), "structure" and "leaves", non-negative, sum 1. With
        accounting="joint" they are shares of mu^2 of the whole forest (with majority leaves of
        rho = mu^2 / 2); with "split" shares of epsilon and of delta, and no guide is allowed.
    n_features, n_classes : int
        Public sizes of the domain, for the finite-precision allowance. Regression counts as two
        classes.
    leaf : {"counts", "majority"}, default="counts"
        Gaussian counts or exponential mechanism in the leaves.
    accounting : {"joint", "split"}, default="joint"
        One account for everything, or basic composition of the structure with leaves that are
        calibrated by zCDP.
    records_per_unit : int, default=1
        Records that one unit can hold.
    threshold : float or None, default=None
        Threshold of the tests; the smallest one, records_per_unit + slack, if None.
    soft_labels : bool, default=False
        Whether leaves hold sums on a grid finer than a record (regression).

    Returns
    -------
    Calibration
        :func:`recomputed_delta` of it never exceeds `delta`.

    Raises
    ------
    ValueError
        For a parameter out of its range, a threshold that is too small, or an (epsilon, delta)
        that cannot carry the finite precision of the samplers.

    Examples
    --------
    >>> shares = {"structure": 0.75, "leaves": 0.25}
    >>> noise = calibrate(1.0, 1e-6, n_estimators=30, max_depth=100, budget_shares=shares,
    ...                   n_features=14, n_classes=2)
    >>> noise.tests_per_record, recomputed_delta(noise) <= 1e-6
    (210, True)
    """
    epsilon = _check_epsilon(epsilon)
    unit = _check_integer("records_per_unit", records_per_unit)
    n_tests = tests_per_record(n_estimators, max_depth)
    sizes = {
        "n_features": _check_integer("n_features", n_features),
        "n_classes": _check_integer("n_classes", n_classes),
    }
    _check_choice("leaf", leaf, ("counts", "majority"))
    _check_choice("accounting", accounting, ("joint", "split"))
    shares = _check_shares(budget_shares, accounting)
    fields: dict[str, Any] = {
        "epsilon": epsilon,
        "accounting": accounting,
        "leaf": leaf,
        "n_estimators": operator.index(n_estimators),
        "max_depth": operator.index(max_depth),
        "records_per_unit": unit,
        "budget_shares": tuple(zip(_SHARES, shares, strict=True)),
        "tests_per_record": n_tests,
    }
    if epsilon == math.inf:
        return _no_noise(fields, shares, threshold)
    fields["delta"] = _check_delta(delta)
    noise_cells = _GRID_CELLS if soft_labels or shares[0] > 0 else _NOISE_CELLS
    return _with_noise(fields, shares, sizes, threshold, noise_cells)


def _with_noise(
    fields: dict[str, Any],
    shares: tuple[float, ...],
    sizes: dict[str, int],
    threshold: float | None,
    noise_cells: int,
) -> Calibration:
    """`calibrate` for finite epsilon; repeated if the noise outgrows its precision allowance."""
    epsilon, delta, unit = fields["epsilon"], fields["delta"], fields["records_per_unit"]
    trees, n_tests, leaf = fields["n_estimators"], fields["tests_per_record"], fields["leaf"]
    precision = finite_precision(
        epsilon,
        n_estimators=trees,
        max_depth=fields["max_depth"],
        records_per_unit=unit,
        guide=shares[0] > 0,
        noise_cells=noise_cells,
        **sizes,
    )
    if precision.epsilon >= 0.5 * epsilon or precision.delta >= 0.5 * delta:
        _refuse_precision(epsilon, delta, precision)
    core = _core_budget(epsilon, delta, precision)
    tests, leaves, guide, ratio = _parts(*core, leaf, fields["accounting"], shares, unit * n_tests)

    def candidate(shrink: float) -> Calibration:
        noise = _noise_of(
            leaf,
            tests * shrink,
            leaves * shrink,
            guide * shrink,
            ratio / shrink,
            n_tests=n_tests,
            n_estimators=trees,
            unit=unit,
        )
        return Calibration(
            **fields,
            **noise,
            threshold=_default_threshold(unit, noise["slack"]),
            precision_epsilon=precision.epsilon,
            precision_delta=precision.delta,
        )

    shrink = _nudge(1.0, -1, lambda value: recomputed_delta(candidate(value)) <= delta)
    found = candidate(shrink)
    needed = 16 * _largest_noise(vars(found), unit, **sizes)
    if needed > noise_cells:
        return _with_noise(fields, shares, sizes, threshold, 2 ** math.ceil(math.log2(2 * needed)))
    given = _check_threshold(threshold, unit, found.slack)
    return Calibration(**{**vars(found), "threshold": given})


def recomputed_delta(calibration: Calibration | HierarchyCalibration) -> float:
    """Delta at `calibration.epsilon`, computed anew from the noise that was calibrated.

    With accounting="joint" :func:`forest_delta` of everything together; with "split" the sum of
    :func:`forest_delta` of the structure and :func:`zcdp_delta` of the leaves at their shares of
    epsilon. The finite-precision allowance is included.

    Parameters
    ----------
    calibration : Calibration or HierarchyCalibration

    Returns
    -------
    float
        Upper bound of the exact delta; 0.0 for epsilon infinite.

    Raises
    ------
    ValueError
        If the threshold is below records_per_unit + slack: no bound holds then.

    Examples
    --------
    >>> search = calibrate_hierarchy(1.0, 1e-6, height=100)
    >>> recomputed_delta(search) <= 1e-6
    True
    >>> from dataclasses import replace
    >>> f"{recomputed_delta(replace(search, sigma_tests=10.0)):.1e}"
    '8.0e-06'
    """
    c = calibration
    if c.epsilon == math.inf:
        return 0.0
    if c.lone_tests and not (c.threshold - c.records_per_unit) - c.slack >= 0:
        raise ValueError("threshold is below records_per_unit + slack: empty nodes could pass.")
    precision = FinitePrecision(c.precision_epsilon, c.precision_delta)
    epsilon, _ = _core_budget(c.epsilon, c.delta, precision)
    if not epsilon > 0:
        return 1.0
    if isinstance(c, HierarchyCalibration) or c.accounting == "joint":
        core = _recomputed_joint(c, epsilon)
    else:
        core = _recomputed_split(c, epsilon)
    return _up(core * math.exp(0.5 * precision.epsilon) + precision.delta)


def _recomputed_joint(c: Calibration | HierarchyCalibration, epsilon: float) -> float:
    return forest_delta(
        epsilon,
        mu=math.hypot(*c.mu_parts),
        rho=c.rho_leaves,
        n_tests=c.lone_tests,
        sigma=c.sigma_tests,
        slack=c.slack,
    )


def _recomputed_split(c: Calibration, epsilon: float) -> float:
    shares = tuple(share for _, share in c.budget_shares)
    (epsilon_1, _), (epsilon_2, _) = _split_budget(epsilon, c.delta, shares)
    if c.mu_guide > 0:
        return 1.0
    structure = forest_delta(
        epsilon_1,
        mu=c.mu_structure,
        n_tests=c.lone_tests,
        sigma=c.sigma_tests,
        slack=c.slack,
    )
    rho = 0.5 * c.mu_leaves**2 + c.rho_leaves
    return _up(structure + zcdp_delta(epsilon_2, rho * (1 + 8 * _ULP)))


def needed_precision(
    calibration: Calibration | HierarchyCalibration, *, n_features: int = 1, n_classes: int = 1
) -> FinitePrecision:
    """Least allowance for finite precision that the noise of a calibration needs.

    Parameters
    ----------
    calibration : Calibration or HierarchyCalibration
        With a finite epsilon.
    n_features, n_classes : int, default=1
        Public sizes of the domain of a forest. At their defaults a lower bound for every domain.

    Returns
    -------
    FinitePrecision
        What `calibrate` subtracts is never less.

    Examples
    --------
    >>> search = calibrate_hierarchy(1.0, 1e-6, height=100)
    >>> needed_precision(search).epsilon <= search.precision_epsilon
    True
    """
    c = calibration
    if isinstance(c, HierarchyCalibration):
        return hierarchy_precision(
            c.epsilon,
            height=c.height,
            method=c.method,
            records_per_unit=c.records_per_unit,
            counts=c.sigma_counts is not None,
            noise_cells=max(1.0, 16 * _largest_count_noise(c)),
        )
    largest = _largest_noise(vars(c), c.records_per_unit, n_features, n_classes)
    return finite_precision(
        c.epsilon,
        n_estimators=c.n_estimators,
        max_depth=c.max_depth,
        n_features=n_features,
        n_classes=n_classes,
        records_per_unit=c.records_per_unit,
        guide=c.mu_guide > 0,
        noise_cells=max(1.0, 16 * largest),
    )


# ---------------------------------------------------------------------------------------------
# one hierarchy


def hierarchy_tests(method: str, height: int) -> int:
    """Tests that one record can be in when a hierarchy of so many levels is searched.

    1 + floor(log2(height)) for "binary_search", one on each level for "top_down" and
    "top_down_dense". The root, which holds all records, is not tested and not counted.

    Parameters
    ----------
    method : {"binary_search", "top_down", "top_down_dense"}
        The last two differ in the nodes that are tested: "top_down_dense" also tests empty ones.
    height : int
        Levels that are searched, >= 1.

    Returns
    -------
    int

    Examples
    --------
    >>> [hierarchy_tests(method, 100) for method in ("binary_search", "top_down")]
    [7, 100]
    """
    _check_choice("method", method, _METHODS)
    if method == "binary_search":
        return tests_per_record(1, height)
    return _check_integer("height", height)


@dataclass(frozen=True, kw_only=True)
class HierarchyCalibration:
    """Noise of the heavy hitters of one hierarchy; only public numbers.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee asked for. `delta` is 0.0 with `epsilon` infinite.
    method : {"binary_search", "top_down", "top_down_dense"}
    height, records_per_unit : int
        Levels that are searched, the root not counted, and records of one unit.
    budget_shares : tuple of (str, float)
        Pairs (name, share) for structure and counts; they sum to 1.
    tests_per_record : int
        :func:`hierarchy_tests`, without the factor records_per_unit.
    sigma_tests : float
        Standard deviation of the noise of a test, in records.
    slack : float
        Delta, in records. Infinite for "top_down_dense": no count is too small to be heavy.
    threshold : float
        tau, in records; at least records_per_unit + slack, but for "top_down_dense".
    sigma_counts : float or None
        Standard deviation of the noise of one count that is worth the same as all that are
        released (:func:`count_noise`); None if there are none.
    precision_epsilon, precision_delta : float
        Allowance for finite precision, already subtracted (see `hierarchy_precision`).

    Examples
    --------
    >>> search = calibrate_hierarchy(1.0, 1e-6, height=100, count_share=0.25)
    >>> round(search.sigma_tests, 1), round(search.sigma_counts, 1), round(search.threshold)
    (13.3, 8.7, 71)
    """

    epsilon: float
    delta: float
    method: str
    height: int
    records_per_unit: int
    budget_shares: tuple[tuple[str, float], ...]
    tests_per_record: int
    sigma_tests: float
    slack: float
    threshold: float
    sigma_counts: float | None
    precision_epsilon: float
    precision_delta: float

    accounting = "joint"  # one mu for everything
    rho_leaves = 0.0  # no exponential mechanism

    @property
    def mu_structure(self) -> float:
        """mu of all tests for one unit: records_per_unit sqrt(tests) / sigma_tests."""
        return _gaussian_mu_of(self.records_per_unit, self.tests_per_record, self.sigma_tests)

    @property
    def mu_counts(self) -> float:
        """mu of the counts for one unit, as if a record were in one only; 0.0 if there are none."""
        if self.sigma_counts is None:
            return 0.0
        return _gaussian_mu_of(self.records_per_unit, 1, self.sigma_counts)

    @property
    def mu_parts(self) -> tuple[float, float]:
        """mu of every Gaussian part for one unit: structure, counts."""
        return self.mu_structure, self.mu_counts

    @property
    def lone_tests(self) -> int:
        """Tests of one unit that could be of nodes which it alone fills (note 2).

        None where empty nodes are tested with the same noise: their tests are plain Gaussian
        mechanisms.
        """
        if self.method == "top_down_dense":
            return 0
        return self.records_per_unit * self.tests_per_record


def hierarchy_precision(
    epsilon: float,
    *,
    height: int,
    method: str,
    records_per_unit: int = 1,
    counts: bool = True,
    noise_cells: float = _NOISE_CELLS,
) -> FinitePrecision:
    """Allowance for the finite precision of the samplers of one hierarchy.

    Counted as in `finite_precision`: the draws of one tree of this height, or of one plain test
    on each level for the top-down methods; and the noisy counts that one record is in, one of every
    node on its path and one more.

    Parameters
    ----------
    epsilon : float
        The epsilon asked for, finite and > 0.
    height : int
    method : {"binary_search", "top_down", "top_down_dense"}
    records_per_unit : int, default=1
    counts : bool, default=True
        Whether noisy counts are released.
    noise_cells : int, default=2048
        At least 16 times the largest noise of a count.

    Returns
    -------
    FinitePrecision

    Examples
    --------
    >>> allowance = hierarchy_precision(1.0, height=100, method="top_down")
    >>> f"{allowance.epsilon:.1e}", f"{allowance.delta:.1e}"
    ('5.5e-10', '4.2e-14')
    """
    epsilon = _check_real("epsilon", epsilon, "a finite number > 0", lambda v: 0 < v < math.inf)
    unit = _check_integer("records_per_unit", records_per_unit)
    n_tests = hierarchy_tests(method, height)
    draws = n_tests
    if method == "binary_search":
        draws = n_tests * height * (2 * _ALARMS_PER_NODE + 2)
    noise = height + 2 if counts else 0
    return _allowance(epsilon, unit, draws, n_tests, noise, noise_cells)


def count_noise(sigma: float, depth: int) -> tuple[float, float]:
    """Noise of the two queries for the counts of a hierarchy.

    The count of every heavy node, of which a record is in at most depth + 1, and the number of
    records of every heavy node that are in no heavy child of it, of which a record is in one. For
    one record the sum of 1 / noise^2 over all that it is in is at most 1 / sigma^2: both together
    cost no more than a single count with noise sigma.

    Parameters
    ----------
    sigma : float
        >= 0, in records.
    depth : int
        Largest depth of a heavy node; public, as the tree is released before.

    Returns
    -------
    own, residual : float
        Standard deviations, each rounded up.

    Examples
    --------
    >>> own, residual = count_noise(3.0, 8)
    >>> round(own, 6), round(residual, 6), 9 / own**2 + 1 / residual**2 <= 1 / 3.0**2
    (18.0, 3.464102, True)
    """
    up = 1 + 16 * _ULP
    own = sigma * math.sqrt((depth + 1) / (1 - _RESIDUAL_SHARE)) * up
    return own, sigma / math.sqrt(_RESIDUAL_SHARE) * up


def calibrate_hierarchy(
    epsilon: float,
    delta: float,
    *,
    height: int,
    method: str = "binary_search",
    count_share: float = 0.0,
    records_per_unit: int = 1,
    threshold: float | None = None,
) -> HierarchyCalibration:
    r"""Noise of heavy hitters of one hierarchy that are (epsilon, delta)-differentially private.

    As `calibrate` with joint accounting: one mu^2 for tests and counts, and the split of delta
    between the Gaussian curve and the tail of the tests with which the threshold is smallest.
    With rho = mu^2 / 2 of the tests, :math:`\sigma = \sqrt{m / (2 \rho)}` for m tests a record.

    Parameters
    ----------
    epsilon : float
        > 0. Infinity means no noise; `threshold` must then be given and `delta` is ignored.
    delta : float
        0 < delta < 1.
    height : int
        Levels that are searched, the root not counted.
    method : {"binary_search", "top_down", "top_down_dense"}, default="binary_search"
        See :func:`hierarchy_tests`. With "top_down_dense" empty nodes are tested, too; this needs
        no slack, but `threshold` must be given.
    count_share : float, default=0.0
        Share of mu^2 for noisy counts, 0 <= share < 1; see :func:`count_noise`.
    records_per_unit : int, default=1
        Records that one unit can hold.
    threshold : float or None, default=None
        Threshold of the tests; the smallest one, records_per_unit + slack, if None.

    Returns
    -------
    HierarchyCalibration
        :func:`recomputed_delta` of it never exceeds `delta`.

    Raises
    ------
    ValueError
        As `calibrate`.

    Examples
    --------
    >>> search = calibrate_hierarchy(1.0, 1e-6, height=100)
    >>> baseline = calibrate_hierarchy(1.0, 1e-6, height=100, method="top_down")
    >>> round(search.sigma_tests, 1), round(baseline.sigma_tests, 1)
    (11.5, 43.2)
    >>> recomputed_delta(search) <= 1e-6
    True
    """
    epsilon = _check_epsilon(epsilon)
    count_share = _check_real(
        "count_share", count_share, "a number with 0 <= share < 1", lambda v: 0 <= v < 1
    )
    fields: dict[str, Any] = {
        "epsilon": epsilon,
        "method": method,
        "height": _check_integer("height", height),
        "records_per_unit": _check_integer("records_per_unit", records_per_unit),
        "budget_shares": (("structure", 1.0 - count_share), ("counts", count_share)),
        "tests_per_record": hierarchy_tests(method, height),
    }
    if epsilon == math.inf:
        return HierarchyCalibration(
            **fields,
            delta=0.0,
            sigma_tests=0.0,
            slack=0.0,
            threshold=_threshold_without_noise(threshold),
            sigma_counts=0.0 if count_share else None,
            precision_epsilon=0.0,
            precision_delta=0.0,
        )
    fields["delta"] = _check_delta(delta)
    if method == "top_down_dense":
        if threshold is None:
            raise ValueError(
                "threshold must be given with method='top_down_dense', which has no smallest one."
            )
        threshold = _check_real("threshold", threshold, "a finite number", math.isfinite)
    return _hierarchy_with_noise(fields, threshold, _NOISE_CELLS)


def _largest_count_noise(calibration: HierarchyCalibration) -> float:
    """Largest noise of a count, whatever the depth that is found."""
    if calibration.sigma_counts is None:
        return 0.0
    return max(count_noise(calibration.sigma_counts, calibration.height))


def _hierarchy_with_noise(
    fields: dict[str, Any], threshold: float | None, noise_cells: int
) -> HierarchyCalibration:
    """`calibrate_hierarchy` for finite epsilon; repeated if the noise outgrows its allowance."""
    epsilon, delta, unit = fields["epsilon"], fields["delta"], fields["records_per_unit"]
    n_tests, method = fields["tests_per_record"], fields["method"]
    structure, counts = (share for _, share in fields["budget_shares"])
    precision = hierarchy_precision(
        epsilon,
        height=fields["height"],
        method=method,
        records_per_unit=unit,
        counts=counts > 0,
        noise_cells=noise_cells,
    )
    if precision.epsilon >= 0.5 * epsilon or precision.delta >= 0.5 * delta:
        _refuse_precision(epsilon, delta, precision, "or a smaller height")
    core = _core_budget(epsilon, delta, precision)
    scale, ratio = gaussian_mu(*core), math.inf
    if method != "top_down_dense":
        scale, ratio = _best_tests(*core, unit * n_tests, scale, lambda value: (value, 0.0))

    def candidate(shrink: float) -> HierarchyCalibration:
        mu = scale * shrink
        sigma = unit * math.sqrt(n_tests) / (mu * math.sqrt(structure))
        slack = sigma * ratio / shrink
        return HierarchyCalibration(
            **fields,
            sigma_tests=sigma,
            slack=slack,
            threshold=unit if math.isinf(slack) else _default_threshold(unit, slack),
            sigma_counts=unit / (mu * math.sqrt(counts)) if counts else None,
            precision_epsilon=precision.epsilon,
            precision_delta=precision.delta,
        )

    shrink = _nudge(1.0, -1, lambda value: recomputed_delta(candidate(value)) <= delta)
    found = candidate(shrink)
    needed = 16 * _largest_count_noise(found)
    if needed > noise_cells:
        return _hierarchy_with_noise(fields, threshold, 2 ** math.ceil(math.log2(2 * needed)))
    if method != "top_down_dense":
        threshold = _check_threshold(
            threshold, unit, found.slack, "a smaller height or a smaller count_share"
        )
    return replace(found, threshold=cast(float, threshold))  # given with "top_down_dense"


# ---------------------------------------------------------------------------------------------
# accuracy of the search


def max_error(
    max_depth: int, n_estimators: int, n_records: int, beta: float, *, sigma: float
) -> float:
    r"""Error of the heavy hitters that is exceeded with probability at most beta.

    .. math:: \alpha = \sigma\, \Phi^{-1}\left(1 - \frac{\beta}{2 k m}\right)
              \le \sigma \sqrt{2 \ln(2 k m / \beta)}, \qquad
              m = n \lceil \log_2(h + 1) \rceil

    With probability 1 - beta, in all k trees at once, every node with at least tau + alpha records
    is heavy and every heavy node has at least tau - alpha. Without any probability a heavy node
    has more than tau - records_per_unit - slack.

    Parameters
    ----------
    max_depth : int
        h, levels that are searched.
    n_estimators : int
        k, number of trees; 1 for a hierarchy.
    n_records : int
        n, which may be an upper bound. What follows from the true number is private.
    beta : float
        0 < beta < 1.
    sigma : float
        Standard deviation of the noise of a test, >= 0, in records.

    Returns
    -------
    float
        alpha in records, rounded up.

    Notes
    -----
    Every node that holds a record is in one of the m tests that the records of a tree can be in,
    and marks without a test follow from tests of smaller (heavy) or larger (light) counts, so the
    largest noise of all tests bounds the error (lemmas 4 and 5 of the paper, whose proof uses the
    looser right-hand side).

    References
    ----------
    "Lumberjack: Better Differentially Private Random Forests through Heavy Hitter Detection in
    Trees", lemmas 3 to 5 and theorem 6.

    Examples
    --------
    >>> sigma = calibrate_hierarchy(1.0, 1e-6, height=64).sigma_tests
    >>> round(max_error(64, 1, 1_000_000, 0.05, sigma=sigma))
    66
    """
    n_tests = _check_integer("n_records", n_records) * tests_per_record(n_estimators, max_depth)
    beta = _check_real("beta", beta, "a number with 0 < beta < 1", lambda v: 0 < v < 1)
    sigma = _check_real("sigma", sigma, "a finite number >= 0", lambda v: 0 <= v < math.inf)
    quantile = -float(ndtri_exp(math.log(beta) - math.log(2 * n_tests)))
    return sigma * quantile * (1 + 1e-12)


def closed_form_noise(
    epsilon: float, delta: float, *, n_estimators: int, max_depth: int
) -> tuple[float, float]:
    r"""Noise of the tests in closed form, for epsilon < 1: looser than what is calibrated.

    .. math:: \sigma = \frac{\sqrt{2 m \ln(2.5 / \delta)}}{\epsilon}, \qquad
              \Delta = \sigma \sqrt{2 \ln(2 m / \delta)}, \qquad
              m = k (1 + \lfloor \log_2 h \rfloor)

    It shows how the noise, and with `max_error` the error, grows: like the root of the number of
    trees and of log h. Searching top-down instead has h in place of 1 + floor(log2 h).

    Parameters
    ----------
    epsilon : float
        0 < epsilon < 1.
    delta : float
        0 < delta < 1.
    n_estimators, max_depth : int
        k and h.

    Returns
    -------
    sigma, slack : float
        In records.

    Notes
    -----
    "Add the deltas": half of delta for Gaussian noise of sensitivity sqrt(m), half for the
    probability that the noise of any of m tests exceeds Delta, by Pr[N(0, 1) >= t] <= exp(-t^2/2).

    References
    ----------
    "Lumberjack: Better Differentially Private Random Forests through Heavy Hitter Detection in
    Trees", lemma 7. Dwork and Roth (2014), "The algorithmic foundations of differential privacy",
    appendix A. Wilkins, Kifer, Zhang and Karrer (2024), "Exact privacy analysis of the Gaussian
    sparse histogram mechanism".

    Examples
    --------
    >>> sigma, slack = closed_form_noise(0.5, 1e-6, n_estimators=1, max_depth=100)
    >>> exact = calibrate_hierarchy(0.5, 1e-6, height=100)
    >>> exact.sigma_tests < sigma < 1.5 * exact.sigma_tests and exact.slack < slack
    True
    """
    epsilon = _check_real("epsilon", epsilon, "a number with 0 < epsilon < 1", lambda v: 0 < v < 1)
    delta = _check_delta(delta)
    n_tests = tests_per_record(n_estimators, max_depth)
    sigma = math.sqrt(2 * n_tests * math.log(2.5 / delta)) / epsilon
    return sigma, sigma * math.sqrt(2 * math.log(2 * n_tests / delta))


# ---------------------------------------------------------------------------------------------
# several fits


class Spending(NamedTuple):
    """What a fit takes from the accounts of a ledger, or how much they hold.

    Attributes
    ----------
    gaussian : float
        mu^2 of all Gaussian mechanisms, tests included.
    tail : float
        L = -n ln Phi(slack / sigma), n the tests of a unit: the tail of the tests.
    exponential : float
        rho of exponential mechanisms.
    precision_epsilon : float
        2 s of note 5: relative errors of the samplers.
    precision_variation : float
        t of note 5: absolute errors of the samplers, without the factor 1 + e^epsilon.

    Examples
    --------
    >>> spent = spending(calibrate_hierarchy(1.0, 1e-6, height=100))
    >>> round(spent.gaussian, 4), f"{spent.tail:.1e}"
    (0.0531, '4.3e-07')
    """

    gaussian: float = 0.0
    tail: float = 0.0
    exponential: float = 0.0
    precision_epsilon: float = 0.0
    precision_variation: float = 0.0


def spending(calibration: Calibration | HierarchyCalibration) -> Spending:
    """What a calibrated forest or hierarchy spends, each number rounded up.

    Whatever the accounting it was calibrated with: the noise alone decides.

    Parameters
    ----------
    calibration : Calibration or HierarchyCalibration

    Returns
    -------
    Spending
        All infinite for epsilon infinite.

    Examples
    --------
    >>> shares = {"structure": 0.75, "leaves": 0.25}
    >>> noise = calibrate(1.0, 1e-6, n_estimators=30, max_depth=100, budget_shares=shares,
    ...                   n_features=14, n_classes=2)
    >>> spent = spending(noise)
    >>> round(spent.gaussian, 4), f"{spent.tail:.2e}", spent.exponential
    (0.0536, '3.74e-07', 0.0)
    """
    c = calibration
    if c.epsilon == math.inf:
        return Spending(*[math.inf] * len(Spending._fields))
    up = 1 + 32 * _ULP
    return Spending(
        gaussian=math.fsum(mu * mu for mu in c.mu_parts) * up,
        tail=_log_fail_loss(c.lone_tests, c.slack / c.sigma_tests) * up,
        exponential=c.rho_leaves * up,
        precision_epsilon=c.precision_epsilon * up,
        precision_variation=c.precision_delta / (1 + math.exp(min(c.epsilon, 600.0))) * up,
    )


def account_limits(
    epsilon: float, delta: float, *, tail_share: float = 0.5, exponential_share: float = 0.0
) -> Spending:
    """Accounts of a ledger that are (epsilon, delta) when all are spent.

    Parameters
    ----------
    epsilon : float
        > 0, finite.
    delta : float
        0 < delta < 1.
    tail_share : float, default=0.5
        Share of delta for the tail of the tests, between 0 and 1.
    exponential_share : float, default=0.0
        Share of zCDP for exponential mechanisms, 0 <= share < 1. If it is 0, Gaussian mechanisms
        are accounted for by their own, exact curve.

    Returns
    -------
    Spending
        The limits, rounded down: ``accounts_delta(epsilon, limits) <= delta``.

    Examples
    --------
    >>> limits = account_limits(2.0, 1e-6)
    >>> round(limits.gaussian, 4), f"{limits.tail:.2e}"
    (0.1887, '4.95e-07')
    """
    epsilon = _check_real("epsilon", epsilon, "a finite number > 0", lambda v: 0 < v < math.inf)
    delta = _check_delta(delta)
    tail_share = _check_real(
        "tail_share", tail_share, "a number between 0 and 1", lambda v: 0 < v < 1
    )
    exponential_share = _check_real(
        "exponential_share",
        exponential_share,
        "a number with 0 <= share < 1",
        lambda v: 0 <= v < 1,
    )
    loss = -math.log1p(-tail_share * (1 - _LEDGER_PRECISION_DELTA) * delta)
    precision_delta = _LEDGER_PRECISION_DELTA * delta
    shrink = math.exp(-epsilon)
    fixed = {
        "tail": loss,
        "precision_epsilon": _LEDGER_PRECISION_EPSILON * min(epsilon, 1.0),
        "precision_variation": 0.99 * precision_delta * shrink / (1 + shrink),
    }

    def limits(scale: float) -> Spending:
        """Limits with `scale` as mu^2 / 2 + rho of everything."""
        gaussian, exponential = 2 * (1 - exponential_share) * scale, exponential_share * scale
        return Spending(gaussian=gaussian, exponential=exponential, **fixed)

    return limits(
        _largest_below(
            0.5 * gaussian_mu(epsilon, delta) ** 2,
            lambda value: accounts_delta(epsilon, limits(value)) <= delta,
        )
    )


def _largest_below(high: float, holds: Callable[[float], bool]) -> float:
    """Largest value below `high` with `holds`, by bisection; 0.0 if there is none."""
    if holds(high):
        return high
    low = 0.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low < 1e-13 * high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def accounts_delta(epsilon: float, limits: Spending) -> float:
    """Delta at epsilon of a ledger with these limits, finite precision included.

    Parameters
    ----------
    epsilon : float
        > 0, finite.
    limits : Spending

    Returns
    -------
    float
        Upper bound, at most 1; proof in note 6 at the head of the module.

    Examples
    --------
    >>> limits = account_limits(2.0, 1e-6)
    >>> accounts_delta(2.0, limits) <= 1e-6 < accounts_delta(1.9, limits)
    True
    """
    core = math.nextafter(epsilon - limits.precision_epsilon, -math.inf)
    if not core > 0:
        return 1.0
    mu = math.sqrt(limits.gaussian) * (1 + 4 * _ULP)
    delta = account_delta(core, mu=mu, rho=limits.exponential, loss=limits.tail)
    inexact = limits.precision_variation * (1 + math.exp(min(epsilon, 700.0)))
    return _up((delta + inexact) * math.exp(0.5 * limits.precision_epsilon), 32 * _ULP)
