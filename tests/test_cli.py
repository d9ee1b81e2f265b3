"""The command: what it prints, what it writes, and how it fails."""

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lumberjack import __version__, accounting, cli
from lumberjack.parameters import DEFAULT_SHARES

pandas = pytest.importorskip("pandas")

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


def files():
    """Names of the files in the working directory."""
    return sorted(os.listdir())


# fit and predict


def test_fit_prints_the_guarantee_and_nothing_private(run):
    out, err = run(*fit_arguments())
    assert out.startswith("(8, 0.001)-differential privacy, add or remove one unit\n")
    assert "entropy: operating system" in out and out.endswith("model: model\n")
    assert err == "" and "test" not in out.replace("tests", "")
    assert not re.search(rf"\b{N_RECORDS}\b", out.replace(",", ""))
    assert files() == ["domain.json", "model", "table.csv"]


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
    declared = {"age": [17, 90], "animal": {"categories": [1, 2, 3]}, "wealth": [0, 1]}
    Path("domain.json").write_text(json.dumps(declared))
    run(*fit_arguments())
    out, _ = run("predict", "model", "table.csv")
    assert set(out.splitlines()[1:]) == {"0", "1"}
    assert np.mean(np.array(out.splitlines()[1:], dtype=int) == table["wealth"]) > 0.9


@pytest.mark.parametrize("kind", ["number", "text", "either"])
def test_a_cell_is_read_without_a_look_at_the_others(kind):
    cells = ["1", "2.0", "9007199254740993", "1e3", np.nan]
    alone = cli.read_column(pandas.Series(cells, dtype=object), kind)
    beside = cli.read_column(pandas.Series([*cells, "0.5"], dtype=object), kind)
    assert list(map(repr, alone)) == list(map(repr, beside[:-1]))
    if kind == "either":
        beside = cli.read_column(pandas.Series([*cells, "zebra"], dtype=object), kind)
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
    assert "model" not in files()


def test_a_domain_may_declare_more_than_is_used(run):
    more = {**DOMAIN, "note": ["zebra"], "elsewhere": [0, 1]}
    Path("domain.json").write_text(json.dumps(more))
    run(*fit_arguments())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a domain file in JSON"),
        ("[1, 2]", "must hold one object"),
        ('{"age": [1, 2], "age": [1, 3]}', "names a column twice"),
        (json.dumps({**DOMAIN, "age": [90, 17]}), "age"),
        (json.dumps({**DOMAIN, "age": 17}), "age"),
        (json.dumps({**DOMAIN, "animal": []}), "animal"),
        (json.dumps({**DOMAIN, "animal": ["ant", "ant"]}), "animal"),
        (json.dumps({**DOMAIN, "animal": {"categories": [True, False]}}), "write it as text"),
        (json.dumps({**DOMAIN, "wealth": ["rich"]}), "'wealth'"),
        (json.dumps({**DOMAIN, "wealth": ["rich", "rich"]}), "classes"),
        (json.dumps({**DOMAIN, "wealth": [True, False]}), "'wealth'"),
        (json.dumps({"age": [17, 90], "animal": ["ant"]}), "'wealth'"),
        (json.dumps({"wealth": ["poor", "rich"]}), "does not declare 'age', 'animal'"),
    ],
)
def test_domain_errors(fails, text, message):
    Path("domain.json").write_text(text)
    assert message in fails(*fit_arguments())
    assert "model" not in files()


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
    assert "model" not in files()


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
    fails(*fit_arguments("--drop", "age", "animal"))


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
    assert "model" not in files()


@pytest.mark.parametrize("arguments", [[], ["chop"], ["fit"], ["budget", "--epsilon", "1"]])
def test_incomplete_commands(fails, arguments):
    assert "--help" in fails(*arguments)


# Files are written whole or not at all


def test_a_failed_write_leaves_the_old_model(fails, run, monkeypatch):
    run(*fit_arguments())
    before = Path("model").read_bytes()

    def full_disk(content, file, protocol):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pickle, "dump", full_disk)
    assert "No space left on device" in fails(*fit_arguments())
    assert Path("model").read_bytes() == before
    Path("model").unlink()
    fails(*fit_arguments())
    assert files() == ["domain.json", "table.csv"]


def test_an_interrupted_write_leaves_nothing(run, monkeypatch):
    def interrupted(content, file, protocol):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pickle, "dump", interrupted)
    assert run(*fit_arguments(), status=130).err == "lumberjack: error: interrupted\n"
    assert files() == ["domain.json", "table.csv"]


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


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("was_run",)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"age,wealth\n1,zebra\n",
        pickle.dumps([1, 2]),
        pickle.dumps({"model": 1}),
        pickle.dumps(RunsCode()),
        pickle.dumps({"format": 1, "lumberjack": "0", "model": RunsCode()}),
    ],
)
def test_what_is_no_model(fails, content):
    Path("model").write_bytes(content)
    assert "model is not a model that lumberjack fit wrote" in fails(
        "predict", "model", "table.csv"
    )
    assert "was_run" not in files()


def test_model_of_another_format(fails):
    Path("model").write_bytes(pickle.dumps({"format": 99, "lumberjack": "7.0"}))
    message = fails("predict", "model", "table.csv")
    assert "format 99 of lumberjack 7.0" in message and __version__ in message


def test_predict_errors(fails, run):
    assert "does not exist" in fails("predict", "model", "table.csv")
    run(*fit_arguments())
    Path("new.csv").write_text("note,wealth\nzebra,98765\n")
    assert "new.csv lacks 'age', 'animal'" in fails("predict", "model", "new.csv")
    Path("new.csv").write_text("age,animal\nzebra,ant\n")
    assert "age" in fails("predict", "model", "new.csv")


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
    assert files() == ["domain.json", "table.csv"]


def test_demo_on_a_table(run):
    arguments = ["--data", "table.csv", "--target", "wealth", "--drop", "note"]
    out, err = run("demo", "--trees", "3", *arguments, "--domain", "domain.json")
    assert "outside the guarantee" in out.splitlines()[0] and err == ""
    assert re.search(r"^private forest: +accuracy [01]\.\d{4}, AUC", out, re.MULTILINE)
    assert re.search(r"^fully random trees: accuracy ", out, re.MULTILINE)
    assert not re.search(rf"\b{N_RECORDS}\b", out)
    _, err = run("demo", "--trees", "3", *arguments)
    assert err.startswith("lumberjack: warning: read from the data") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "wealth"], "need --data"),
        (["--data", "table.csv"], "needs --target"),
        (["--data", "table.csv", "--target", "wealth", "--out", "a.png"], "--out"),
        (["--out", "picture.txt"], "--out must end in .png or .pdf or .svg"),
        (["--out", "nowhere/picture.png"], "folder does not exist"),
    ],
)
def test_demo_errors(fails, arguments, message):
    assert message in fails("demo", *arguments)


# The process and the README


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
    assert {command.split()[0] for command in commands} == {
        "budget", "fit", "predict", "demo", "verify",
    }  # fmt: skip
    for command in commands:
        run(*command.split())


def test_python_m_lumberjack():
    arguments = ["budget", "--epsilon", "1", "--delta", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "lumberjack", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("lumberjack: error: delta") and done.stderr.count("\n") == 1


def test_help_and_version(capsys):
    for arguments in (["--help"], ["fit", "--help"], ["predict", "--help"], ["--version"]):
        with pytest.raises(SystemExit, match="0"):
            cli.main(arguments)
    assert f"lumberjack {__version__}" in capsys.readouterr().out


# verify


def fitted_report():
    """The report of the model that was fitted here."""
    return cli.read_model(Path("model"))["model"].privacy_


@pytest.mark.parametrize("more", [[], ["--leaf", "majority"], ["--records-per-unit", "3"]])
def test_verify_a_model_and_its_report(run, more):
    run(*fit_arguments(*more))
    report = fitted_report()
    out, err = run("verify", "model")
    assert err == "" and out.count("\n") == 1
    assert out.startswith("holds: (8, 0.001)-differential privacy, add or remove one unit, unit: ")
    assert "delta recomputed 0.00" in out or "delta recomputed 0.001" in out
    Path("report.json").write_text(report.to_json())
    again, err = run("verify", "report.json")
    assert again == out and err == ""


def test_verify_a_report_that_claims_too_much(run):
    run(*fit_arguments())
    data = fitted_report().to_dict()
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
    content = cli.read_model(Path("model"))
    content["model"].tree_offsets_ = np.append(content["model"].tree_offsets_, 0)
    Path("model").write_bytes(pickle.dumps(content))
    out, _ = run("verify", "model", status=1)
    assert "the model holds 6 trees, its report tells of 5" in out


@pytest.mark.parametrize("text", ["{}", "{", "[]", "", "zebra", '{"format": 1}'])
def test_verify_what_is_no_report(fails, text):
    Path("report.json").write_text(text)
    assert "report.json" in fails("verify", "report.json")
    assert "does not exist" in fails("verify", "nothing")


def test_a_model_file_cannot_open_a_ledger(fails):
    class Evil:
        def __reduce__(self):
            from lumberjack import PrivacyLedger

            return PrivacyLedger.open, ("spent.json",)

    Path("model").write_bytes(pickle.dumps({"format": 1, "lumberjack": "0", "model": Evil()}))
    before = files()
    assert "is not a model" in fails("verify", "model")
    assert files() == before
