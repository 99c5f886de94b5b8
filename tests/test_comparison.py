"""Two runs compared: known answers of the test and the interval, conditions, and what cannot be compared."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from jumper.analysis.comparison import COLUMNS, Difference, compare, mann_whitney, parse_limit
from jumper.report import compared
from jumper.schema.errors import JumperError
from tests import made


def tasks(wall: object, group: str = "align", state: str = "done", **columns: object) -> pd.DataFrame:
    rows = pd.DataFrame({"wall_s": np.asarray(wall, dtype=float)}).assign(group=group, state=state, **columns)
    return made.tasks_table(rows.to_dict("records"))


# sources: the examples of R's wilcox.test (Hollander & Wolfe 1973, 69f) and of scipy.stats.mannwhitneyu
KNOWN = [
    ([0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46], [1.15, 0.88, 0.90, 0.74, 1.21], 0.2544),
    ([19, 22, 16, 29, 24], [20, 11, 17, 12], 0.1111),
    ([1, 2, 3], [4, 5, 6], 0.1),
    ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], 1.0),
]


@pytest.mark.parametrize(("a", "b", "p"), KNOWN)
def test_the_mann_whitney_test_gives_published_answers(a: list[float], b: list[float], p: float) -> None:
    assert mann_whitney(np.array(a, float), np.array(b, float)) == pytest.approx(p, abs=5e-4)


def test_the_normal_approximation_joins_the_exact_test() -> None:
    chance = np.random.default_rng(0)
    a, b = chance.normal(0, 1, 8), chance.normal(0.6, 1, 8)
    a[:2] = -10, -9
    exact = mann_whitney(a, b)
    a[:2] = -10  # tied with each other only: no rank sum changes
    assert mann_whitney(a, b) != exact and mann_whitney(a, b) == pytest.approx(exact, abs=0.02)


def test_p_values_of_equal_runs_are_spread_evenly() -> None:
    chance = np.random.default_rng(1)
    found = [mann_whitney(chance.exponential(size=30), chance.exponential(size=30)) for _ in range(400)]
    assert np.mean(np.array(found) < 0.05) < 0.09 and 0.4 < np.mean(found) < 0.6


@pytest.mark.parametrize("count", [15, 16])
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(count: int) -> None:
    chance = np.random.default_rng(2)
    held = []
    for _ in range(200):
        a, b = chance.lognormal(0, 0.3, count), 1.5 * chance.lognormal(0, 0.3, count)
        tables = [pd.DataFrame({"group": "g", "state": "done", "wall_s": values}) for values in (a, b)]
        (found,) = compare(*tables, ["wall_s"]).differences
        assert found.low is not None and found.high is not None
        held.append(found.low <= 1.5 <= found.high)
    assert 0.88 <= np.mean(held) <= 1.0


def test_the_drawn_medians_are_those_of_samples_drawn_in_full() -> None:
    from jumper.analysis.comparison import _medians

    for count in (7, 8):
        values = np.sort(np.random.default_rng(3).exponential(size=count))
        fast = _medians(values, np.random.default_rng(4))
        slow = np.median(np.random.default_rng(5).choice(values, (4000, count)), axis=1)
        assert np.quantile(fast, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(slow, [0.1, 0.5, 0.9]), rel=0.15)
        assert fast.mean() == pytest.approx(slow.mean(), rel=0.05)


def test_a_run_is_like_itself_and_twice_itself_is_twice_as_much() -> None:
    run = made.make(60, samples=False).tasks
    for found in compare(run, run).differences:
        assert found.ratio in (1.0, None) and found.sure is not True
    double = run.copy()
    double["memory_peak_bytes"] = double["memory_peak_bytes"] * 2
    found = {d.group: d for d in compare(run, double).differences if d.column == "memory_peak_bytes"}
    assert set(found) == {"read", "tokenise", "compress", "aggregate", "write"}
    assert all(d.ratio == 2 and d.sure for d in found.values())
    assert compare(run, double) == compare(run, double)


def test_only_attempts_that_succeeded_are_compared_and_nulls_are_left_out() -> None:
    a, b = tasks([1, 1, 1]), tasks([1, 1, 1, 99])
    b.loc[3, "state"] = "failed"
    assert compare(a, b, ["wall_s"]).differences[0].ratio == 1.0
    b.loc[2, "wall_s"] = pd.NA
    (found,) = compare(a, b, ["wall_s"]).differences
    assert (found.attempts_a, found.attempts_b, found.ratio) == (3, 2, 1.0)
    (unknown,) = compare(a, b, ["cpu_s"]).differences
    assert (unknown.attempts_a, unknown.median_a, unknown.ratio, unknown.p) == (0, None, None, None)


def test_something_from_nothing_is_more_than_any_limit_and_valid_json() -> None:
    found = compare(tasks([1] * 5, write_chars=0), tasks([1] * 5, write_chars=7), ["write_chars"])
    limit = parse_limit("write_chars > 1000%")
    assert found.differences[0].ratio == math.inf
    document = json.loads(json.dumps(compared.as_json(found, [limit]), allow_nan=False))
    assert document["schema"] == 1 and document["differences"][0]["ratio"] is None
    assert "write_chars from nothing" in document["broken"][0]


@pytest.mark.parametrize(
    ("text", "ratio", "p", "broken"),
    [
        ("wall_s > 10%", 1.2, 0.01, True),
        ("wall_s > 10 %", 1.1, 0.01, False),
        ("wall_s>10%", 1.2, 0.3, False),
        ("wall_s < -10%", 0.8, 0.01, True),
        ("wall_s < -10%", 1.2, 0.01, False),
        ("cpu_s > 10%", 1.2, 0.01, False),
        ("wall_s > 0%", None, 0.01, False),
    ],
)
def test_a_limit_is_broken_by_a_change_beyond_it_that_is_sure(
    text: str, ratio: float | None, p: float, broken: bool
) -> None:
    found = Difference("g", "wall_s", 20, 20, 1.0, ratio, ratio, None, None, p)
    assert parse_limit(text).broken(found) is broken


def test_with_too_few_attempts_to_tell_the_medians_decide() -> None:
    (found,) = compare(tasks([1.0]), tasks([2.0]), ["wall_s"]).differences
    assert found.sure is None and found.low is None and parse_limit("wall_s > 10%").broken(found)


@pytest.mark.parametrize("text", ["", "wall_s", "wall_s > 10", "wall_s >= 10%", "10% < wall_s", "wall_s > x%"])
def test_what_is_no_limit_says_how_one_looks(text: str) -> None:
    with pytest.raises(JumperError, match="memory_peak_bytes > 10%"):
        parse_limit(text)


@pytest.mark.parametrize("column", ["key", "start_ns", "no_such"])
def test_a_column_without_numbers_to_compare_lists_those_that_have(column: str) -> None:
    with pytest.raises(JumperError, match=f"'{column}' cannot be compared; there are .*wall_s"):
        parse_limit(f"{column} > 1%")


def test_runs_that_have_nothing_in_common_say_so() -> None:
    with pytest.raises(JumperError, match="no group in common: align in the first, sort in the second"):
        compare(tasks([1]), tasks([1], group="sort"))
    with pytest.raises(JumperError, match="of kind dask, the second snakemake"):
        compare(tasks([1], kind="dask"), tasks([1], kind="snakemake"))
    with pytest.raises(JumperError, match="align in the first, none in the second"):
        compare(tasks([1]), made.tasks_table([]))


def test_groups_of_one_run_only_are_named() -> None:
    found = compare(pd.concat([tasks([1]), tasks([1], "old")]), pd.concat([tasks([1]), tasks([1], "new")]), COLUMNS)
    assert (found.only_a, found.only_b) == (["old"], ["new"])
