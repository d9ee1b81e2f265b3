"""Votes of leaves, and what is done with probabilities."""

import numpy as np
import oracle
import pytest

from lumberjack import leaves


def test_vote_weighs_leaves_by_how_much_they_hold():
    counts = np.array([[60, 20, 0], [-5, 20, -1], [-3, 0, -9], [1, 0, 0]])
    votes, prior = leaves.vote(counts, 20.0)
    clipped = np.array([[60, 20, 0], [0, 20, 0], [0, 0, 0], [1, 0, 0]])
    totals = np.array([[80], [20], [0], [1]])
    shares = clipped / np.maximum(totals, 1)
    np.testing.assert_allclose(votes, shares * totals / (totals + 20.0))
    assert np.array_equal(votes[2], [0, 0, 0])
    np.testing.assert_allclose(prior, np.array([61, 40, 0]) / 101)


def test_vote_without_noise_and_without_anything():
    votes, prior = leaves.vote(np.array([[3, 1], [0, 0]]), 0.0)
    assert votes.tolist() == [[0.75, 0.25], [0, 0]] and prior.tolist() == [0.75, 0.25]
    votes, prior = leaves.vote(np.array([[-3, -1], [-7, 0]]), 5.0)
    assert votes.tolist() == [[0, 0], [0, 0]] and prior.tolist() == [0.5, 0.5]


def test_vote_of_huge_counts_stays_finite():
    votes, prior = leaves.vote(np.full((3, 2), 2**62), 1.0)
    np.testing.assert_allclose(votes, 0.5)
    np.testing.assert_allclose(prior, 0.5)


def test_balanced_weights_are_inverse_to_the_noisy_totals():
    counts = np.array([[300, -50, 20], [500, 150, 30]])
    weights = leaves.balanced_weights(counts, 10.0)
    np.testing.assert_allclose(weights, [50 / 800, 50 / 100, 1])


def test_a_class_that_is_lost_in_the_noise_counts_as_one_deviation_of_it():
    # Three leaves of noise 10: the sums have a deviation of 10 sqrt(3), whatever they are.
    counts = np.array([[900, 5], [0, -40], [0, 1]])
    np.testing.assert_allclose(leaves.balanced_weights(counts, 10.0)[0], 10 * 3**0.5 / 900)
    assert leaves.balanced_weights(np.zeros((2, 3), dtype=int), 0.0).tolist() == [1, 1, 1]


def test_balanced_weights_do_not_grow_with_the_number_of_noisy_leaves():
    # Clipped at 0, a thousand empty leaves would hold as many records of both classes.
    rng = np.random.default_rng(0)
    counts = np.rint(rng.normal(0, 20, size=(1000, 2))).astype(np.int64)
    counts[0] += (90_000, 10_000)
    assert leaves.balanced_weights(counts, 20.0)[0] == pytest.approx(1 / 9, rel=0.5)


def test_reweight_is_the_rule_of_bayes():
    # Of 1000 records 200 are of class 1, and of those with this x 30 of 100. Of a population in
    # which class 0 is four times rarer, 17.5 of class 0 go with the 30 of class 1.
    found = leaves.reweight(np.array([[0.7, 0.3]]), np.array([0.25, 1.0]))
    np.testing.assert_allclose(found, [[17.5 / 47.5, 30 / 47.5]])
    p = np.random.default_rng(0).dirichlet(np.ones(4), size=50)
    np.testing.assert_allclose(leaves.reweight(p, np.full(4, 0.3)), p)


def test_reweighting_the_mixture_is_reweighting_both_of_its_parts():
    rng = np.random.default_rng(0)
    first, second = (rng.dirichlet(np.ones(3), size=20) * 0.97 + 0.01 for _ in range(2))
    weights = np.array([0.5, 1.0, 0.8])
    parts = (leaves.reweight(own, weights) for own in (first, second))
    np.testing.assert_allclose(
        oracle.combine(*parts), leaves.reweight(oracle.combine(first, second), weights)
    )
