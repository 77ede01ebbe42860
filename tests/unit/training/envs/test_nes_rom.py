"""Finding the cartridge: ours, the known one identified by its contents, or a clear error."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop.errors import HotloopError
from hotloop.training.envs.nes import rom
from hotloop.training.envs.nes.rom import RUNNER, find_rom, is_runner

GAME = Path(__file__).resolve().parents[4] / "games" / "runner"


def test_default_is_runner_and_a_copy_is_recognised(tmp_path: Path) -> None:
    copy = tmp_path / "copy.nes"
    shutil.copy(RUNNER, copy)
    assert find_rom(None) == RUNNER
    assert find_rom(copy) == copy
    assert is_runner(copy)


def test_header_is_not_hashed(tmp_path: Path) -> None:
    contents = b"contents of a cartridge"
    path = tmp_path / "game.nes"
    known = hashlib.sha1(contents).hexdigest()
    for header in (b"NES\x1a" + bytes(12), b"NES\x1a" + bytes(range(12))):
        path.write_bytes(header + contents)
        assert find_rom(path, known) == path
    assert not is_runner(path)
    path.write_bytes(b"NES\x1a" + bytes(12) + contents + b"!")
    with pytest.raises(
        HotloopError, match=f"is another cartridge: its contents have SHA-1 [0-9a-f]{{40}}, not {known}"
    ):
        find_rom(path, known)
    assert find_rom(path, known, unchecked=True) == path


def test_other_file_types_are_rejected_even_unchecked(tmp_path: Path) -> None:
    path = tmp_path / "text.nes"
    path.write_text("no cartridge at all")
    with pytest.raises(HotloopError, match=r"is not in iNES format: it begins with b'no c', not with b'NES\\x1a'"):
        find_rom(path, unchecked=True)
    with pytest.raises(HotloopError, match=r"cannot be read \(No such file or directory\)"):
        find_rom(tmp_path / "none.nes")


def test_known_hash_matches_stable_retro() -> None:
    retro = pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")
    path = Path(retro.__file__).parent / "data" / "stable" / "SuperMarioBros-Nes-v0" / "rom.sha"
    assert path.read_text().split() == [rom.SUPER_MARIO_BROS_SHA1]


@pytest.mark.skipif(shutil.which("cl65") is None, reason="cc65 is not installed: apt-get install cc65")
def test_shipped_game_matches_its_source(tmp_path: Path) -> None:
    """The bytes are equal, built from a copy of the source without earlier build results."""
    source = tmp_path / "runner"
    shutil.copytree(GAME, source, ignore=shutil.ignore_patterns("build"))
    done = subprocess.run(["make", "-C", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (source / "build" / "runner.nes").read_bytes() == RUNNER.read_bytes()


def test_importing_needs_neither_stable_retro_nor_numba() -> None:
    program = (
        "import sys; sys.modules['stable_retro'] = None\n"
        "import gymnasium, hotloop.training.envs, hotloop.training.envs.nes\n"
        "from hotloop.errors import DependencyMissing\n"
        "assert not {'numba', 'torch'} & set(sys.modules)\n"
        "hotloop.training.envs.nes.MarioConfig(level='1-2')\n"
        "try: gymnasium.make('hotloop/Mario-v0')\n"
        "except DependencyMissing as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the NES environments need stable-retro, which is not installed")
    assert done.stdout.endswith('pip install "hotloop[nes]"\n')
    assert done.stdout.count("\n") == 1


def test_special_and_huge_files_are_rejected_without_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 40)
    wrong = {"/dev/zero": "regular file", tmp_path / "pipe": "regular file", "\0": "cannot be read"}
    for path, complaint in (wrong | {tmp_path / "large": "more than"}).items():
        with pytest.raises(HotloopError, match=complaint):
            find_rom(path)
