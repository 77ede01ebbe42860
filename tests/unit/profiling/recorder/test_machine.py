"""What is known of the machine, and that its peaks are measured once."""

from __future__ import annotations

import json
import os

import pytest

from hotloop.profiling.recorder import machine


def test_the_machine_is_described_without_measuring():
    found = machine.describe_machine(measure=False)
    assert 1 <= found["cores"] <= (os.cpu_count() or 1)
    assert found["memory_bytes"] > 1 << 28
    assert found["peak_flops"] == found["copy_bytes_per_s"] == 0.0
    json.dumps(found)


def test_peaks_are_measured_once_and_kept(monkeypatch, tmp_path):
    asked = []

    def measure(threads: str | None) -> dict[str, float]:
        asked.append(threads)
        return {"flops": 1e9 if threads else 5e8, "copy_bytes_per_s": 1e10}

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_measure_in_process", measure)
    first, second = machine.describe_machine(), machine.describe_machine()
    assert asked == [None, "1"]
    assert first == second
    assert first["peak_flops"] >= first["peak_flops_1"] == 1e9, "all threads can do at least what one can"


@pytest.mark.parametrize("given", ["", "cache"])
def test_an_empty_or_relative_cache_is_none(given, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "_measure_in_process", lambda threads: {"flops": 2e9, "copy_bytes_per_s": 1e9})
    machine.describe_machine()
    (file,) = tmp_path.rglob("*.json")
    assert file.parent == tmp_path / ".cache" / "hotloop"


def test_a_machine_that_cannot_be_measured_says_zero(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_measure_in_process", lambda threads: {})
    assert machine.describe_machine()["peak_flops"] == 0.0
    assert not list(tmp_path.rglob("*.json")), "and is asked again next time"


def test_a_broken_cache_is_measured_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_measure_in_process", lambda threads: {"flops": 2e9, "copy_bytes_per_s": 1e9})
    machine.describe_machine()
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{")
    assert machine.describe_machine()["peak_flops"] == 2e9


def test_versions_are_of_what_is_installed():
    found = machine.library_versions()
    assert {"hotloop", "numpy", "pyarrow"} <= set(found)
    assert all(version[0].isdigit() for version in found.values())
