"""The containers: rates and aggregates against known answers, files there and back, readers beside a writer."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData
from jumper.schema.errors import JumperError

BASE = [
    "time", "memory", "io_read_count", "io_write_count", "io_read", "io_write",
    "cpu_util_avg", "cpu_util_min", "cpu_util_max",
]  # fmt: skip


def filled(samples, **kwargs):
    data = PerformanceData(2, 2, 0)
    for at, io in samples:
        data.add_sample("process", at, [10.0, 30.0], 1.5, [], [], [], io, **kwargs)
    return data


def test_cumulative_io_becomes_rates_by_the_samples_own_time():
    data = filled([(100.0, [0, 0, 0, 0]), (102.0, [4096, 100, 2, 1]), (102.5, [4096, 200, 2, 2])])
    frame = data.view()
    assert frame["io_read"].tolist()[1:] == [2048.0, 0.0]
    assert frame["io_write"].tolist()[1:] == [50.0, 200.0]
    assert frame["io_read_count"].tolist()[1:] == [1.0, 0.0]
    assert frame["io_write_count"].tolist()[1:] == [0.5, 2.0]
    assert frame[["io_read", "io_write", "io_read_count", "io_write_count"]].iloc[0].isna().all()


def test_a_reset_is_null_for_its_interval_and_its_column_only():
    frame = filled([(0.0, [100, 100, 9, 9]), (1.0, [5, 150, 10, 9]), (2.0, [10, 150, 10, 9])]).view()
    assert math.isnan(frame["io_read"].iloc[1])
    assert frame["io_read"].iloc[2] == 5.0
    assert frame["io_write"].tolist()[1:] == [50.0, 0.0]


def test_time_that_stands_still_is_null_not_infinite():
    assert filled([(1.0, [0, 0, 0, 0]), (1.0, [5, 5, 5, 5])]).view()["io_read"].isna().all()


def test_arrays_are_as_good_as_lists():
    data = PerformanceData(2, 2, 1)
    for at in (0.0, 2.0):
        data.add_sample(
            "process", at, np.array([1.0, 3.0]), np.float32(1), np.array([5]), [], np.array([]), np.full(4, at)
        )
    assert data.view().iloc[1][["cpu_util_avg", "memory", "gpu_util_max", "io_read"]].tolist() == [2.0, 1.0, 5.0, 1.0]


@pytest.mark.parametrize("io", [None, []])
def test_no_io_is_null(io):
    assert filled([(0.0, io), (1.0, io)]).view()[["io_read", "io_write"]].isna().all(axis=None)


def test_io_of_another_length_is_refused_and_nothing_of_the_row_is_taken():
    data = filled([(0.0, [0, 0, 0, 0])])
    with pytest.raises(ValueError, match="io: expected bytes read, bytes written, reads and writes, found 3 values"):
        data.add_sample("process", 1.0, [1.0], 1.0, [], [], [], [1, 2, 3])
    with pytest.raises(TypeError, match="column memory: expected a number or None, found 'much'"):
        data.add_sample("process", {"time": 1.0, "memory": "much"})
    assert len(data.view()) == 1


def test_columns_stand_in_the_documents_order_whatever_came_first():
    data = PerformanceData(12, 12, 2)
    data.add_sample("system", {"time": 0.0, "temperature": 40})
    data.add_sample("system", 1.0, [1.0] * 12, 1.0, [10, 30], [1, 2], [3, 5], [0, 0, 0, 0])
    frame = data.view("system")
    assert list(frame) == [
        *BASE,
        *(f"cpu_util_{core}" for core in range(12)),
        *(f"gpu_{metric}_{part}" for part in ("avg", "min", "max") for metric in ("util", "band", "mem")),
        *(f"gpu_{metric}_{device}" for metric in ("util", "band", "mem") for device in range(2)),
        "temperature",
    ]
    assert frame["gpu_util_avg"].iloc[1] == 20.0
    assert frame["temperature"].isna().tolist() == [False, True]
    assert (frame.dtypes == "float64").all()


def test_levels_are_those_of_this_process_and_are_kept_apart(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert PerformanceData(1, 1, 0).levels == ["process", "user", "system", "slurm"]
    monkeypatch.delenv("SLURM_JOB_ID")
    data = filled([(0.0, [0, 0, 0, 0])])
    assert list(data.data) == ["process", "user", "system"]
    assert [len(data.data[level]) for level in data.data] == [1, 0, 0]
    assert list(data.data["user"]) == BASE
    data.add_sample("slurm", {"time": 1.0})
    assert "slurm" in data.levels
    with pytest.raises(ValueError, match="unknown level 'job'; known are process, user, system, slurm"):
        data.add_sample("job", {"time": 1.0})
    with pytest.raises(ValueError, match="no level 'job' here; there are process, user, system, slurm"):
        data.view("job")
    with pytest.raises(KeyError):
        data.data["job"]


def test_a_relative_series_is_shifted_as_a_whole_and_an_absolute_one_is_not():
    relative = filled([(0.1, None), (1200.0, None)])
    relative.start_time = 1000.0
    assert relative.view()["time"].tolist() == [1000.1, 2200.0]
    absolute = filled([(1000.0, None), (1001.0, None)])
    absolute.start_time = 1000.0
    assert absolute.view()["time"].tolist() == [1000.0, 1001.0]


def test_a_slice_has_both_its_ends():
    assert filled([(float(t), None) for t in range(5)]).view(slice_=(1, 3))["time"].tolist() == [1.0, 2.0, 3.0]


def test_rows_know_the_cell_that_ran():
    cells = pd.DataFrame({"cell_index": [4, 5], "start_time": [0.5, 2.0], "end_time": [1.0, 2.5]})
    data = filled([(float(t), None) for t in range(4)])
    for history in (cells, SimpleNamespace(data=cells)):
        assert data.view(cell_history=history)["cell_index"].tolist() == [pd.NA, 4, 5, pd.NA]


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "CSV"])
def test_a_file_gives_back_what_was_measured(suffix, tmp_path):
    data = filled([(1 / 3, [0, 0, 0, 0]), (1234567.890123456, [1, 2, 3, 4])])
    file = tmp_path / "new" / "folder" / f"x.{suffix}"
    data.export(str(file))
    pd.testing.assert_frame_equal(PerformanceData.load(file), data.view(), check_exact=False, rtol=1e-14)


def test_other_files_are_refused(tmp_path):
    data = filled([(0.0, None)])
    for name in ("x.xlsx", "x"):
        with pytest.raises(JumperError, match=r"expected a name that ends in \.csv, \.json or \.parquet"):
            data.export(tmp_path / name)
    with pytest.raises(JumperError, match="cannot be read as csv"):
        data.load(tmp_path / "absent.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(JumperError, match="expected exported samples with a column `time`, found a, b"):
        data.load(tmp_path / "other.csv")
    (tmp_path / "broken.json").write_text("7")
    with pytest.raises(JumperError, match="cannot be read as json"):
        data.load(tmp_path / "broken.json")
    (tmp_path / "broken.parquet").write_text("no")
    with pytest.raises(JumperError, match="cannot be read as parquet"):
        data.load(tmp_path / "broken.parquet")


def test_a_reader_beside_a_writer_sees_whole_rows_only():
    data = PerformanceData(2, 2, 0)
    failed = []

    def write():
        for count in range(3000):
            data.add_sample("process", {"time": float(count), "memory": float(count), f"late_{count % 50}": 1.0})

    def read():
        try:
            while writer.is_alive():
                frame = data.view()
                assert frame["time"].eq(frame["memory"]).all()
                assert frame.filter(like="late_").notna().sum(axis=1).eq(1).all()
        except Exception as error:
            failed.append(error)

    writer, reader = threading.Thread(target=write), threading.Thread(target=read)
    writer.start()
    reader.start()
    reader.join()
    writer.join()
    assert failed == []
    assert len(data) == 3000


def test_adding_needs_no_pandas():
    code = (
        "import sys\n"
        "from jumper.adapters.data import NodeDataStore, NodeInfo, PerformanceData\n"
        "PerformanceData(1, 1, 0).add_sample('process', 0.0, [1.0], 1.0, [], [], [], [0, 0, 0, 0])\n"
        "NodeDataStore().register_node(NodeInfo('n', 1, 1))\n"
        "assert not {'pandas', 'numpy', 'pyarrow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ.copy())


def store(*nodes, cpus=(2, 2)):
    """A store of nodes that each have (time, row) samples."""
    made = NodeDataStore()
    for index, samples in enumerate(nodes):
        made.register_node(NodeInfo(f"n{index}", cpus[index], cpus[index]))
        for at, row in samples:
            made.add_sample(f"n{index}", "process", {"time": at, **row})
    return made


def test_one_node_is_its_own_view_and_may_share_the_monitors_container():
    data = filled([(0.0, None)])
    nodes = NodeDataStore()
    nodes.register_node(NodeInfo("n", 2, 2), data)
    data.add_sample("process", {"time": 1.0})
    pd.testing.assert_frame_equal(nodes.view(), data.view())
    pd.testing.assert_frame_equal(nodes.view("process", "n"), data.view())
    assert (nodes.node_names(), nodes.levels) == (["n"], data.levels)


def test_columns_add_up_over_nodes_as_the_schema_says():
    one = {"memory": 1.0, "io_read": 100.0, "cpu_util_avg": 10.0, "cpu_util_min": 0.0, "cpu_util_max": 20.0,
           "cpu_util_0": 0.0, "net_sent": 100.0, "gpu_mem_avg": 2.0}  # fmt: skip
    other = {"memory": 3.0, "io_read": 900.0, "cpu_util_avg": 50.0, "cpu_util_min": 40.0, "cpu_util_max": 60.0,
             "cpu_util_0": 40.0, "net_sent": 900.0, "gpu_mem_avg": 4.0}  # fmt: skip
    frame = store([(0.0, one), (1.0, one)], [(0.0, other), (1.0, other)], cpus=(3, 1)).view()
    assert list(frame["time"]) == [0.0, 1.0]
    assert frame.iloc[0].drop("time").to_dict() == {
        "memory": 4.0, "io_read": 1000.0, "cpu_util_avg": 20.0, "cpu_util_min": 0.0, "cpu_util_max": 60.0,
        "gpu_mem_avg": 3.0, "net_sent": 1000.0,
    }  # fmt: skip


def test_nodes_are_joined_by_time_not_by_position():
    first = [(float(t), {"memory": 1.0}) for t in range(5)]
    second = [(100.0 + t, {"memory": 10.0}) for t in range(5)]
    frame = store(first, second).view()
    assert frame["time"].tolist() == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]
    assert frame["memory"].tolist() == [1.0] * 5 + [10.0] * 5


def test_nodes_that_tick_at_other_moments_leave_no_holes():
    jitter = [0.0, 0.13, -0.2, 0.3, -0.31, 0.05, 0.22, -0.1]
    first = [(10.0 + t, {"memory": 1.0}) for t in range(8)]
    second = [(10.4 + t + j, {"memory": 10.0}) for t, j in enumerate(jitter)]
    frame = store(first, second).view()
    assert frame["memory"].iloc[1:-1].eq(11.0).all()
    assert frame["time"].diff().iloc[1:].round(6).eq(1.0).all()


def test_a_node_that_ticks_seldom_is_held_between_its_samples():
    fast = [(t / 10, {"memory": 1.0}) for t in range(21)]
    slow = [(float(t), {"memory": 10.0}) for t in range(3)]
    frame = store(fast, slow).view()
    assert len(frame) == 21
    assert frame["memory"].eq(11.0).all()


def test_a_gap_of_one_node_is_not_filled():
    first = [(float(t), {"memory": 1.0}) for t in range(10)]
    second = [(float(t), {"memory": 10.0}) for t in (0, 1, 2, 7, 8, 9)]
    assert store(first, second).view()["memory"].tolist() == [11, 11, 11, 11, 1, 1, 11, 11, 11, 11]


def test_a_counter_of_a_node_that_ended_stays_in_the_sum():
    first = [(float(t), {"cpu_ns": 100 * t}) for t in range(3)]
    second = [(float(t), {"cpu_ns": 1000 * t}) for t in range(6)]
    assert store(first, second).view()["cpu_ns"].tolist() == [0, 1100, 2200, 3200, 4200, 5200]


def test_a_node_without_samples_takes_no_part_and_unknown_ones_are_named():
    nodes = store([(0.0, {"memory": 1.0})], [])
    assert nodes.view()["memory"].tolist() == [1.0]
    assert nodes.view("system").empty
    assert nodes.view("process", "n1").empty
    with pytest.raises(JumperError, match="no node 'n7' here; there are n0, n1"):
        nodes.view("process", "n7")
    with pytest.raises(JumperError, match="no node 'n7'"):
        nodes.add_sample("n7", "process", {"time": 0.0})
    with pytest.raises(ValueError, match="no level 'job'"):
        nodes.view("job")
    assert NodeDataStore().view().empty


def test_nodes_are_exported_joined_or_one_by_one(tmp_path):
    nodes = store([(0.0, {"memory": 1.0})], [(0.0, {"memory": 2.0})])
    nodes.export(tmp_path / "all.json")
    nodes.export(tmp_path / "one.csv", node="n1")
    assert NodeDataStore.load(tmp_path / "all.json")["memory"].tolist() == [3.0]
    assert NodeDataStore.load(tmp_path / "one.csv")["memory"].tolist() == [2.0]
    assert nodes.view(slice_=(0, 0))["time"].tolist() == [0.0]
