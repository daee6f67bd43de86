"""Estimates of whole commands: measured once, corrected by what commands take, and never a reason to fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import tensorprog as tp
from tensorprog.jobs import pace
from tensorprog.jobs.pace import Pace, Paced
from tensorprog.results.study import Listener
from tensorprog.show.progress import Progress


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORPROG_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(pace, "_measured", lambda: 2 * pace.MEASURED)
    return tmp_path / "kept" / "pace.json"


def test_a_machine_is_measured_once_and_then_corrected(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Pace().seconds("drawing", 3.0) == 6.0
    monkeypatch.setattr(pace, "_measured", lambda: 7 * pace.MEASURED)
    known = Pace()
    assert known.seconds("drawing", 3.0) == 6.0
    errors = []
    for _ in range(5):  # steps that take eight times as long as roughly expected
        known.learn({"drawing": (1.0, 8.0), "limit": (0.001, 0.04)})
        errors.append(abs(Pace().seconds("drawing", 1.0) - 8.0))
        known = Pace()
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5
    assert known.seconds("limit", 1.0) == 2.0  # what is so short says nothing


def test_a_program_has_a_pace_of_its_own(file: Path) -> None:
    for _ in range(3):
        Pace("slow").learn({"drawing": (1.0, 40.0)})
        Pace("quick").learn({"drawing": (1.0, 0.5)})
    assert Pace("slow").seconds("drawing", 1.0) == pytest.approx(40.0, rel=0.05)
    assert Pace("quick").seconds("drawing", 1.0) == pytest.approx(0.5, rel=0.05)
    assert 0.5 < Pace("new").seconds("drawing", 1.0) < 40.0
    for number in range(2 * pace.MOST):
        Pace(str(number)).learn({"drawing": (1.0, 0.5)})
    assert len(json.loads(file.read_text())["factors"]) <= pace.MOST + 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"machine": 3, "factors": {"": 1}}', "nan", "factors"])
def test_a_damaged_file_is_measured_again(file: Path, content: str) -> None:
    Pace()
    good = json.loads(file.read_text())
    if content == "factors":
        content = json.dumps(good | {"factors": {"": 0.0}})
    file.write_text(content)
    assert Pace().seconds("drawing", 1.0) == 2.0
    assert json.loads(file.read_text()) == good


def test_without_a_folder_each_command_measures(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORPROG_CACHE", "off")
    known = Pace()
    known.learn({"drawing": (1.0, 8.0)})
    assert not file.exists()
    assert Pace().seconds("drawing", 1.0) == 2.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_steps_say_what_is_left_and_are_learned(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("time.perf_counter", clock)
    monkeypatch.setattr("time.process_time", clock)
    shown = Progress(notes=False)
    told = Paced(shown, Pace(), {"limit": ("limit", 2.0), "n = 8": ("drawing", 5.0), "pictures": ("pictures", 0.5)})
    assert sum(told.expected.values()) == 15.0
    told.stage("limit")
    assert shown.left() == 15.0
    clock.now += 3
    assert shown.left() == 12.0
    clock.now += 5  # longer than it should
    assert shown.left() == 11.0
    told.stage("n = 8")
    clock.now += 2
    told.progress(10, 100)
    assert shown.left() == pytest.approx(18 + 1)
    shown.stage("a part of it")
    told.progress(1, 2)
    assert shown.left() == 9.0
    told.stage("pictures")
    clock.now += 1
    told.done()
    assert Pace().seconds("limit", 2.0) == pytest.approx((4.0 * 8.0) ** 0.5)
    assert Pace().seconds("pictures", 0.5) == 1.0


def test_a_silent_listener_is_told_too(file: Path) -> None:
    told = Paced(Listener(), Pace(), {"a": ("limit", 1.0)})
    for text in ("a", "b"):
        told.stage(text)
    told.note("said")
    told.cells(1, 2, 0.5)
    told.done()


def test_laws_take_as_long_as_they_are_many_and_read_many_scores() -> None:
    """Measured: a law of a member takes some nine times as long where 64 scores are read together as where 4 are."""
    small, large = tp.load("attention_correlated"), tp.load("attention_correlated", s=64)
    rough = []
    for program in (small, large):
        law = program.limit()
        law.known = False  # type: ignore[attr-defined]
        rough.append(pace.about_curves(program, law, ["y"], 64))
        members = program.netsor.families["y"].shape[0]
        assert law.different("y") == members
        assert pace.about_curves(program, law, ["y"], 2) == pytest.approx(2 * rough[-1] / members)
    assert 4 < rough[1] / 64 / (rough[0] / 4) < 16
    same = tp.load("attention").limit()
    assert same.different("y") == 1
    assert same.different("y[2]") == 1
    assert same.different("u") == 4
    assert pace.about_first_order(large.netsor, 8.0) == 8.0
    assert pace.about_first_order(small.netsor, 8.0) < 2.0


def test_every_long_step_of_a_run_is_expected(file: Path, tmp_path: Path) -> None:
    from tensorprog.jobs.run import run
    from tensorprog.results.study import settings_of

    expected: dict[str, float] = {}
    begun: list[str] = []

    class Hearing(Listener):
        def expect(self, seconds: Mapping[str, float]) -> None:
            expected.update(seconds)

        def stage(self, text: str) -> None:
            begun.append(text)

    program = tp.load("attention", s=2, H=1)
    run(
        program,
        settings_of(program.netsor, {"width": (8, 16), "samples": 500}),
        tmp_path / "out",
        Hearing(),
        page=lambda study: "",
    )
    assert set(begun) - set(expected) == {"checking"}
    assert set(expected) <= set(begun)


@pytest.mark.parametrize(
    ("passed", "worked", "learned"),
    [
        (8.0, 2.0, 2.0),  # one thread, beside others on the machine
        (2.0, 7.0, 2.0),  # several threads
        (8.0, 0.1, 8.0),  # workers in other processes
    ],
)
def test_other_work_on_the_machine_is_not_learned(
    passed: float, worked: float, learned: float, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, work = Clock(), Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    monkeypatch.setattr("time.process_time", work)
    told = Paced(Listener(), Pace(), {"limit": ("limit", 1.0)})
    told.stage("limit")
    clock.now += passed
    work.now += worked
    told.done()
    assert Pace().seconds("limit", 1.0) == pytest.approx((2.0 * learned) ** 0.5)
