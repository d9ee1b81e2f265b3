"""The command: what it prints, what it writes, and how it fails."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lumberjack import (
    Domain,
    HierarchicalHeavyHitters,
    PrivacyLedger,
    __version__,
    accounting,
    arguments,
    cli,
    export,
    files,
)
from lumberjack.parameters import DEFAULT_SHARES

pandas = pytest.importorskip("pandas")

needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="a ledger file needs POSIX locks")

N_RECORDS = 1317
DOMAIN = {"age": [17, 90], "animal": ["ant", "bee", "cow"], "wealth": ["poor", "rich"]}
FOREST = ["--target", "wealth", "--epsilon", "8", "--delta", "1e-3", "--trees", "5"]
SECRETS = ("zebra", "98765", "quagga")  # cells that no message may show


def make_table(n_records=N_RECORDS):
    """A made-up table: whoever is older than 50 or owns a bee is rich."""
    rng = np.random.default_rng(0)
    age = rng.integers(17, 91, n_records)
    animal = rng.choice(["ant", "bee", "cow"], n_records)
    wealth = np.where((age > 50) | (animal == "bee"), "rich", "poor")
    return pandas.DataFrame({"age": age, "animal": animal, "note": "zebra", "wealth": wealth})


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    """A folder of its own with a table and its domain, entered."""
    monkeypatch.chdir(tmp_path)
    make_table().to_csv("table.csv", index=False)
    Path("domain.json").write_text(json.dumps(DOMAIN))
    return tmp_path


@pytest.fixture
def run(capsys):
    """Call the command; return standard output and error."""

    def call(*arguments, status=0):
        capsys.readouterr()
        assert cli.main([str(argument) for argument in arguments]) == status
        return capsys.readouterr()

    return call


@pytest.fixture
def fails(run):
    """Call the command; it must fail in one line that shows no cell."""

    def call(*arguments):
        out, err = run(*arguments, status=2)
        assert err.startswith("lumberjack: error: ") and err.count("\n") == 1
        assert not any(secret in out + err for secret in SECRETS)
        return err.removeprefix("lumberjack: error: ")

    return call


def fit_arguments(*more, table="table.csv", domain="domain.json"):
    """Arguments of a fit that works."""
    return ["fit", table, *FOREST, "--drop", "note", "--domain", domain, "--out", "model", *more]


def fitted():
    """The model that was fitted here."""
    return files.read_model(Path("model")).model


def listing():
    """Names of the files in the working directory."""
    return sorted(os.listdir())


# fit and predict


def test_fit_prints_the_guarantee_and_nothing_private(run):
    out, err = run(*fit_arguments())
    assert out.startswith("(8, 0.001)-differential privacy, add or remove one unit\n")
    assert "entropy: operating system" in out and out.endswith("model: model\n")
    assert err == "" and "test" not in out.replace("tests", "")
    assert not re.search(rf"\b{N_RECORDS}\b", out.replace(",", ""))
    assert listing() == ["domain.json", "model", "table.csv"]


def test_predictions_are_good_and_in_the_order_of_the_table(run):
    run(*fit_arguments())
    out, _ = run("predict", "model", "table.csv")
    header, *predicted = out.splitlines()
    assert header == "wealth" and len(predicted) == N_RECORDS
    assert np.mean(np.array(predicted) == make_table()["wealth"]) > 0.9


def test_predict_finds_columns_by_name_and_takes_any_value(run):
    run(*fit_arguments())
    rows = ["bee,zebra,80", ",,", "unheard of,x,1e9", "cow,x,-5"]
    Path("new.csv").write_text("\n".join(["animal,extra,age", *rows]))
    out, err = run("predict", "model", "new.csv", "--proba", "--out", "answers.csv")
    assert (out, err) == ("", "")
    answers = pandas.read_csv("answers.csv")
    assert list(answers) == ["wealth", "probability of poor", "probability of rich"]
    assert answers["wealth"].tolist()[:1] == ["rich"] and len(answers) == len(rows)
    np.testing.assert_allclose(answers.iloc[:, 1:].sum(axis=1), 1, atol=1e-5)


def test_compressed_table_and_marks_of_missing_values(run):
    table = make_table().astype(object)
    table.loc[::7, "age"] = "?"
    table.loc[::5, "animal"] = ""
    table.to_csv("table.csv.gz", index=False)
    run(*fit_arguments("--missing", "?", table="table.csv.gz"))
    out, _ = run("predict", "model", "table.csv.gz")  # fit told the model of the mark
    assert len(out.splitlines()) == N_RECORDS + 1
    assert run("predict", "model", "table.csv.gz", "--missing", "?").out == out


def test_test_score_is_marked(run):
    out, _ = run(*fit_arguments("--test-fraction", "0.3"))
    score = r"test accuracy [01]\.\d{4}, AUC [01]\.\d{4} \(outside the guarantee: .*\)"
    assert re.fullmatch(score, out.splitlines()[0])


@needs_locks
@pytest.mark.parametrize("fault", ["zebra", "", "age"])
def test_a_bad_record_is_refused_before_the_budget_is_spent(run, fails, fault):
    """Whether it would fall into the test or not."""
    table = make_table()
    if fault == "age":
        table["age"] = table["age"].astype(str).replace("40", "zebra")
    else:
        table.loc[7, "wealth"] = fault
    table.to_csv("table.csv", index=False)
    run("ledger", "ledger.json", "--epsilon", "9", "--delta", "1e-2")
    before = Path("ledger.json").read_text()
    for more in ([], ["--test-fraction", "0.01"]):
        fails(*fit_arguments("--ledger", "ledger.json", *more))
    assert Path("ledger.json").read_text() == before
    assert "model" not in listing()


@pytest.mark.parametrize("target", ["", "inf", "quagga"])
def test_a_bad_target_is_refused_before_the_fit(fails, monkeypatch, rides, target):
    table = make_rides().astype({"minutes": str})
    table.loc[7, "minutes"] = target
    table.to_csv("rides.csv", index=False)
    monkeypatch.setattr(cli, "fit_watched", None)
    message = fails(*FIT_RIDES, "--domain", "rides.json", "--test-fraction", "0.01")
    assert message.startswith("y ")


def test_a_model_is_kept_when_its_score_fails(run, monkeypatch):
    def fail(*arguments):
        raise ValueError("no score")

    monkeypatch.setattr(cli, "score_text", fail)
    run(*fit_arguments("--test-fraction", "0.3"), status=2)
    assert fitted().n_estimators == 5


def test_a_class_that_only_the_test_has_counts_as_wrong(run):
    """Read from the training records, it is unknown to the model."""
    table = make_table()
    _, test = cli.split_records(len(table), 0.3, 5)
    table.loc[np.flatnonzero(test), "wealth"] = "neither"
    table.to_csv("table.csv", index=False)
    arguments = fit_arguments("--test-fraction", "0.3", "--random-state", "5", "--infer-domain")
    at = arguments.index("--domain")
    out, _ = run(*arguments[:at], *arguments[at + 2 :])
    assert out.startswith("test accuracy 0.0000 (outside the guarantee")


def test_each_record_throws_its_own_coin_for_the_test():
    _, test = cli.split_records(1000, 0.25, 3)
    _, longer = cli.split_records(1001, 0.25, 3)
    assert np.array_equal(test, longer[:-1]) and 200 < test.sum() < 300


def test_seeded_fit_warns_and_is_reproducible(run):
    answers = []
    for _ in range(2):
        out, err = run(*fit_arguments("--random-state", "7"))
        assert "SEEDED" in out
        assert err.startswith("lumberjack: warning: random_state") and err.count("\n") == 1
        answers.append(run("predict", "model", "table.csv", "--proba").out)
    assert answers[0] == answers[1]


def test_infer_domain_warns_in_one_line(run):
    arguments = ["fit", "table.csv", *FOREST, "--drop", "note", "--infer-domain", "--out", "model"]
    out, err = run(*arguments)
    assert err.startswith("lumberjack: warning: read from the data: bounds of age, categories of")
    assert err.count("\n") == 1 and "READ FROM THE DATA, outside the guarantee: bounds" in out
    assert run("predict", "model", "table.csv").out.startswith("wealth\n")


def test_numbers_as_classes_and_as_categories(run):
    table = make_table()
    table["wealth"] = (table["wealth"] == "rich").astype(int)
    table["animal"] = table["animal"].map({"ant": 1, "bee": 2, "cow": 3})
    table.to_csv("table.csv", index=False)
    declared = {"age": [17, 90], "animal": {"categories": [1, 2, 3]}, "wealth": {"classes": [0, 1]}}
    Path("domain.json").write_text(json.dumps(declared))
    run(*fit_arguments())
    out, _ = run("predict", "model", "table.csv")
    assert set(out.splitlines()[1:]) == {"0", "1"}
    assert np.mean(np.array(out.splitlines()[1:], dtype=int) == table["wealth"]) > 0.9


@pytest.mark.parametrize("kind", ["number", "text", "either"])
def test_a_cell_is_read_without_a_look_at_the_others(kind):
    cells = ["1", "2.0", "9007199254740993", "1e3", np.nan]
    alone = files.read_column(pandas.Series(cells, dtype=object), kind)
    beside = files.read_column(pandas.Series([*cells, "0.5"], dtype=object), kind)
    assert list(map(repr, alone)) == list(map(repr, beside[:-1]))
    if kind == "either":
        beside = files.read_column(pandas.Series([*cells, "zebra"], dtype=object), kind)
        assert list(map(repr, alone)) == list(map(repr, beside[:-1])) and beside[-1] == "zebra"


# Declaring the domain


def test_without_a_domain_a_template_is_shown(run):
    arguments = ["fit", "table.csv", *FOREST, "--drop", "note", "--out", "model"]
    out, err = run(*arguments, status=2)
    assert err.startswith("lumberjack: error: the domain is not declared: ")
    assert err.count("\n") == 1 and "--infer-domain" in err
    filled = out.replace("LOWEST, HIGHEST", "17, 90").replace(
        '"CATEGORY", ...', '"ant", "bee", "cow"'
    )
    assert json.loads(filled.replace('"CLASS", "CLASS", ...', '"poor", "rich"')) == DOMAIN
    Path("domain.json").write_text(out)
    run(*fit_arguments(), status=2)  # a template that was not filled in is no domain
    assert "model" not in listing()


def test_a_domain_may_declare_dropped_columns_but_no_others(run, fails):
    Path("domain.json").write_text(json.dumps({**DOMAIN, "note": ["zebra"]}))
    run(*fit_arguments())
    Path("domain.json").write_text(json.dumps({**DOMAIN, "elsewhere": [0, 1], "agee": [17, 90]}))
    message = fails(*fit_arguments())
    assert "domain.json declares 'elsewhere', 'agee', which table.csv does not hold" in message


def test_a_domain_of_the_library_is_a_domain_file(run, fails):
    domain = {name: own for name, own in DOMAIN.items() if name != "wealth"}
    domain = Domain.from_dict(domain, classes=DOMAIN["wealth"]).to_dict()
    Path("domain.json").write_text(json.dumps(domain))
    run(*fit_arguments())
    assert fitted().classes_.tolist() == ["poor", "rich"]
    Path("domain.json").write_text(json.dumps({**domain, "inferred": ["bounds of age"]}))
    assert "read from records ('bounds of age')" in fails(*fit_arguments())
    Path("domain.json").write_text(json.dumps({**domain, "classes": None}))
    assert "must declare the target 'wealth'" in fails(*fit_arguments())
    Path("domain.json").write_text('{"version": 1}')
    assert "no columns" in fails(*fit_arguments())
    for version in (0, 2, False):
        Path("domain.json").write_text(json.dumps({**domain, "version": version}))
        assert f"has the version {version} of a domain file" in fails(*fit_arguments())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([0, 1], 'bounds or classes: write "wealth": {"bounds": [0, 1]} for a regression'),
        ([0.5, 1], "bounds or classes"),
        ([0.5, 1, 2], "must declare the target 'wealth'"),
        ({"classes": [0.5, 1]}, "must declare the target 'wealth'"),
        ({"classes": [1]}, "must declare the target 'wealth'"),
        ({"bounds": [0]}, "must declare the target 'wealth'"),
        ({"bounds": ["low", "high"]}, "must declare the target 'wealth'"),
        ({"bounds": [0, 1], "classes": [0, 1]}, "must declare the target 'wealth'"),
        ({"bounds": [1, 0]}, "target_bounds"),
        (17, "must declare the target 'wealth'"),
    ],
)
def test_targets_that_declare_nothing(fails, entry, message):
    Path("domain.json").write_text(json.dumps({**DOMAIN, "wealth": entry}))
    assert message in fails(*fit_arguments())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a domain file in JSON"),
        ("[1, 2]", "must hold one object"),
        ('{"age": [1, 2], "age": [1, 3]}', "gives a name twice"),
        (json.dumps({**DOMAIN, "age": [90, 17]}), "age"),
        (json.dumps({**DOMAIN, "age": 17}), "age"),
        (json.dumps({**DOMAIN, "animal": []}), "animal"),
        (json.dumps({**DOMAIN, "animal": ["ant", "ant"]}), "animal"),
        (json.dumps({**DOMAIN, "animal": {"categories": [True, False]}}), "write it as text"),
        (json.dumps({**DOMAIN, "wealth": ["rich"]}), "'wealth'"),
        (json.dumps({**DOMAIN, "wealth": ["rich", "rich"]}), "classes"),
        (json.dumps({**DOMAIN, "wealth": [True, False]}), "must declare the target 'wealth'"),
        (json.dumps({"age": [17, 90], "animal": ["ant"]}), "'wealth'"),
        (json.dumps({"wealth": ["poor", "rich"]}), "does not declare 'age', 'animal'"),
    ],
)
def test_domain_errors(fails, text, message):
    Path("domain.json").write_text(text)
    assert message in fails(*fit_arguments())
    assert "model" not in listing()


# Regression


def make_rides():
    """A made-up table with a target that is a number."""
    table = make_table().rename(columns={"wealth": "minutes"})
    table["minutes"] = np.where(table["animal"] == "bee", 80, 20) + table["age"] / 10
    return table


RIDES = {"age": [17, 90], "animal": ["ant", "bee", "cow"], "minutes": {"bounds": [0, 100]}}
FIT_RIDES = [
    "fit", "rides.csv", "--target", "minutes", "--epsilon", "8", "--delta", "1e-3", "--trees", "5",
    "--drop", "note", "--out", "model",
]  # fmt: skip


@pytest.fixture
def rides():
    make_rides().to_csv("rides.csv", index=False)
    Path("rides.json").write_text(json.dumps(RIDES))


def test_a_target_with_bounds_makes_a_regression(run, fails, rides):
    out, err = run(*FIT_RIDES, "--domain", "rides.json", "--test-fraction", "0.3")
    assert re.match(r"test R\^2 0\.[5-9]\d{3} \(outside the guarantee: ", out) and err == ""
    out, _ = run("predict", "model", "rides.csv")
    header, *predicted = out.splitlines()
    assert header == "minutes"
    assert np.corrcoef(np.array(predicted, dtype=float), make_rides()["minutes"])[0, 1] > 0.8
    assert "--proba is for classes" in fails("predict", "model", "rides.csv", "--proba")
    assert run("verify", "model").out.startswith("holds: ")
    assert "LumberjackRegressor of minutes: 5 trees" in run("inspect", "model").out


def test_the_option_for_a_regression(run, fails, rides):
    Path("rides.json").write_text(json.dumps({**RIDES, "minutes": [0, 100]}))
    assert "two numbers for the target" in fails(*FIT_RIDES, "--domain", "rides.json")
    run(*FIT_RIDES, "--domain", "rides.json", "--regression")
    assert fitted().domain_.target_bounds == (0, 100)
    out, err = run(*FIT_RIDES, "--infer-domain", "--regression")
    assert "bounds of y" in err and err.count("\n") == 1
    out, _ = run(*FIT_RIDES, "--regression", status=2)
    assert '"minutes": {"bounds": [LOWEST, HIGHEST]}' in out


def test_regression_errors(fails, rides):
    domain = ["--domain", "rides.json"]
    assert "--leaf majority is for classes" in fails(*FIT_RIDES, *domain, "--leaf", "majority")
    demo = ["demo", "--data", "rides.csv", "--target", "minutes", "--drop", "note"]
    assert "the demo compares classes" in fails(*demo, *domain)
    assert "because of --regression" in fails(*fit_arguments("--regression"))
    table = make_rides().astype(object)
    table.loc[3, "minutes"] = "zebra"
    table.to_csv("rides.csv", index=False)
    assert "y" in fails(*FIT_RIDES, *domain)


# Parquet


@pytest.fixture
def parquet():
    return pytest.importorskip("pyarrow.parquet")


def test_parquet_gives_what_csv_gives(run, parquet):
    run(*fit_arguments("--random-state", "3"))
    expected = run("predict", "model", "table.csv", "--proba").out
    table = make_table()
    table["animal"] = table["animal"].astype("category")
    table.to_parquet("table.parquet", index=False)
    run(*fit_arguments("--random-state", "3", table="table.parquet"))
    assert run("predict", "model", "table.parquet", "--proba").out == expected
    run("predict", "model", "table.parquet", "--proba", "--out", "answers.parquet")
    answers = pandas.read_parquet("answers.parquet")
    assert list(answers) == ["wealth", "probability of poor", "probability of rich"]
    assert len(answers) == N_RECORDS


def test_what_pandas_takes_for_an_index_is_a_column(parquet):
    make_table().set_index("age").to_parquet("table.parquet")
    table = files.read_table(Path("table.parquet"), None)
    assert {*table} == {*make_table()} and table["age"].tolist() == make_table()["age"].tolist()


def test_types_of_parquet(run, fails, parquet):
    table = make_table()
    table["wealth"] = table["wealth"] == "rich"
    table["animal"] = table["animal"].map({"ant": 1, "bee": 2, "cow": 3})
    table["age"] = table["age"].mask(table["age"] > 80, -9)
    table.to_parquet("table.parquet", index=False)
    declared = {"age": [17, 90], "animal": {"categories": [1, 2, 3]}, "wealth": {"classes": [0, 1]}}
    Path("domain.json").write_text(json.dumps(declared))
    run(*fit_arguments("--missing", "-9", table="table.parquet"))
    assert set(run("predict", "model", "table.parquet").out.splitlines()) == {"wealth", "0", "1"}
    Path("domain.json").write_text(json.dumps({**declared, "animal": ["1", "2"]}))
    message = fails(*fit_arguments(table="table.parquet"))
    assert "'animal' holds numbers" in message and "declare numbers" in message
    table["age"] = pandas.Timestamp("1987-06-05")
    table.to_parquet("table.parquet", index=False)
    Path("domain.json").write_text(json.dumps(declared))
    assert "age" in fails(*fit_arguments(table="table.parquet"))


def test_marks_of_missing_values_in_parquet(parquet):
    table = pandas.DataFrame({"n": [1, -9, 2], "t": ["a", "?", ""], "b": [True, False, None]})
    table.to_parquet("table.parquet", index=False)
    read = files.read_table(Path("table.parquet"), ["-9", "?"])
    assert read.isna().to_numpy().tolist() == [
        [False, False, False], [True, True, False], [False, True, True],
    ]  # fmt: skip
    np.testing.assert_array_equal(files.read_column(read["n"], "number"), [1, np.nan, 2])
    np.testing.assert_array_equal(files.read_column(read["b"], "number"), [1, 0, np.nan])


def test_parquet_errors(fails, monkeypatch, parquet):
    Path("table.parquet").write_bytes(b"zebra")
    assert "cannot be read as Parquet" in fails(*fit_arguments(table="table.parquet"))
    make_table(0).to_parquet("table.parquet", index=False)
    assert "holds no records" in fails(*fit_arguments(table="table.parquet"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "extra 'parquet'" in fails(*fit_arguments(table="table.parquet"))


# Ledgers


@needs_locks
def test_a_ledger_is_made_charged_and_shown(run, fails):
    assert "does not exist" in fails("ledger", "ledger.json")
    assert "does not exist" in fails(*fit_arguments("--ledger", "ledger.json"))
    out, err = run("ledger", "ledger.json", "--epsilon", "9", "--delta", "2e-3")
    assert out.startswith("ledger of (9, 0.002)-differential privacy") and err == ""
    out, err = run(*fit_arguments("--ledger", "ledger.json"))
    assert "charged: 1 fits" in out and err == ""
    assert "ledger.json" not in Path("model").read_text()
    assert run("ledger", "ledger.json").out in out
    Path("model").unlink()
    message = fails(*fit_arguments("--ledger", "ledger.json"))
    assert "the ledger refuses this fit" in message and "model" not in listing()
    assert len(PrivacyLedger.open("ledger.json").events) == 1


@needs_locks
def test_what_more_fits_can_have(run, fails):
    out, _ = run("ledger", "ledger.json", "--epsilon", "9", "--delta", "2e-3", "--share", "2")
    epsilon, delta = re.search(
        r"each of 2 more fits: --epsilon (\S+) --delta (\S+)\n$", out
    ).groups()
    arguments = ["fit", "table.csv", "--target", "wealth", "--epsilon", epsilon, "--delta", delta]
    arguments += ["--drop", "note", "--domain", "domain.json", "--out", "model"]
    for _ in range(2):
        run(*arguments, "--ledger", "ledger.json")
    fails(*arguments, "--ledger", "ledger.json")


@needs_locks
def test_a_test_score_is_told_to_the_ledger(run):
    run("ledger", "ledger.json", "--epsilon", "9", "--delta", "2e-3")
    out, err = run(*fit_arguments("--ledger", "ledger.json", "--test-fraction", "0.3"))
    assert "OUTSIDE THE GUARANTEE: 1 exact scores" in out
    assert err.startswith("lumberjack: warning: score inside a ledger") and err.count("\n") == 1


@needs_locks
def test_ledger_errors(run, fails):
    make = ["ledger", "ledger.json", "--epsilon", "9", "--delta", "2e-3"]
    assert "both --epsilon and --delta" in fails(*make[:4])
    assert "folder does not exist" in fails("ledger", "nowhere/ledger.json", *make[2:])
    assert "epsilon" in fails("ledger", "ledger.json", "--epsilon", "0", "--delta", "1e-6")
    run(*make, "--records-per-unit", "2", "--majority-share", "0.5")
    assert "other parameters" in fails(*make)
    assert "units of 2 records" in fails(*fit_arguments("--ledger", "ledger.json"))
    Path("ledger.json").write_text("{}")
    assert "is not a ledger" in fails("ledger", "ledger.json")
    assert "is not a ledger" in fails(*fit_arguments("--ledger", "ledger.json"))


# inspect and export


def test_inspect_tells_what_the_model_holds(run):
    run(*fit_arguments())
    out, err = run("inspect", "model", "--tree", "4", "--max-depth", "1")
    assert out.startswith("LumberjackClassifier of wealth: 5 trees, ") and err == ""
    for text in (
        str(fitted().domain_),
        str(fitted().privacy_),
        "budget: guide 50% ####",
        "tree 4:\n|--- ",
    ):
        assert text in out
    importances = dict(re.findall(r"^  (age|animal) +([\d.]+)% ", out, re.MULTILINE))
    assert sum(map(float, importances.values())) == pytest.approx(100, abs=0.2)
    assert not re.search(rf"\b{N_RECORDS}\b", out)


def test_inspect_gives_advice_on_an_empty_forest(run):
    arguments = fit_arguments()
    arguments[arguments.index("8")] = "0.02"
    arguments[arguments.index("1e-3")] = "1e-9"  # else the noise alone may pass a test
    run(*arguments)
    assert "advice: 5 of 5 trees are a single leaf" in run("inspect", "model").out


def test_inspect_draws(run, fails):
    pytest.importorskip("matplotlib")
    run(*fit_arguments())
    out, err = run("inspect", "model", "--figure", "model.png")
    assert out.endswith("figure: model.png\n") and err == ""
    assert Path("model.png").read_bytes().startswith(b"\x89PNG")
    assert "must end in" in fails("inspect", "model", "--figure", "model.txt")


@pytest.mark.parametrize("more", [["--leaf", "majority"], ["--epsilon", "inf", "--threshold", "9"]])
def test_inspect_models_without_counts_or_without_noise(run, more):
    run(*fit_arguments(*more))
    out, _ = run("inspect", "model")
    assert ("importances" in out) == ("--leaf" not in more)
    assert ("budget: " in out) == ("--leaf" in more)
    pytest.importorskip("matplotlib")
    run("inspect", "model", "--figure", "model.svg")


def test_inspect_errors(fails, run):
    assert "does not exist" in fails("inspect", "model")
    run(*fit_arguments())
    assert "tree" in fails("inspect", "model", "--tree", "5")
    assert "--tree" in fails("inspect", "model", "--tree", "-1")


def test_export_a_report_that_can_be_verified(run, fails):
    run(*fit_arguments())
    assert run("export", "model", "--report", "report.json") == ("", "")
    assert run("verify", "report.json").out == run("verify", "model").out
    assert "--onnx FILE or --report" in fails("export", "model")
    assert "folder does not exist" in fails("export", "model", "--report", "nowhere/report.json")


def test_export_a_graph(run, fails):
    onnx = pytest.importorskip("onnx")
    run(*fit_arguments())
    assert run("export", "model", "--onnx", "graph.onnx") == ("", "")
    graph = onnx.load("graph.onnx").graph
    assert [own.name for own in graph.input] == ["age", "animal"]
    run("fit", "table.csv", *FOREST, "--drop", "note", "--infer-domain", "--out", "model")
    assert "read from the data" in fails("export", "model", "--onnx", "graph.onnx")
    run("export", "model", "--onnx", "graph.onnx", "--allow-inferred")


# Progress


def test_progress_is_shown_to_who_asks_or_watches(run, monkeypatch):
    quiet = run(*fit_arguments())
    out, err = run(*fit_arguments("--verbose"))
    assert out.splitlines()[0] == quiet.out.splitlines()[0]
    assert "lumberjack: now: reading table.csv\n" in err
    assert "lumberjack: now: growing 5 trees\n" in err and "released 5 trees" in err
    assert not any(str(N_RECORDS) in text.replace(",", "") for text in (out, err))
    assert "now: predicting" in run("predict", "model", "table.csv", "--verbose").err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    out, err = run(*fit_arguments())
    assert "now: growing" in err and "released" not in out + err
    assert fitted().verbose == 0


# Tables


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"age,animal,note,wealth\n", "holds no records"),
        (b"age,animal,age,wealth\n1,zebra,2,rich\n", "two columns named 'age'"),
        (b"age,,note,wealth\n1,ant,zebra,rich\n", "a column without a name"),
        (b"age,animal,note,wealth\n1,ant,zebra,rich,98765\n", "more cells than the header"),
        (b'age,animal,note,wealth\n1,ant,"zebra,rich\n', "quoted cell does not end"),
        (b"age,animal,note,wealth\n1,ant,\xff\xfezebra,rich\n", "not text in UTF-8"),
        (b"age,animal,note\n1,ant,zebra\n", "'wealth' is not a column of table.csv"),
        (b"age,animal,wealth\n1,ant,rich\n", "'note' is not a column of table.csv"),
        (b"age,animal,note,wealth\n1,ant,x,quagga\n1,ant,x,rich\n", "classes"),
        (b"age,animal,note,wealth\n1,ant,x,\n1,ant,x,rich\n", "y"),
        (b"age,animal,note,wealth\nzebra,ant,x,rich\n98765,ant,x,poor\n", "age"),
        (b"age,animal,note,wealth\ninf,ant,x,rich\n98765,ant,x,poor\n", "age"),
    ],
)
def test_table_errors(fails, content, message):
    Path("table.csv").write_bytes(content)
    assert message in fails(*fit_arguments())
    assert "model" not in listing()


def test_files_that_cannot_be_read(fails):
    Path("broken.csv.gz").write_bytes(gzip.compress(b"age,wealth\n1,zebra\n" * 99)[:40])
    Path("plain.csv.gz").write_bytes(b"zebra")
    Path("folder").mkdir()
    assert "cannot be read" in fails(*fit_arguments(table="broken.csv.gz"))
    assert "cannot be read" in fails(*fit_arguments(table="plain.csv.gz"))
    assert "does not exist" in fails(*fit_arguments(table="nowhere.csv"))
    assert "is a folder" in fails(*fit_arguments(table="folder"))
    assert "does not exist" in fails(*fit_arguments(domain="nowhere.json"))


def test_no_column_is_left_or_the_target_is_dropped(fails):
    assert "both the target and dropped" in fails(*fit_arguments("--drop", "wealth"))
    message = fails(*fit_arguments("--drop", "age", "animal"))
    assert "no column of table.csv is left to predict 'wealth' from" in message


def test_without_pandas(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert "extra 'cli'" in fails(*fit_arguments())


# Parameters


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "much"], "--epsilon"),
        (["--epsilon", "inf"], "threshold"),
        (["--delta", "1"], "delta"),
        (["--delta", "1e-300"], "delta"),
        (["--trees", "0"], "--trees: must be a whole number of at least 1"),
        (["--depth", "1024"], "--depth: must be a whole number from 1 to 1023"),
        (["--leaf", "mean"], "--leaf"),
        (["--threshold", "0.5"], "threshold"),
        (["--records-per-unit", "1.5"], "--records-per-unit"),
        (["--test-fraction", "1"], "--test-fraction: must be a number between 0 and 1"),
        (["--test-fraction", "half"], "--test-fraction"),
        (["--test-fraction", "1e-12"], "--test-fraction leaves no records"),
        (["--random-state", "-1"], "--random-state"),
        (["--n-jobs", "0"], "n_jobs"),
        (["--infer-domain"], "not allowed with argument --domain"),
        (["--eps", "1"], "--eps"),
    ],
)
def test_parameter_errors(fails, more, message):
    assert message in fails(*fit_arguments(*more))
    assert "model" not in listing()


@pytest.mark.parametrize("arguments", [[], ["chop"], ["fit"], ["budget", "--epsilon", "1"]])
def test_incomplete_commands(fails, arguments):
    assert "--help" in fails(*arguments)


# Files are written whole or not at all


class FullDisk(io.BytesIO):
    """A file of which the first half can be written."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, content):
        super().write(content[: len(content) // 2])
        raise self.error


def break_writing(monkeypatch, error):
    """Let all files that are written break halfway."""
    true_open = open

    def broken_open(path, mode):
        true_open(path, mode).close()
        return FullDisk(error)

    monkeypatch.setattr(files, "open", broken_open, raising=False)


def test_a_failed_write_leaves_the_old_model(fails, run, monkeypatch):
    run(*fit_arguments())
    before = Path("model").read_bytes()
    break_writing(monkeypatch, OSError(28, "No space left on device"))
    assert "No space left on device" in fails(*fit_arguments())
    assert Path("model").read_bytes() == before
    Path("model").unlink()
    fails(*fit_arguments())
    assert listing() == ["domain.json", "table.csv"]


def test_an_interrupted_write_leaves_nothing(run, monkeypatch):
    break_writing(monkeypatch, KeyboardInterrupt())
    assert run(*fit_arguments(), status=130).err == "lumberjack: error: interrupted\n"
    assert listing() == ["domain.json", "table.csv"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("nowhere/model", "folder does not exist"),
        (".", "is not a file"),
        (os.devnull, "is not a file"),
    ],
)
def test_outputs_are_checked_before_the_budget_is_spent(fails, monkeypatch, out, message):
    monkeypatch.setattr(cli, "read_training", None)
    assert message in fails(*fit_arguments("--out", out))
    assert message in fails("predict", "model", "table.csv", "--out", out)


# Model files


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"age,wealth\n1,zebra\n",
        b"[1, 2]",
        b"{}",
        b'{"format": "lumberjack model"}',
        b"\x80\xff",
    ],
)
def test_what_is_no_model(fails, content):
    Path("model").write_bytes(content)
    message = "model: this is not a model of lumberjack"
    assert message in fails("predict", "model", "table.csv")
    assert message in fails("inspect", "model")
    assert message in fails("export", "model", "--onnx", "graph")


def test_model_of_another_format(fails):
    data = {"format": "lumberjack model", "format_version": 99, "lumberjack": "7.0"}
    Path("model").write_text(json.dumps(data))
    assert "version 99, of lumberjack '7.0'" in fails("predict", "model", "table.csv")


def test_a_model_file_is_that_of_the_library(run):
    run(*fit_arguments("--missing", "?"))
    model, metadata = export.from_json(Path("model").read_text(), return_metadata=True)
    assert metadata == {"target": "wealth", "missing": ["?"]}
    assert (model.verbose, model.ledger, model.random_state) == (0, None, None)
    Path("model").write_text(export.to_json(model))  # without a name of the target
    assert run("predict", "model", "table.csv").out.startswith("prediction\n")


def test_predict_errors(fails, run):
    assert "does not exist" in fails("predict", "model", "table.csv")
    run(*fit_arguments())
    Path("new.csv").write_text("note,wealth\nzebra,98765\n")
    assert "new.csv lacks 'age', 'animal'" in fails("predict", "model", "new.csv")
    Path("new.csv").write_text("age,animal\nzebra,ant\n")
    assert "age" in fails("predict", "model", "new.csv")
    files.write_model(Path("model"), fitted(), "probability of rich", None)
    run("predict", "model", "table.csv")
    message = fails("predict", "model", "table.csv", "--proba")
    assert "two columns named 'probability of rich'" in message


# budget


@pytest.mark.parametrize("splitter", ["guided", "random"])
def test_budget_prints_the_calibration(run, splitter):
    arguments = ["budget", "--epsilon", "1", "--delta", "1e-6", "--trees", "30", "--depth", "100"]
    out, _ = run(*arguments, "--splitter", splitter)
    noise = accounting.calibrate(
        1.0, 1e-6, n_estimators=30, max_depth=100, budget_shares=DEFAULT_SHARES[splitter],
        n_features=14, n_classes=2,
    )  # fmt: skip
    assert f"sigma = {noise.sigma_tests:.4g}:" in out
    assert f"Delta = {noise.slack:.4g}:" in out
    assert f"tau = {noise.threshold:.4g}:" in out
    assert f"leaf noise = {noise.sigma_leaves:.4g}:" in out
    assert "depth 127 costs the same" in out and "expect" not in out


def test_budget_tells_what_to_expect(run):
    arguments = ["budget", "--epsilon", "1", "--delta", "1e-6", "--trees", "30", "--depth", "127"]
    arguments += ["--splitter", "random"]
    out, _ = run(*arguments, "--records", "2000")
    assert "tau = 428: about 5 leaves a tree for 2,000 records" in out
    assert "rule of thumb" in out and "single leaf" not in out
    out, _ = run(*arguments, "--records", "500")
    assert "about 1 leaf a tree for 500 records" in out
    assert "most trees will likely be a single leaf; use fewer trees" in out


def test_budget_of_the_paper(run):
    arguments = ["--leaf", "majority", "--accounting", "split", "--trees", "30", "--depth", "100"]
    arguments += ["--splitter", "random"]
    out, _ = run("budget", "--epsilon", "1", "--delta", "1e-6", *arguments)
    assert "leaf epsilon = 0.0" in out and "leaf noise" not in out


def test_budget_errors(fails):
    arguments = ["budget", "--delta", "1e-6", "--trees", "30", "--depth", "100"]
    assert "epsilon" in fails(*arguments, "--epsilon", "-1")
    assert "threshold" in fails(*arguments, "--epsilon", "inf")
    assert "--records" in fails(*arguments, "--epsilon", "1", "--records", "many")
    regression = ["--epsilon", "1", "--regression"]
    assert "is for classes" in fails(*arguments, *regression, "--leaf", "majority")


def test_budget_of_a_regression(run):
    arguments = ["budget", "--epsilon", "1", "--delta", "1e-6"]
    assert run(*arguments, "--regression") == run(*arguments)  # but for the last digits


# demo


def test_demo_prints_accuracies_and_guarantee_and_saves_the_picture(run):
    pytest.importorskip("matplotlib")
    out, err = run("demo")
    rows = re.findall(r"^\[0, (\d+)\] x \[0, \d+\] +([01]\.\d+) +([01]\.\d+)$", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["5", "50", "5000"]
    private, fully_random = np.array(rows, dtype=float)[:, 1:].T
    assert private.min() > 0.9 and fully_random[-1] < 0.9
    assert "  (2, 1e-06)-differential privacy, add or remove one unit\n" in out
    assert "NO PRIVACY" in out and out.endswith("picture: lumberjack-demo.png\n") and err == ""
    assert Path("lumberjack-demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_without_matplotlib(run, fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out, _ = run("demo", "--trees", "2")
    assert "no picture: it needs matplotlib (the extra 'plot')" in out
    assert "extra 'plot'" in fails("demo", "--out", "picture.svg")
    assert listing() == ["domain.json", "table.csv"]


def test_demo_on_a_table(run):
    arguments = ["--data", "table.csv", "--target", "wealth", "--drop", "note"]
    out, err = run("demo", "--trees", "3", *arguments, "--domain", "domain.json")
    assert "outside the guarantee" in out.splitlines()[0] and err == ""
    assert re.search(r"^private forest: +accuracy [01]\.\d{4}, AUC", out, re.MULTILINE)
    assert re.search(r"^fully random trees: accuracy ", out, re.MULTILINE)
    assert "not the defaults of fit: 3 trees, random splits, majority leaves" in out
    assert not re.search(rf"\b{N_RECORDS}\b", out)
    _, err = run("demo", "--trees", "3", *arguments)
    assert err.startswith("lumberjack: warning: read from the data") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "wealth"], "need --data"),
        (["--data", "table.csv"], "needs --target"),
        (["--data", "table.csv", "--target", "wealth", "--out", "a.png"], "--out"),
        (["--out", "picture.txt"], "must end in .png or .pdf or .svg"),
        (["--out", "nowhere/picture.png"], "folder does not exist"),
    ],
)
def test_demo_errors(fails, arguments, message):
    assert message in fails("demo", *arguments)


# The process and the README


@needs_locks
def test_readme_examples_work(run):
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    names = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(example, names)
    assert names["ledger"].is_private
    Path("people.json").write_text(re.search(r"^    (\{.*\})$", text, re.MULTILINE)[1])
    rows = ["20,Male,<=50K", "70,Female,>50K"] * 300
    for name in ("people.csv", "others.csv"):
        Path(name).write_text("\n".join(["age,sex,income", *rows]))
    commands = re.findall(r"^    lumberjack (.*)$", text, re.MULTILINE)
    assert {command.split()[0] for command in commands} == {*cli.COMMANDS}
    for command in commands:
        run(*command.split())


def test_python_m_lumberjack():
    arguments = ["budget", "--epsilon", "1", "--delta", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "lumberjack", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("lumberjack: error: delta") and done.stderr.count("\n") == 1


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert f"lumberjack {__version__}" in capsys.readouterr().out


def examples_of(command):
    """The commands in the examples of a help text, without what is said about them."""
    text = re.sub(r"\\\n *", "", getattr(arguments, f"HELP_{command.upper()}"))
    return re.findall(r"^  lumberjack (.*?)(?:   .*)?$", text, re.MULTILINE)


@needs_locks
def test_the_examples_of_every_help_work(run, rides, capsys):
    pytest.importorskip("matplotlib")
    pytest.importorskip("onnx")
    people = make_table().rename(columns={"animal": "sex", "wealth": "income"}).drop(columns="note")
    people["sex"] = np.where(people["sex"] == "bee", "Male", "Female")
    people["income"] = np.where(people["income"] == "rich", ">50K", "<=50K")
    for name in ("people.csv", "others.csv"):
        people.to_csv(name, index=False)
    declared = re.search(r"^  (\{.*\})$", arguments.HELP_FIT, re.MULTILINE)[1]
    Path("people.json").write_text(declared)
    make_rides().drop(columns="note").to_csv("rides.csv", index=False)
    assert {*cli.COMMANDS} == {
        name[5:].lower() for name in vars(arguments) if name.startswith("HELP_")
    }
    # A ledger is made before it is used, all else in the order of the help.
    for command in sorted(cli.COMMANDS, key=lambda name: name != "ledger"):
        with pytest.raises(SystemExit, match="0"):
            cli.main([command, "--help"])
        assert "examples:\n  lumberjack " in capsys.readouterr().out
        for example in examples_of(command):
            assert example.split()[0] == command
            run(*example.split())


# verify


def test_verify_and_inspect_refuse_the_report_of_a_hierarchy(run, fails):
    run(*fit_arguments())
    content = json.loads(Path("model").read_text())
    report = HierarchicalHeavyHitters(1, 1e-6, bit_length=8).fit([1, 2, 3]).privacy_
    Path("model").write_text(json.dumps({**content, "privacy": json.loads(report.to_json())}))
    for command in ("verify", "inspect"):
        assert "is not that of a forest" in fails(command, "model")


@pytest.mark.parametrize("more", [[], ["--leaf", "majority"], ["--records-per-unit", "3"]])
def test_verify_a_model_and_its_report(run, more):
    run(*fit_arguments(*more))
    report = fitted().privacy_
    out, err = run("verify", "model")
    assert err == "" and out.count("\n") == 1
    assert out.startswith("holds: (8, 0.001)-differential privacy, add or remove one unit, unit: ")
    assert "delta recomputed 0.00" in out or "delta recomputed 0.001" in out
    Path("report.json").write_text(report.to_json())
    again, err = run("verify", "report.json")
    assert again == out and err == ""


def test_verify_a_report_that_claims_too_much(run):
    run(*fit_arguments())
    data = fitted().privacy_.to_dict()
    for claim in ({"epsilon": 4.0}, {"delta": 1e-4}, {"slack": 0.0}):
        Path("report.json").write_text(json.dumps({**data, **claim}))
        out, err = run("verify", "report.json", status=1)
        assert err == "" and out.startswith("DOES NOT HOLD: ") and out.count("\n") == 1


def test_verify_a_model_without_a_guarantee(run):
    run(*fit_arguments("--random-state", "1"))
    out, _ = run("verify", "model", status=1)
    assert out.startswith("DOES NOT HOLD: ") and "random_state" in out
    arguments = fit_arguments("--threshold", "5")
    arguments[arguments.index("8")] = "inf"
    run(*arguments)
    out, _ = run("verify", "model", status=1)
    assert "NO PRIVACY" in out and out.count("\n") == 1


def test_verify_a_model_with_more_trees_than_its_report_tells_of(run):
    run(*fit_arguments())
    content = json.loads(Path("model").read_text())
    run(*fit_arguments("--trees", "4"))
    other = json.loads(Path("model").read_text())
    Path("model").write_text(json.dumps({**content, "privacy": other["privacy"]}))
    assert "parameters and privacy differ in n_estimators" in run("verify", "model", status=2)[1]
    forged = {name: other[name] for name in ("privacy", "parameters")}
    Path("model").write_text(json.dumps({**content, **forged}))
    out, _ = run("verify", "model", status=1)
    assert "the model holds 5 trees, its report tells of 4" in out


@pytest.mark.parametrize("text", ["{}", "{", "[]", "", "zebra", '{"format": 1}'])
def test_verify_what_is_no_report(fails, text):
    Path("report.json").write_text(text)
    message = fails("verify", "report.json")
    assert message.startswith("report.json is ") and "a model" in message and "report" in message
    assert "does not exist" in fails("verify", "nothing")
