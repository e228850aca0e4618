"""Worker processes that answer, fail, hang, die and never start."""

from __future__ import annotations

import ast
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest

from sgdoctor.tune.pool import Pool, WorkersFailed

ROOT = Path(__file__).parents[2]
MATRIX = str(Path(__file__).parent / "matrices" / "e8.json.xz")


def finish(pool, seconds=30):
    """Return the outcomes of all tasks."""
    outcomes = []
    until = time.monotonic() + seconds
    while pool.unfinished and time.monotonic() < until:
        outcomes += pool.outcomes(wait=1.0)
    assert not pool.unfinished
    return outcomes


def test_every_task_is_answered_once():
    with Pool("echo", {}, size=2, depth=2) as pool:
        for i in range(20):
            pool.submit({"say": i})
        outcomes = finish(pool)
    assert sorted(o.value for o in outcomes) == list(range(20))
    assert {o.ending for o in outcomes} == {"done"}
    assert all(o.task == {"say": o.value} for o in outcomes)


def test_an_error_is_a_result_and_the_worker_goes_on():
    with Pool("echo", {}) as pool:
        pool.submit({"raise": "out of resources"})
        pool.submit({"say": "still here"})
        error, answer = finish(pool)
    assert (error.ending, error.text) == ("error", "ValueError: out of resources")
    assert answer.value == "still here"


def test_a_crash_is_told_of_its_task_and_another_worker_takes_over():
    with Pool("echo", {}) as pool:
        pool.submit({"signal": int(signal.SIGSEGV)})
        pool.submit({"say": "after"})
        crash, answer = finish(pool)
    assert (crash.ending, crash.text) == ("crashed", "died of SIGSEGV")
    assert crash.task == {"signal": int(signal.SIGSEGV)}
    assert answer.value == "after"


def test_a_hang_is_ended():
    with Pool("echo", {}, timeout=2.0) as pool:
        pool.submit({"sleep": 600})
        pool.submit({"say": "after"})
        hang, answer = finish(pool)
    assert (hang.ending, hang.text) == ("timeout", "no answer within 2 s")
    assert answer.value == "after"


def test_a_worker_without_a_task_may_wait_longer_than_the_time_out():
    with Pool("echo", {}, timeout=1.0) as pool:
        pool.submit({"say": 1})
        finish(pool)
        child = pool._workers[0].process
        list(pool.outcomes(wait=1.5))
        time.sleep(1.0)
        list(pool.outcomes())
        assert child.poll() is None


def test_a_role_that_cannot_start_says_why():
    with Pool("compile", {"path": "/nowhere", "problem": {}, "capability": [9, 0]}) as pool:
        pool.submit({"say": 1})
        with pytest.raises(WorkersFailed, match=r"ModuleNotFoundError|TypeError|FileNotFoundError"):
            finish(pool)


def test_an_interpreter_that_dies_at_once_is_not_started_for_ever(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with Pool("echo", {}, python=str(broken)) as pool:
        pool.submit({"say": 1})
        with pytest.raises(WorkersFailed, match="exited with 3 before it was ready"):
            finish(pool)


def test_closing_leaves_no_process():
    pool = Pool("echo", {}, size=2)
    pool.submit({"sleep": 600})
    list(pool.outcomes(wait=1.0))
    processes = [child.process for child in pool._workers]
    pool.close()
    assert all(process.poll() is not None for process in processes)


def test_the_innocent_of_two_tasks_gets_its_answer_and_the_guilty_is_known():
    """Both were begun when the worker died; each is tried again alone."""
    with Pool("echo", {}, depth=2) as pool:
        tasks = [{"say": 1, "sleep": 0.2}, {"signal": int(signal.SIGSEGV)}, {"say": 2}, {"say": 3}]
        for task in tasks:
            pool.submit(task)
        outcomes = finish(pool)
    assert sorted(o.value for o in outcomes if o.ending == "done") == [1, 2, 3]
    (crash,) = [o for o in outcomes if o.ending != "done"]
    assert (crash.task, crash.ending, crash.text) == (tasks[1], "crashed", "died of SIGSEGV")


def test_of_two_tasks_the_one_that_hangs_is_known():
    with Pool("echo", {}, depth=2, timeout=1.5) as pool:
        for task in ({"sleep": 600}, {"say": 1}):
            pool.submit(task)
        outcomes = finish(pool)
    assert sorted((o.ending, o.task.get("say")) for o in outcomes) == [("done", 1), ("timeout", None)]


def test_a_broken_device_is_not_an_answer_to_the_task_that_met_it():
    """A launch fails because of what another left behind: alone, one is answered, the other says why not."""
    with Pool("echo", {}, depth=2) as pool:
        for task in ({"say": 1, "sleep": 0.2}, {"break": "an illegal memory access"}):
            pool.submit(task)
        outcomes = finish(pool)
    assert sorted((o.ending, o.text) for o in outcomes) == [
        ("crashed", "DeviceBroken: an illegal memory access"),
        ("done", ""),
    ]


def test_every_worker_has_an_environment_of_its_own_and_so_has_its_successor():
    gpus = [{"CUDA_VISIBLE_DEVICES": f"GPU-{letter}"} for letter in "abc"]
    with Pool("echo", {}, environments=gpus, environment={"TRITON_INTERPRET": "1"}) as pool:
        assert pool.wait_ready()
        for _ in range(2):
            for _ in gpus:
                pool.submit({"sleep": 0.3, "environment": ["CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET"]})
            answers = {o.worker: o.value for o in finish(pool)}
            assert answers == {i: [gpu["CUDA_VISIBLE_DEVICES"], "1"] for i, gpu in enumerate(gpus)}
            for _ in gpus:
                pool.submit({"sleep": 0.3, "signal": int(signal.SIGKILL)})
            assert {o.ending for o in finish(pool)} == {"crashed"}
            assert pool.wait_ready()


def test_workers_say_what_they_are_in_the_order_of_their_environments():
    settings = [{"matrix": MATRIX, "uuid": uuid} for uuid in ("GPU-a", "GPU-b")]
    with Pool("replay", settings, environments=[{}, {}]) as pool:
        assert pool.wait_ready()
        assert [about["uuid"] for about in pool.abouts] == ["GPU-a", "GPU-b"]
        assert pool.about["gpu"] == "replay"


def test_two_workers_on_one_gpu_are_refused():
    with (
        Pool("replay", {"matrix": MATRIX, "uuid": "GPU-a"}, size=2) as pool,
        pytest.raises(WorkersFailed, match="two workers run on the same GPU, GPU-a: each needs"),
    ):
        pool.wait_ready()


def test_settings_that_are_not_one_for_each():
    with pytest.raises(ValueError, match="2 settings for 3 workers"):
        Pool("echo", [{}, {}], size=3)


def test_a_worker_sees_nothing_of_what_is_installed_beside_sgdoctor(tmp_path):
    """Its interpreter is the deployment's, with other packages and maybe another Python; here, with none."""
    venv.create(tmp_path / "deployment")
    python = str(tmp_path / "deployment" / "bin" / "python")
    with Pool("echo", {}, python=python) as pool:
        for name in ("pytest", "packaging", "tools", "sgdoctor.errors"):
            pool.submit({"import": name})
        found = {o.task["import"]: o.ending for o in finish(pool)}
    assert found == {"pytest": "error", "packaging": "error", "tools": "error", "sgdoctor.errors": "done"}


def test_a_worker_takes_no_module_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('not the one')\n")
    monkeypatch.chdir(tmp_path)
    with Pool("echo", {}) as pool:
        pool.submit({"say": 1})
        assert [o.value for o in finish(pool)] == [1]


def test_what_runs_in_a_worker_needs_torch_and_triton_alone():
    """It is imported by the deployment's interpreter, which has not what sgdoctor requires."""
    seen, todo = set(), ["sgdoctor.tune.child"]
    while todo:
        name = todo.pop()
        seen.add(name)
        for imported in imports(ROOT / f"{name.replace('.', '/')}.py"):
            top = imported.partition(".")[0]
            assert top in {"torch", "triton", "sgdoctor"} | sys.stdlib_module_names, f"{name}: {imported}"
            if top == "sgdoctor":
                assert imported.startswith("sgdoctor.tune."), f"{name}: {imported}"
                todo += [imported] if imported not in seen else []
    assert {f"sgdoctor.tune.{name}" for name in ("compile", "measure", "operands", "kernel", "replay")} < seen


def imports(path):
    """Yield the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            inside = [module for module in modules if (ROOT / f"{module.replace('.', '/')}.py").is_file()]
            yield from inside or [node.module]


def test_out_of_an_archive_there_are_no_workers(tmp_path):
    """sgdoctor.pyz unpacks itself before it runs; other archives do not."""
    archive = tmp_path / "sgdoctor.zip"
    with zipfile.ZipFile(archive, "w") as content:
        for file in [ROOT / "sgdoctor" / name for name in ("__init__.py", "errors.py")]:
            content.write(file, file.relative_to(ROOT))
        for file in (ROOT / "sgdoctor" / "tune").glob("*.py"):
            content.write(file, file.relative_to(ROOT))
    script = "from sgdoctor.tune.pool import Pool; Pool('echo', {})"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    last = ran.stderr.splitlines()[-1]
    assert last == (
        f"sgdoctor.errors.UsageError: {archive}/sgdoctor is no folder, and workers cannot be started out of "
        "an archive: install sgdoctor with pip"
    )


def running(pid):
    """Whether a process is there and has not ended (one that nobody waited for yet has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_workers_end_with_a_parent_that_is_killed():
    """The one that waits for a task and the one that hangs, though nobody ends them."""
    script = """
from sgdoctor.tune.pool import Pool
pool = Pool("echo", {}, size=2, timeout=900)
pool.wait_ready()
pool.submit({"sleep": 900})
print(*[child.process.pid for child in pool._workers], flush=True)
list(pool.outcomes(wait=900))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert [running(pid) for pid in children] == [True, True]
        parent.kill()
    until = time.monotonic() + 30
    while any(running(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(running(pid) for pid in children)


def test_what_a_hanging_worker_started_ends_with_it():
    """A compiler that hangs hangs in ptxas."""
    with Pool("echo", {}, timeout=1.5) as pool:
        pool.submit({"say": 1})
        finish(pool)
        worker = pool._workers[0].process.pid
        pool.submit({"run": ["sleep", "900"]})
        list(pool.outcomes(wait=0.5))
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        (outcome,) = finish(pool)
        assert outcome.ending == "timeout"
    assert len(children) == 1
    assert not running(children[0])


def test_a_child_whose_parent_goes_away_while_it_answers_ends_without_a_word():
    ours, theirs = socket.socketpair()
    code = "import sys; from sgdoctor.tune.child import main; sys.exit(main(int(sys.argv[1])))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE
    )
    with theirs, ours:
        ours.sendall(b'{"role": "echo", "settings": {}}\n')
        assert ours.recv(1 << 10) == b'{"ready": null}\n'
        ours.sendall(b'{"id": 1, "sleep": 0.5}\n{"id": 2, "say": 1}\n')
    _, said = child.communicate(timeout=30)
    assert (child.returncode, said) == (0, b"")
