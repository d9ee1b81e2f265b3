"""The speed benchmark: that it measures what it says. No time is asserted anywhere."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[1] / "benchmarks" / "speed.py"

if not PATH.is_file():
    pytest.skip("the benchmarks are not part of the package", allow_module_level=True)

spec = importlib.util.spec_from_file_location("speed", PATH)
speed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(speed)


def test_runs_alternate_and_the_first_of_each_does_not_count():
    order = []

    def run(name):
        order.append(name)
        return float(len(order)), 0.0

    runs = {"a": lambda: run("a"), "missing": None, "b": lambda: run("b")}
    times = speed.alternate(runs, 2)
    assert order == ["a", "b"] * 3
    assert times == {"a": [(3.0, 0.0), (5.0, 0.0)], "missing": None, "b": [(4.0, 0.0), (6.0, 0.0)]}


def test_ratios_are_of_medians_and_a_missing_peer_is_said(capsys):
    table = speed.Table()
    times = {"ours": [(1, 2), (2, 2), (9, 2)], "peer": [(8, 8), (1, 8), (90, 8)], "gone": None}
    table.compare("case", "what", times, "ours", "peer", (">=", 4))
    table.compare("case", "what", times, "ours", "peer", (">=", 5))
    table.compare("case", "what", times, "ours", "gone")
    first, second, third = table.rows
    assert (first["ratio"], first["cpu_ratio"], first["met"]) == (4, 4, True)
    assert second["met"] is False
    assert third == {"case": "case", "what": "gone", "missing": True}
    out = capsys.readouterr().out
    assert "gone: missing" in out and "NOT MET" in out


def test_the_kinds_of_columns_of_made_data():
    X, y, declaration = speed.made_table(2000)
    assert X.shape == (2000, 20) and X.dtype == np.float32
    assert X[:, :10].min() >= 0 and X[:, :10].max() <= 1
    assert set(np.unique(X[:, 10:]).tolist()) == set(range(10))
    assert set(y.tolist()) == {0, 1}
    encoded = speed.one_hot(X, declaration)
    assert encoded.shape == (2000, 110)
    assert (encoded[:, 10:].sum(axis=1) == 10).all()


def test_growth_alone_is_timed_and_takes_options_of_the_kernel():
    X, y, declaration = speed.made_table(300)
    for lazy in (True, False):
        wall, cpu = speed.growth_time(speed.lumberjack("random", declaration), X, y, lazy=lazy)
        assert wall >= 0 and cpu >= 0


def test_one_run_from_the_command_line(monkeypatch, tmp_path, capsys):
    output = tmp_path / "speed.json"
    monkeypatch.setitem(
        speed.CASES, "tiny", lambda options, table: speed.fit_made(100, options, table)
    )
    arguments = ["speed.py", "--only", "tiny", "--repeats", "1", "--json", str(output)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--peers", "sklearn"])
    speed.main()
    assert "for trying out only" in capsys.readouterr().out
    result = json.loads(output.read_text())
    assert [row["what"] for row in result["rows"]] == [
        "random, against ExtraTrees",
        "default, against ExtraTrees",
    ]
    assert {"lumberjack-dp", "scikit-learn", "numpy"} <= set(result["environment"]["versions"])


def test_unknown_peers_are_refused():
    with pytest.raises(SystemExit):
        speed.parse(["--peers", "sklearn,chainsaw"])
