"""Figures over seeds, paired differences from the host, and the text they become."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from newkinds.comparison import Column, Comparison, Entry, OverSeeds, Row, merge_protocols, shared_protocol
from newkinds.experiments.styles import text

ALL, ERROR = Column("all", "All", "%", better="higher"), Column("error", "error", better="lower")


def one(value: float) -> OverSeeds:
    return OverSeeds({0: value})


def over(*values: float) -> OverSeeds:
    return OverSeeds(dict(enumerate(values)))


def test_a_figure_is_the_mean_and_the_deviation_of_the_sample() -> None:
    values = [61.2, 58.3, 63.9]
    mean = sum(values) / 3
    figure = OverSeeds.of(dict(enumerate(values)))
    assert figure is not None
    assert figure.mean == pytest.approx(mean)
    assert figure.std == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / 2))
    assert Entry(ALL, figure).text == "61.1 ± 2.8"
    assert Entry(Column("all", "All", decimals=2), OverSeeds.of({4: 61.25})).text == "61.25"
    assert Entry(ALL, None).text == "–"
    assert OverSeeds.of({}) is None
    assert OverSeeds.of({0: 61.2, 1: None}) is None, "a mean over fewer runs than the others' would be another figure"


def test_counts_are_whole_numbers_but_their_means_are_not() -> None:
    counts = Column("count", "count", counts=True)
    assert Entry(counts, one(231.0), one(200.0)).text == "231"
    assert Entry(counts, one(231.0), one(200.0)).change == "+31"
    assert Entry(counts, over(231.0, 230.0)).text == "230.5 ± 0.7"


def test_differences_are_signed() -> None:
    assert Entry(ALL, one(61.0), one(63.5)).change == "\N{MINUS SIGN}2.5"
    assert Entry(ALL, one(61.02), one(61.04)).change == "+0.0"
    assert Entry(ALL, None, one(1.0)).change == "–"


def test_a_difference_is_taken_seed_by_seed() -> None:
    """Seed 2 is harder for both: a row without it is compared with the host's other seeds, not with their mean."""
    host = over(60.0, 62.0, 40.0)
    entry = Entry(ALL, OverSeeds({0: 61.0, 1: 62.5}), host)
    assert entry.change == "+0.8 ± 0.2", "of 1.0 and 0.5: the deviation is 0.35, the standard error 0.25"
    assert Entry(ALL, OverSeeds({2: 40.5}), host).change == "+0.5"
    assert Entry(ALL, OverSeeds({3: 70.0}), host).change == "–", "no seed in common"


@pytest.mark.parametrize("seeds", [2, 3, 5, 12])
def test_the_interval_is_that_of_the_paired_t_test(seeds: int) -> None:
    """SciPy's own test of the same pairs gives the same interval, and calls it significant where ours excludes 0."""
    rng = np.random.default_rng(seeds)
    for shift in (0.0, 1.0, -4.0):
        host = rng.normal(60, 5, seeds)
        ours = host + shift + rng.normal(0, 0.5, seeds)
        entry = Entry(ALL, over(*ours), over(*host))
        test = stats.ttest_rel(ours, host)
        assert entry.gain is not None
        assert entry.gain.interval == pytest.approx(tuple(test.confidence_interval(0.95)))
        assert entry.gain.error == pytest.approx(stats.sem(ours - host))
        expected = "" if test.pvalue > 0.05 else "better" if ours.mean() > host.mean() else "worse"
        assert entry.verdict == expected


def test_the_interval_is_shown_with_its_signs() -> None:
    entry = Entry(ALL, over(61.2, 62.0, 63.6), over(60.0, 61.0, 62.0))
    assert entry.change == "+1.3 ± 0.2"
    assert entry.interval == "[+0.5, +2.0]"
    assert Entry(ALL, over(61.0, 59.0), over(60.0, 60.0)).interval == "[\N{MINUS SIGN}12.7, +12.7]"
    assert Entry(ALL, one(61.0), one(60.0)).interval == "", "one seed says nothing about chance"


def test_a_change_is_judged_only_if_its_interval_excludes_zero() -> None:
    host, clear, unclear = over(60.0, 61.0, 62.0), over(63.0, 64.1, 64.9), over(63.0, 61.0, 63.0)
    assert Entry(ALL, clear, host).verdict == "better"
    assert Entry(ERROR, clear, host).verdict == "worse"
    assert Entry(ALL, host, clear).verdict == "worse"
    assert Entry(ALL, unclear, host).verdict == ""
    assert Entry(Column("params", "params"), clear, host).verdict == "", "neither direction is good"
    assert Entry(ALL, one(90.0), one(10.0)).verdict == "", "one seed"
    assert Entry(ALL, None, host).verdict == ""


def test_seeds_pair_no_seconds_and_what_is_constant_has_no_spread() -> None:
    host, other = over(60.0, 61.0, 62.0), over(63.0, 64.1, 64.9)
    time = Entry(Column("seconds", "time", "s", "lower", decimals=0, is_paired=False), other, host)
    assert (time.text, time.change, time.interval, time.verdict) == ("64 ± 1", "+3", "", "")
    size = Entry(Column("parameters", "params", "M", decimals=2, is_constant=True), over(1.5, 1.5), over(1.0, 1.0))
    assert (size.text, size.change, size.interval) == ("1.50", "+0.50", "")


def a_comparison(*rows: Row) -> Comparison:
    return Comparison(list(rows), shared_protocol(rows))


def test_rows_without_a_common_seed_are_not_compared() -> None:
    ours, base = OverSeeds({3: 61.0}), OverSeeds({0: 60.0, 1: 61.0})
    assert not Row("mine", [Entry(ALL, ours, base)], runs=1).compared
    assert Row("mine", [Entry(ALL, ours, OverSeeds({3: 60.0}))], runs=1).compared
    assert "Δ" not in text(a_comparison(Row("mine", [Entry(ALL, ours, base)], runs=1)))


def test_the_table_says_what_changed_beneath_each_row_and_explains_it_once() -> None:
    host = Row("host", [Entry(ALL, over(60.0, 61.0, 62.0))], runs=3, protocol={"seed": "0; 1; 2", "split": "ab"})
    ours = Entry(ALL, over(61.2, 62.0, 63.6), over(60.0, 61.0, 62.0))
    compared = Row("host + CPF", [ours], runs=3, protocol={"seed": "0; 1; 2", "split": "cd"})
    table, legend, protocol = text(a_comparison(host, compared)).split("\n\n")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert cells[0] == ["", "All %", "seeds"]
    assert cells[2:] == [
        ["host", "61.0 ± 1.0", "3"],
        ["host + CPF", "62.3 ± 1.2", "3"],
        ["Δ", "+1.3 ± 0.2", "3"],
        ["95 %", "[+0.5, +2.0]", ""],
    ]
    assert "standard error" in legend
    assert "95 % interval" in legend
    assert protocol.splitlines() == ["seed   0; 1; 2", "split  host: ab · host + CPF: cd"]


def test_without_differences_only_the_spread_is_explained() -> None:
    legend = a_comparison(Row("host", [Entry(ALL, over(60.0, 61.0, 62.0))], runs=3)).legend
    assert "standard deviation" in legend
    assert "Δ" not in legend


def test_a_single_seed_has_a_difference_and_says_from_what() -> None:
    host, ours = Row("host", [Entry(ALL, one(60.0))]), Row("ours", [Entry(ALL, one(61.0), one(60.0))])
    printed = text(a_comparison(host, ours))
    assert "+1.0" in printed
    assert "Δ: difference from the host." in printed
    assert "95 %" not in printed
    assert "±" not in printed


def test_a_table_without_figures_is_empty_not_broken() -> None:
    printed = text(a_comparison(Row("host", [Entry(ALL, None)], protocol={"seed": "0"})))
    assert printed.count("–") == 1, "run, but not measured"
    assert "–" not in text(a_comparison(Row("host", [Entry(ALL, None)], runs=0))), "not run"
    assert merge_protocols([]) == {}


def test_nothing_that_prints_a_table_imports_torch() -> None:
    program = (
        "import sys; from newkinds.comparison import Column, Entry, OverSeeds;"
        "from newkinds.experiments import styles; import newkinds.text;"
        "ours, host = OverSeeds({0: 1.0, 1: 2.0}), OverSeeds({0: 0.0, 1: 0.5});"
        "print(Entry(Column('all', 'All'), ours, host).interval);"
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("[")


def test_equal_differences_have_no_interval_of_no_width() -> None:
    same = OverSeeds({0: 2.0, 1: 2.0})
    assert same.interval is None
    assert Entry(Column("All", "%", "higher"), OverSeeds({0: 5.0, 1: 6.0}), OverSeeds({0: 3.0, 1: 4.0})).verdict == ""
