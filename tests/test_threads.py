"""Threads: how many, and what is shown while they run."""

import re
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import Parallel, cpu_count, delayed

from lumberjack import LumberjackClassifier, threads


def table():
    X = np.random.default_rng(0).random((317, 3))
    return X, (X[:, 0] > 0.5).astype(int)


def forest(**changes):
    return LumberjackClassifier(epsilon=4, delta=1e-3, bounds=(0, 1), classes=[0, 1], **changes)


@pytest.mark.parametrize("splitter", ["random", "guided"])
def test_progress_in_plain_lines(splitter, capsys, monkeypatch):
    # Trees done and the time left, and nothing else while a fit runs.
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(threads.Progress, "interval", 0.001)
    monkeypatch.setattr(threads.Progress, "line_interval", 0.0)
    X, y = table()
    model = forest(n_estimators=200, splitter=splitter, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.removeprefix(f"{model.privacy_}\n").splitlines()
    assert lines.pop() == f"released 200 trees with {len(model.leaf_votes_)} leaves"
    assert lines.pop() == "200 of 200 trees, about 0 s left"
    for line in lines:
        assert re.fullmatch(r"\d+ of 200 trees, about \d+ s left", line)


def test_progress_by_tqdm(capsys, monkeypatch):
    shown = []

    class Bar:
        def __init__(self, **options):
            self.n = 0
            shown.append(options)

        def update(self, n):
            self.n += n

        def close(self):
            shown.append(self.n)

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    X, y = table()
    forest(n_estimators=4, verbose=1).fit(X, y)
    assert shown == [{"total": 4, "desc": "lumberjack", "unit": "tree"}, 4]
    assert "left" not in capsys.readouterr().out


def test_all_cores_are_those_that_are_left(monkeypatch):
    monkeypatch.setattr(threads, "effective_n_jobs", lambda n: 8 if n == -1 else n or 1)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads.count_threads(n) for n in (None, 1, 3, -1)] == [1, 1, 3, 8]
    for limit, expected in (("2", 2), ("3,2", 3), ("16", 8), ("0", 8), ("many", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
        assert threads.count_threads(-1) == expected
        assert threads.count_threads(5) == 5


def test_no_more_threads_than_cores_within_joblib(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for backend in ("threading", "loky"):
        run = Parallel(n_jobs=cpu_count(), backend=backend)
        counts = run(delayed(threads.count_threads)(n) for n in (-1, 2))
        assert counts == [1, 2]


def test_an_error_of_the_kernel_is_raised_where_it_is_waited_for():
    def fails():
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        threads.run_interruptibly(fails, np.zeros(1, dtype=np.int32))
    with pytest.raises(MemoryError, match="no room"):
        threads.run_threads(fails, 1)


def test_the_result_of_the_kernel_comes_back():
    for n_threads in (1, 2):
        assert threads.run_threads(lambda: "done", n_threads) == "done"


@pytest.mark.parametrize(
    ("n_jobs", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_wrong_numbers_of_jobs(n_jobs, error):
    with pytest.raises(error, match="n_jobs"):
        threads.count_threads(n_jobs)


def test_whatever_a_signal_handler_raises_stops_the_work():
    """Not only Ctrl-C: a handler of SIGTERM that exits must not wait for the end of a fit."""
    stop = np.zeros(1, dtype=np.int32)

    def leave(signum, frame):
        raise SystemExit(7)

    def work():
        while not stop[0]:
            time.sleep(0.001)

    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(SystemExit, match="7"):
            threads.run_interruptibly(work, stop)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stop[0] == 1
