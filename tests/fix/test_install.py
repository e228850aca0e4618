"""Files are put in place all or none, and taken away again, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from sgdoctor.errors import UsageError
from sgdoctor.fix import install, manifest, moe_files
from tests.fix import made


def tree(root: Path) -> dict[str, bytes]:
    """Return what lies below ``root``, but for records of repairs."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "state" not in path.relative_to(root).parts
    }


def contents(root: Path, text: str = "new") -> dict[Path, bytes]:
    return {root / "configs" / name: f"{text} {name}".encode() for name in ("up", "down")}


def repair(root: Path, state: Path, text: str = "new") -> manifest.Record:
    return install.install(contents(root, text), state, {"what": text})


def undo(state: Path, within: Path | None = None) -> list[str]:
    return install.undo(install.undoable(state, within))


def test_what_did_not_exist_is_gone_after_undo(tmp_path, state):
    repair(tmp_path, state)
    assert tree(tmp_path) == {"configs/up": b"new up", "configs/down": b"new down"}
    folder = tmp_path / "configs"
    assert undo(state) == [f"removed {folder}/down", f"removed {folder}/up", f"removed {folder}"]
    assert tree(tmp_path) == {}
    assert not folder.exists()


def test_what_was_there_is_there_again_after_undo(tmp_path, state):
    up = tmp_path / "configs" / "up"
    up.parent.mkdir()
    up.write_text("old up")
    up.chmod(0o640)
    repair(tmp_path, state)
    assert up.read_bytes() == b"new up"
    assert undo(state) == [f"removed {tmp_path}/configs/down", f"restored {up}"]
    assert tree(tmp_path) == {"configs/up": b"old up"}
    assert up.stat().st_mode & 0o777 == 0o640


def test_files_can_be_read_by_the_server_whoever_it_runs_as(tmp_path, state):
    mask = os.umask(0o077)
    try:
        repair(tmp_path, state)
    finally:
        os.umask(mask)
    assert (tmp_path / "configs").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "configs" / "up").stat().st_mode & 0o777 == 0o644


def test_repairs_are_undone_one_after_the_other_the_newest_first(tmp_path, state):
    repair(tmp_path, state, "first")
    repair(tmp_path, state, "second")
    undo(state)
    assert tree(tmp_path)["configs/up"] == b"first up"
    undo(state)
    assert tree(tmp_path) == {}
    with pytest.raises(UsageError, match=f"nothing to undo: {state} has no repair that is not undone yet"):
        undo(state)


def test_nothing_was_ever_repaired(state):
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(state)


def test_what_somebody_changed_since_is_left_alone_and_so_is_what_belongs_to_it(tmp_path, state):
    repair(tmp_path, state)
    up = tmp_path / "configs" / "up"
    up.write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=f"{up} was changed since .*move it away.*did not exist before"):
        undo(state)
    assert tree(tmp_path) == before
    up.unlink()  # as it said
    undo(state)
    assert tree(tmp_path) == {}


def test_other_files_in_a_folder_that_the_repair_created_keep_it(tmp_path, state):
    repair(tmp_path, state)
    (tmp_path / "configs" / "other").write_text("mine")
    undo(state)
    assert tree(tmp_path) == {"configs/other": b"mine"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no manifest of a repair: Input data was truncated"),
        ("\xff", "is no manifest of a repair: "),
        ("[]", "is no manifest of a repair: Expected `object`, got `array`"),
        ('{"format": "sgdoctor-fix"}', "is no manifest of a repair: Object missing required field"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, state, text, why):
    record = repair(tmp_path, state)
    before = tree(tmp_path)
    (record.folder / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as raised:
        undo(state)
    assert str(raised.value).startswith(f"{record.folder}/manifest.json {why}")
    assert str(raised.value).endswith(f"move {record.folder} away to undo what was done before it")
    assert "\n" not in str(raised.value)
    assert tree(tmp_path) == before


def test_a_manifest_of_a_later_sgdoctor_is_not_guessed_at(tmp_path, state):
    record = repair(tmp_path, state)
    later = msgspec.structs.replace(record.manifest, version=2)
    (record.folder / "manifest.json").write_bytes(msgspec.json.encode(later))
    with pytest.raises(UsageError, match="is sgdoctor-fix 2, this sgdoctor reads sgdoctor-fix 1"):
        undo(state)


def test_a_lost_backup_is_found_out_before_anything_is_touched(tmp_path, state):
    repair(tmp_path, state, "first")
    record = repair(tmp_path, state, "second")
    (record.folder / "1-up").unlink()
    with pytest.raises(UsageError, match=r"1-up: no such file, so .*nothing was undone"):
        undo(state)
    assert tree(tmp_path)["configs/down"] == b"second down"


def test_a_folder_that_is_a_file_is_named_before_and_at_the_attempt(tmp_path, state):
    (tmp_path / "configs").write_text("a file")
    why = install.why_not(tmp_path / "configs" / "triton_3_6_0")
    assert why == f"{tmp_path}/configs: Not a directory"
    with pytest.raises(UsageError, match=f"{tmp_path}/configs.*: (Not a directory|File exists)"):
        repair(tmp_path, state)
    assert tree(tmp_path) == {"configs": b"a file"}


def test_why_not_leaves_nothing_behind(tmp_path):
    assert install.why_not(tmp_path / "new" / "folder") is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_takes_no_files_is_named():
    why = install.why_not(Path("/proc"))
    assert why is not None
    assert why.startswith("/proc: ")


def test_a_folder_of_another_user_is_named():
    """Asked and tried as a user who is not root, for whom no folder is closed."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "configs").mkdir(mode=0o555)
        (root / "records").mkdir()
        (root / "records").chmod(0o777)
        script = f"""
if not os.geteuid():
    os.setuid(65534)
print(install.why_not(Path({str(root / "configs")!r})))
"""
        ended = child(script, root, root / "records")
        denied = f"{root}/configs: Permission denied"
        assert ended.stdout == f"{denied}\n{denied}; nothing was changed\n"
        assert tree(root) == {}


def test_a_target_that_cannot_be_written_names_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    job = made.job()
    said = moe_files.writable(moe_files.in_place(job, tmp_path / "file"))
    assert said == f"{tmp_path}/file: Not a directory: give --output DIR or --overlay DIR"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = moe_files.writable(moe_files.in_place(job, tmp_path / "configs"))
    assert said is not None
    assert said.endswith("set XDG_STATE_HOME to another folder")
    assert moe_files.writable(moe_files.output(job, tmp_path / "output")) is None


def child(script: str, tmp_path: Path, state: Path) -> subprocess.CompletedProcess[str]:
    """Run a repair in a process of its own, after ``script``."""
    code = f"""
import os, resource, signal
from pathlib import Path
from sgdoctor.errors import UsageError
from sgdoctor.fix import install
{script}
try:
    install.install({{Path(p): c for p, c in CONTENTS}}, Path({str(state)!r}), {{}})
except UsageError as error:
    print(error)
"""
    given = [(str(path), content) for path, content in contents(tmp_path).items()]
    if "CONTENTS =" not in script:
        code = code.replace("CONTENTS", repr(given))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_full_disk_changes_nothing(tmp_path, state):
    """The second file does not fit: a limit on the size of files stands in for the disk."""
    repair(tmp_path, state, "first")
    before = tree(tmp_path)
    up, down = contents(tmp_path)
    script = f"""
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
CONTENTS = [({str(up)!r}, b"new"), ({str(down)!r}, b"x" * 5000)]
"""
    ended = child(script, tmp_path, state)
    assert ended.stdout == f"{tmp_path}/configs: File too large; nothing was changed\n"
    assert ended.returncode == 0
    assert tree(tmp_path) == before
    undo(state)  # the first, of which the failed one left no trace
    assert tree(tmp_path) == {}


def test_no_room_for_the_record_changes_nothing(tmp_path, state):
    script = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
"""
    ended = child(script, tmp_path, state)
    assert "File too large; nothing was changed" in ended.stdout
    assert tree(tmp_path) == {}
    assert list(state.iterdir()) == []
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(state)


def at_rename(number: int, what: str, *, of: tuple[str, ...] = ("up", "down")) -> str:
    """Return a script that has ``what`` happen instead of the n-th renaming to one of these names."""
    return f"""
left, real = [{number}], os.replace
def replace(staged, path):
    if os.path.basename(path) in {of!r}:
        left[0] -= 1
        if not left[0]:
            {what}
    real(staged, path)
os.replace = replace
"""


KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def test_the_first_file_is_put_back_when_the_second_cannot_be_renamed(tmp_path, state):
    repair(tmp_path, state, "first")
    before = tree(tmp_path)
    what = 'raise PermissionError(1, "Operation not permitted", str(path))'
    ended = child(at_rename(2, what), tmp_path, state)
    assert ended.stdout == f"{tmp_path}/configs/down: Operation not permitted; nothing was changed\n"
    assert tree(tmp_path) == before


def test_what_cannot_be_put_back_can_be_undone_later(tmp_path, state):
    """From the second file on nothing can be renamed any more, as on a file system that went read-only."""
    repair(tmp_path, state, "first")
    before = tree(tmp_path)
    what = 'left[0] = 1; raise OSError(30, "Read-only file system", str(path))'
    ended = child(at_rename(2, what), tmp_path, state)
    assert "putting back what was there failed, too" in ended.stdout
    assert "sgdoctor fix --undo, when that is mended" in ended.stdout
    assert tree(tmp_path)["configs/up"] == b"new up"
    assert undo(state) == [f"restored {tmp_path}/configs/up"]
    assert tree(tmp_path) == before


def test_undo_works_after_a_kill_between_the_two_files(tmp_path, state):
    repair(tmp_path, state, "first")
    before = tree(tmp_path)
    assert child(at_rename(2, KILL), tmp_path, state).returncode == -signal.SIGKILL
    assert tree(tmp_path)["configs/up"] == b"new up"
    assert tree(tmp_path)["configs/down"] == b"first down"
    assert undo(state) == [f"restored {tmp_path}/configs/up"]
    assert tree(tmp_path) == before


def test_undo_works_after_a_kill_before_the_first_file(tmp_path, state):
    repair(tmp_path, state, "first")
    before = tree(tmp_path)
    assert child(at_rename(1, KILL), tmp_path, state).returncode == -signal.SIGKILL
    (said,) = undo(state)
    assert said.endswith("had changed nothing")
    assert tree(tmp_path) == before


def test_a_repair_killed_before_its_manifest_was_written_does_not_count(tmp_path, state):
    assert child(at_rename(1, KILL, of=("manifest.json",)), tmp_path, state).returncode == -signal.SIGKILL
    assert len(list(state.iterdir())) == 1
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(state)


def test_the_repair_before_one_that_was_killed_at_its_start_is_the_newest(tmp_path, state):
    """The one that was killed had changed nothing; its folder may be that of one that is just beginning."""
    record = repair(tmp_path, state, "first")
    assert child(at_rename(1, KILL, of=("manifest.json",)), tmp_path, state).returncode == -signal.SIGKILL
    (left,) = set(state.iterdir()) - {record.folder}
    assert install.undoable(state).folder == record.folder
    undo(state)
    assert tree(tmp_path) == {}
    assert left.is_dir()


def test_what_undo_is_going_to_do_is_told_before(tmp_path, state):
    repair(tmp_path, state, "first")
    (tmp_path / "configs" / "down").unlink()
    record = repair(tmp_path, state, "second")
    folder = tmp_path / "configs"
    assert install.would_undo(record) == [f"remove {folder}/down", f"restore {folder}/up, as it was before"]
    assert tree(tmp_path)["configs/up"] == b"second up"
    undo(state)
    assert install.would_undo(record) == []


def test_a_folder_that_was_moved_is_not_undone_where_it_was(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    install.install(contents(here), here / "records", {})
    here.rename(there)
    before = tree(tmp_path)
    with pytest.raises(
        UsageError, match=rf"names {here}/configs/up, which is not in {there}: was the folder"
    ):
        undo(there / "records", there)
    assert tree(tmp_path) == before
    there.rename(here)  # as it said
    undo(here / "records", here)
    assert not (here / "configs").exists()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"path": "{other}/mine"}, "names {other}/mine, which is not in {folder}"),
        ({"path": "{folder}/../other/mine"}, "names {folder}/../other/mine, which is not in"),
        ({"path": "{folder}/link/mine"}, "names {folder}/link/mine, which is not in"),
        ({"folders": "{other}/empty"}, "names {other}/empty, which is not in"),
        ({"backup": "../../other/mine"}, "from ../../other/mine, which is not in the same folder"),
        ({"backup": "{other}/mine"}, "which is not in the same folder"),
        ({"path": "a\0b"}, "a path has a NUL character"),
    ],
)
def test_a_manifest_that_reaches_out_of_its_folder_is_refused(tmp_path, names, said):
    """Whoever may write into a shared folder may not have files removed elsewhere."""
    folder, other = tmp_path / "shared", tmp_path / "other"
    (other / "empty").mkdir(parents=True)
    (other / "mine").write_bytes(b"new up")
    record = install.install({folder / "up": b"new up"}, folder / "records", {})
    (folder / "link").symlink_to(other)
    given = {name: value.format(folder=folder, other=other) for name, value in names.items()}
    manifest_of = record.manifest
    file = msgspec.structs.replace(manifest_of.files[0], **{k: v for k, v in given.items() if k != "folders"})
    folders = (given["folders"],) if "folders" in given else manifest_of.folders
    forged = msgspec.structs.replace(manifest_of, files=(file,), folders=folders)
    (record.folder / "manifest.json").write_bytes(msgspec.json.encode(forged))
    before = tree(tmp_path)
    with pytest.raises(UsageError) as raised:
        undo(folder / "records", folder)
    assert said.format(folder=folder, other=other) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert tree(tmp_path) == before
    assert (other / "empty").is_dir()


def test_undo_killed_halfway_is_done_by_the_next(tmp_path, state):
    repair(tmp_path, state, "first")
    before = tree(tmp_path)
    repair(tmp_path, state, "second")
    again = f"install.install = lambda *_: install.undo(install.undoable(Path({str(state)!r})))"
    assert child(at_rename(2, KILL) + again, tmp_path, state).returncode == -signal.SIGKILL
    assert tree(tmp_path)["configs/down"] == b"first down"
    assert tree(tmp_path)["configs/up"] == b"second up"
    assert undo(state) == [f"restored {tmp_path}/configs/up"]
    assert tree(tmp_path) == before
