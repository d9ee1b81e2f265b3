"""Threads: how many, how they are watched and how they are stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend

from lumberjack.parameters import check_integer

T = TypeVar("T")

MAX_THREADS = 1024  # beyond any machine, and fewer than kill a process


def count_threads(n_jobs: int | None) -> int:
    """Threads that `n_jobs` asks for, as joblib counts cores: within affinity and cgroup limits.

    A negative number asks for the cores that are not given away: at most OMP_NUM_THREADS, which
    joblib sets in its worker processes, and one in its worker threads.

    Parameters
    ----------
    n_jobs : int or None

    Returns
    -------
    int
    """
    if n_jobs is not None:
        check_integer("n_jobs", n_jobs)
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: give a number of threads, or -1 for all cores")
    n_threads = min(effective_n_jobs(n_jobs), MAX_THREADS)
    if n_jobs is None or n_jobs > 0:
        return n_threads
    backend, _ = get_active_backend()
    if backend.nesting_level and backend.supports_sharedmem:
        return 1
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(n_threads, int(limit)) if limit.isdigit() and int(limit) else n_threads


class Progress:
    """Trees done and an estimate of the time left, for the curator who waits.

    By tqdm, if it is installed, or in plain lines. Nothing else of a running fit is shown, as
    everything else is private; how long it takes depends on the data, too, and is no secret to
    who can see this.

    Parameters
    ----------
    n_trees : int

    Attributes
    ----------
    done : int8 array of shape (n_trees,)
        Set to 1, tree by tree, by the kernel.
    """

    interval = 0.2  # seconds between looks
    line_interval = 10.0  # seconds between plain lines

    def __init__(self, n_trees: int) -> None:
        self.done = np.zeros(n_trees, dtype=np.int8)
        self.started = self.printed = time.monotonic()
        try:
            from tqdm import tqdm
        except ImportError:
            self.bar: Any = None
        else:
            self.bar = tqdm(total=n_trees, desc="lumberjack", unit="tree")

    def show(self) -> None:
        """Show how far it is."""
        n_done = int(self.done.sum())
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(n_done - self.bar.n)
        elif n_done and now - self.printed >= self.line_interval:
            left = (now - self.started) / n_done * (len(self.done) - n_done)
            print(f"{n_done} of {len(self.done)} trees, about {left:.0f} s left", flush=True)
            self.printed = now

    def close(self) -> None:
        """Show the end."""
        self.show()
        if self.bar is not None:
            self.bar.close()


def run_interruptibly(
    function: Callable[[], T], stop: np.ndarray, progress: Progress | None = None
) -> T:
    """Run a kernel in a thread of its own; Ctrl-C sets `stop` and is raised when it gave up.

    The OpenMP pool then belongs to that thread and ends with it, so that a process forked later
    from this one can use OpenMP, too.
    """
    result: list[T] = []
    error: list[BaseException] = []
    finished = threading.Event()  # Thread.join, once interrupted, does not wait again

    def work() -> None:
        try:
            result.append(function())
        except BaseException as raised:
            error.append(raised)
        finally:
            finished.set()

    thread = threading.Thread(target=work, name="lumberjack")
    thread.start()
    interval = None if progress is None else progress.interval
    try:
        while not finished.wait(interval):
            if progress is not None:
                progress.show()
    except BaseException:  # Ctrl-C, or what a handler of another signal raises
        stop[0] = 1
        finished.wait()
        raise
    finally:
        thread.join()
        if progress is not None:
            progress.close()
    if error:
        raise error[0]
    return result[0]


def run_threads(function: Callable[[], T], n_threads: int) -> T:
    """Run a kernel that uses `n_threads` threads; see `run_interruptibly` for the reason."""
    if n_threads == 1:
        return function()
    return run_interruptibly(function, np.zeros(1, dtype=np.int32))
