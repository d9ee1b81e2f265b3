"""Samplers: random bits in, integers out.

Floating-point noise leaks through its low bits (Mironov 2012, "On significance of the least
significant bits for differential privacy"). Here a sampler only ever compares 64 random bits
with, or maps them to, integers, and each says beside its code how far its distribution is from
the ideal one. Two rules keep that distance small:

* every probability is computed from its smaller tail; the larger side is 2^64 minus it;
* a probability in steps of 2^-64 is saturated, so that nothing wraps around.

A *bit source* has a method ``draw(purpose, paths, n)`` and an attribute ``seeded``:
:class:`SystemBits` for releases, :class:`SeededBits` for reproducible runs.
"""

from __future__ import annotations

import decimal
import hashlib
import math
import numbers
import os
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

__all__ = [
    "SeededBits",
    "SystemBits",
    "derive_keys",
    "exponential_choice",
    "mix64",
    "rounded_gaussian",
    "test_table",
]

_MASK64 = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_TWO64 = 2.0**64
_MAX_SIGMA = 2.0**32
_CHUNK = 2**16
_PI = decimal.Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
)


def mix64(values: ArrayLike) -> np.ndarray:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13).

    Parameters
    ----------
    values : int or array-like of int in [0, 2^64)

    Returns
    -------
    ndarray of uint64
        A bijection of the 64-bit integers, applied to every entry.

    Examples
    --------
    >>> from lumberjack.noise import mix64
    >>> hex(mix64(0x9E3779B97F4A7C15))  # first output of splitmix64 seeded with 0
    '0xe220a8397b1dcdaf'
    """
    z = np.array(values, dtype=np.uint64)
    with np.errstate(over="ignore"):  # NumPy warns about scalars, never about arrays
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class SystemBits:
    """Bits of the operating system's generator, read afresh at every call.

    Nothing is buffered between calls, so that no two processes share noise after a fork.

    Attributes
    ----------
    seeded : bool
        False: nobody can reproduce these bits.

    Examples
    --------
    >>> from lumberjack.noise import SystemBits
    >>> SystemBits().draw("leaves", [1, 2], 3).shape
    (2, 3)
    """

    seeded = False

    def draw(self, purpose: str, paths: Any, n: int) -> np.ndarray:
        """Draw fresh uniform 64-bit integers.

        Parameters
        ----------
        purpose : str
            Ignored: fresh bits need no domain separation.
        paths : array-like of shape (n_paths,)
            Only its length matters.
        n : int
            Number of integers per path.

        Returns
        -------
        ndarray of uint64 of shape (n_paths, n)
        """
        shape = (len(paths), n)
        block = bytearray(os.urandom(8 * shape[0] * shape[1]))
        return np.frombuffer(block, dtype=np.uint64).reshape(shape)


class SeededBits:
    """Reproducible bits: a pure function of (key, purpose, path, index).

    The guarantee does not hold against anyone who knows the key, and the generator is a
    statistical one, not a cryptographic one. Whatever the order of the calls and the number of
    threads, a node gets the same bits. The kernels repeat this function and must agree with it::

        value i = mix64(mix64(purpose_key(purpose) + mix64(path)) + (i + 1) * 0x9E3779B97F4A7C15)

    modulo 2^64, i = 0, 1, ...: splitmix64 started at a hash of purpose and path.

    Parameters
    ----------
    key : int
        Secret key in [0, 2^128).

    Attributes
    ----------
    seeded : bool
        True: who knows the key knows the noise.

    Examples
    --------
    >>> from lumberjack.noise import SeededBits
    >>> bits = SeededBits(7)
    >>> bool((bits.draw("test", [5], 2) == bits.draw("test", [4, 5], 2)[1]).all())
    True
    """

    seeded = True

    def __init__(self, key: int) -> None:
        if not 0 <= key < 1 << 128:
            raise ValueError("key must be an integer of at most 128 bits")
        self._key = int(key)

    def purpose_key(self, purpose: str) -> int:
        """Return the key that separates this purpose from all others.

        Parameters
        ----------
        purpose : str

        Returns
        -------
        int
            Of 64 bits.
        """
        digest = hashlib.blake2b(
            purpose.encode(),
            key=self._key.to_bytes(16, "little"),
            digest_size=8,
            person=b"lumberjack noise",
        ).digest()
        return int.from_bytes(digest, "little")

    def draw(self, purpose: str, paths: Any, n: int) -> np.ndarray:
        """Return the first `n` values of the stream of every path.

        Parameters
        ----------
        purpose : str
            What the bits are for; purposes share no bits.
        paths : array-like of shape (n_paths,), of int in [0, 2^64)
            Hashed paths of the nodes, or other names of what is drawn for.
        n : int
            Number of integers per path.

        Returns
        -------
        ndarray of uint64 of shape (n_paths, n)
        """
        paths = np.asarray(paths, dtype=np.uint64)
        steps = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        starts = mix64(mix64(paths) + np.uint64(self.purpose_key(purpose)))
        return mix64(starts[:, None] + steps)


def derive_keys(
    random_state: int | np.random.RandomState | None,
) -> tuple[int, SystemBits | SeededBits]:
    """Derive the public seed of the splits and the bit source of all noise.

    Parameters
    ----------
    random_state : None, int or numpy.random.RandomState
        None takes both from the operating system. Otherwise they are two hashes of the seed,
        domain-separated, so that the published one says nothing about the other.

    Returns
    -------
    split_seed : int
        64-bit seed of the splits; public.
    bits : SystemBits or SeededBits
        Source of the noise; private.

    Examples
    --------
    >>> from lumberjack.noise import derive_keys
    >>> derive_keys(0)[0] == derive_keys(0)[0] != derive_keys(1)[0]
    True
    >>> derive_keys(None)[1].seeded, derive_keys(0)[1].seeded
    (False, True)
    """
    if random_state is None:
        return int.from_bytes(os.urandom(8), "little"), SystemBits()
    material = _seed_material(random_state)
    split = hashlib.blake2b(material, digest_size=8, person=b"lumberjack split").digest()
    noise = hashlib.blake2b(material, digest_size=16, person=b"lumberjack bits").digest()
    return int.from_bytes(split, "little"), SeededBits(int.from_bytes(noise, "little"))


def _seed_material(random_state: int | np.random.RandomState) -> bytes:
    if isinstance(random_state, np.random.RandomState):
        return b"state:" + random_state.bytes(16)
    is_integer = isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool)
    if is_integer and random_state >= 0:
        seed = int(random_state)
        return b"int:" + seed.to_bytes((seed.bit_length() + 7) // 8, "little")
    raise ValueError(
        "random_state must be None, a non-negative integer or a numpy.random.RandomState"
    )


def test_table(
    sigma: float, threshold: float, slack: float, records_per_unit: int, max_count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate the heavy-hitter test over the count of a node.

    A node with `count` records is heavy iff 64 random bits are below ``thresholds[count]``:
    with probability 0 if count <= threshold - records_per_unit - slack (so always if the node is
    empty), else Phi((count - threshold) / sigma), that is, iff count + N(0, sigma^2) reaches the
    threshold. With sigma = 0 it is heavy iff count >= threshold.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise.
    threshold : float
        At least ``records_per_unit + slack`` (positive, if sigma is 0).
    slack : float
        Distance of the threshold from the largest count that one unit can make from nothing.
    records_per_unit : int
        Largest number of records of one unit.
    max_count : int
        Largest count that will be looked up.

    Returns
    -------
    thresholds : ndarray of uint64 of shape (n_counts,)
        Non-decreasing. Counts beyond the last entry use the last entry.
    probabilities : ndarray of float64 of shape (n_counts,)
        The same as probabilities, non-decreasing. 1.0 stands for a sure pass, which takes no
        draw and occurs only without noise.

    Notes
    -----
    Both outcomes have the ideal probability up to a relative error of 2^-40 and an absolute one
    of 2^-64. Relative: rounding (count - threshold) / sigma = z by 2^-52 changes the smaller tail
    by z^2 2^-52 at most (plus 2^-52), which is below 2^-45 where that tail is 2^-64 or more; the
    rest is the error of scipy.special.ndtr. Absolute: rounding down to a multiple of 2^-64, and
    saturation: 2^64 does not fit, so the surest pass fails with probability 2^-64. The table ends
    10 sigma above the threshold, where it has long been saturated.

    Examples
    --------
    >>> from lumberjack.noise import test_table
    >>> thresholds, probabilities = test_table(10.0, 61.0, 60.0, 1, 1000)
    >>> len(thresholds), int(thresholds[0]), int(thresholds[61]) == 2**63
    (162, 0, True)
    >>> float(probabilities[0]), float(probabilities[61])
    (0.0, 0.5)
    """
    _check_test(sigma, threshold, slack, records_per_unit, max_count)
    reach = min(max_count, math.ceil(Fraction(threshold) + 10 * Fraction(sigma)))
    counts = np.arange(reach + 1, dtype=np.float64)
    if sigma == 0:
        heavy = counts >= threshold
        return np.where(heavy, np.uint64(_MASK64), np.uint64(0)), heavy.astype(np.float64)
    with np.errstate(over="ignore"):
        z = (counts - threshold) / sigma
    smaller = ndtr(-np.abs(z))
    units = np.floor(smaller * _TWO64).astype(np.uint64)  # exact: scaled by a power of two
    saturated = np.uint64(_MASK64) - np.maximum(units, np.uint64(1)) + np.uint64(1)
    thresholds = np.where(z < 0, units, saturated)
    probabilities = np.where(z < 0, smaller, np.minimum(1 - smaller, np.nextafter(1.0, 0.0)))
    # The exact difference, so that rounding never moves the cut up past an integer; and an empty
    # node is never heavy, even where records_per_unit + slack was rounded down.
    cut = max(0, math.floor(Fraction(threshold) - records_per_unit - Fraction(slack)))
    thresholds[: cut + 1] = 0
    probabilities[: cut + 1] = 0.0
    # ndtr is monotone only up to its rounding errors, the tests must be.
    return np.maximum.accumulate(thresholds), np.maximum.accumulate(probabilities)


test_table.__test__ = False  # type: ignore[attr-defined]  # a table of tests, not a test to be collected


def _check_test(
    sigma: float, threshold: float, slack: float, records_per_unit: int, max_count: int
) -> None:
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError("sigma must be finite and at least 0")
    if not (math.isfinite(slack) and slack >= 0):
        raise ValueError("slack must be finite and at least 0")
    if records_per_unit < 1:
        raise ValueError("records_per_unit must be at least 1")
    if not (math.isfinite(threshold) and threshold > 0):
        raise ValueError("threshold must be finite and positive")
    if sigma > 0 and threshold < records_per_unit + slack:
        raise ValueError("threshold must be at least records_per_unit + slack")
    if max_count < 0:
        raise ValueError("max_count must be at least 0")


def rounded_gaussian(bits: np.ndarray, sigma: float) -> np.ndarray:
    """Turn random bits into Gaussian noise rounded to the nearest integer.

    Parameters
    ----------
    bits : ndarray of uint64
        Uniform bits, 64 for each value.
    sigma : float
        Standard deviation before rounding, at most 2^32; 0 gives zeros.

    Returns
    -------
    ndarray of int64, of the shape of `bits`

    Notes
    -----
    For an integer q, q + round(N) = round(q + N) if ties are left out, which have probability 0:
    the released integer is a post-processing of the Gaussian mechanism, whose guarantee it has
    exactly.

    The top bit is the sign, the other 63 are t, and the value is round(sigma |z|) with
    Phi(-|z|) = (t + 1/2) / 2^64: the exact inverse of the distribution function on a lattice of
    step 2^-64, symmetric by construction. Where floating point cannot tell on which side of a
    half-integer sigma |z| lies, the question is settled in decimal arithmetic. Hence every
    P(value >= v), v > 0, and its mirror image is exact up to 2^-65, and the whole distribution is
    within (9.2 sigma + 1) 2^-64 of the ideal one in total variation (each of at most
    2 (9.2 sigma + 1) values is off by at most 2^-64, and half their sum counts).

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack.noise import rounded_gaussian
    >>> bits = np.array([2**63 - 1, 2**62, 2**63 + 2**62, 0, 2**63], dtype=np.uint64)
    >>> rounded_gaussian(bits, 100.0)
    array([   0,   67,  -67,  916, -916])
    """
    bits = _as_bits(bits)
    if not 0 <= sigma <= _MAX_SIGMA:
        raise ValueError("sigma must be in [0, 2^32]")
    values = np.empty(bits.shape, dtype=np.int64)
    given, written = bits.reshape(-1), values.reshape(-1)
    # Part by part, because the temporary arrays take ten times the memory of the result.
    for start in range(0, len(given), _CHUNK):
        part = slice(start, start + _CHUNK)
        written[part] = _rounded_gaussian(given[part], sigma)
    return values


def _rounded_gaussian(bits: np.ndarray, sigma: float) -> np.ndarray:
    """`rounded_gaussian` of one dimension."""
    tails = bits & np.uint64(_MASK64 >> 1)
    z = np.abs(ndtri((tails.astype(np.float64) + 0.5) / _TWO64))
    scaled = sigma * z
    magnitudes = np.floor(scaled)
    halves = magnitudes + 0.5
    beyond = scaled > halves
    # ndtri and the conversion of t are off by less than 2^-50 (1 + |z|); this is four times that.
    doubtful = np.abs(scaled - halves) <= 2.0**-48 * sigma * (1 + z)
    for i in np.flatnonzero(doubtful):
        beyond[i] = _is_beyond(int(tails[i]), float(halves[i]), sigma)
    magnitudes = (magnitudes + beyond).astype(np.int64)
    return np.where(bits >> np.uint64(63), -magnitudes, magnitudes)


def _is_beyond(tail: int, half: float, sigma: float) -> bool:
    """Whether Phi^-1 of the lattice point `tail` lies more than `half` / `sigma` below 0."""
    with decimal.localcontext(decimal.Context(prec=80)):
        lattice_point = decimal.Decimal(2 * tail + 1) / decimal.Decimal(1 << 65)
        return lattice_point < _upper_tail(decimal.Decimal(half) / decimal.Decimal(sigma))


def _upper_tail(x: decimal.Decimal) -> decimal.Decimal:
    """1 - Phi(x) to 30 digits or more for a Decimal 0 <= x <= 10, in a context of 80 digits.

    Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/(3 5) + x^7/(3 5 7) + ...): Marsaglia 2004, "Evaluating
    the normal distribution". All terms are positive; the subtraction from 1/2 costs 23 digits.
    """
    term = total = x
    odd = 1
    while term > decimal.Decimal("1e-70"):
        odd += 2
        term *= x * x / odd
        total += term
    density = (-x * x / 2).exp() / (2 * _PI).sqrt()
    return decimal.Decimal("0.5") - density * total


def exponential_choice(counts: ArrayLike, epsilon: float, bits: np.ndarray) -> np.ndarray:
    """Choose one class per leaf by the exponential mechanism with weights exp(epsilon * count).

    Parameters
    ----------
    counts : array-like of int64 of shape (n_leaves, n_classes)
        Class counts, at least 0.
    epsilon : float
        At least 0; inf chooses the largest class, of equals the first.
    bits : ndarray of uint64 of shape (n_leaves,)
        Uniform bits.

    Returns
    -------
    ndarray of int64 of shape (n_leaves,)

    Notes
    -----
    McSherry, Talwar 2007. One record more raises one count by 1 and lowers none, so that the
    weights need no factor 1/2: the choice is epsilon-DP, with a privacy loss in an interval of
    length epsilon, and (epsilon^2 / 8)-zCDP (Cesar, Rogers 2021, "Bounding, concentrating, and
    truncating").

    Weights are relative to the largest class. The mass of every other class is its probability,
    at most 1/2, rounded down to a multiple of 2^-64; they sum to less than 2^64. The largest class
    gets the complement. The relative error is below 2^-40: a mass above 2^-64 has an exponent
    above -45, whose rounding counts 45 2^-53, and the sum of the weights adds n_classes 2^-53
    (at most 2^-41 for up to 4096 classes). The absolute error is 2^-64 for each class and
    (n_classes - 1) 2^-64 for the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack.noise import exponential_choice
    >>> bits = np.array([0, 2**63], dtype=np.uint64)
    >>> exponential_choice([[3, 0], [3, 0]], 0.5, bits)
    array([1, 0])
    >>> exponential_choice([[3, 0], [3, 0]], np.inf, bits)
    array([0, 0])
    """
    counts = np.asarray(counts, dtype=np.int64)
    bits = _as_bits(bits)
    if not epsilon >= 0:
        raise ValueError("epsilon must be at least 0")
    largest = np.argmax(counts, axis=1)
    if epsilon == np.inf:
        return largest.astype(np.int64)
    rows = np.arange(len(counts))
    with np.errstate(over="ignore"):
        weights = np.exp(epsilon * (counts - counts[rows, largest][:, None]))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    probabilities[rows, largest] = 0.0
    masses = np.floor(probabilities * _TWO64).astype(np.uint64)
    chosen = bits[:, None] < np.cumsum(masses, axis=1, dtype=np.uint64)
    # The largest class adds no mass to the sums, so it is never the first that exceeds the bits.
    choice = np.where(chosen.any(axis=1), np.argmax(chosen, axis=1), largest)
    return choice.astype(np.int64)


def _as_bits(bits: np.ndarray) -> np.ndarray:
    bits = np.asarray(bits)
    if bits.dtype != np.uint64:
        raise TypeError("bits must be an array of uint64")
    return bits
