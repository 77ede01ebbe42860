"""Turn the maps in levels/ into the tables that the program reads.

Usage: levels.py LEVELS_DIR ART_DIR OUT_DIR. Writes levels.s and levels.h. A map is a list of screens, each 16 wide and
up to 13 high, standing on the lower edge. Characters are those of art/blocks.txt, and `g`, `e`, `h` for a grub, a
beetle and a hopper. Clouds, hills, bushes, flowers and fences are put by rule where there is room for them.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROWS, SCREEN = 13, 16
ENEMIES = {"e": 3, "g": 6, "h": 14}
SKY, GROUND = ".", "#"
PERIOD = 48
# Column within the period, row of the lowest line, lines from top to bottom. A space keeps what is there.
SCENERY = [
    (1, 10, ["  ^  ", " /m\\ ", "/mmm\\"]),
    (8, 1, ["cCd"]),
    (12, 10, ["wWWv"]),
    (17, 10, [" ^ ", "/m\\"]),
    (20, 2, ["cd"]),
    (22, 10, ["f"]),
    (25, 10, ["wv"]),
    (28, 1, ["cCCd"]),
    (30, 10, ["==="]),
    (35, 10, ["f"]),
    (37, 10, ["wWv"]),
    (38, 2, ["cCd"]),
    (42, 10, [" ^ ", "/m\\"]),
    (46, 10, ["f"]),
]


def characters(art: Path) -> dict[str, int]:
    """Number of a block by its character."""
    heads = [line.split() for line in (art / "blocks.txt").read_text().splitlines() if line.startswith("block ")]
    return {words[2]: number for number, words in enumerate(heads)}


def read(path: Path) -> tuple[dict[str, int], list[list[str]]]:
    """Return the settings of a level and its rows, each a list of characters."""
    settings: dict[str, int] = {}
    screens: list[list[str]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if not line or line.startswith("# "):
            continue
        if words[0] in ("time", "theme"):
            settings[words[0]] = int(words[1])
        elif words[0] == "screen":
            screens.append([])
        elif len(line) != SCREEN:
            raise SystemExit(f"{path.name}, line {number}: {len(line)} characters, not {SCREEN}")
        else:
            screens[-1].append(line)
    rows: list[list[str]] = [[] for _ in range(ROWS)]
    for screen in screens:
        padded = [SKY * SCREEN] * (ROWS - len(screen)) + screen
        for row, line in zip(rows, padded, strict=True):
            row.extend(line)
    return settings, rows


def decorate(rows: list[list[str]]) -> None:
    """Put the scenery where there is only sky, and ground below what stands."""
    width = len(rows[0])
    for start in range(0, width, PERIOD):
        for offset, lowest, lines in SCENERY:
            left, top = start + offset, lowest - len(lines) + 1
            cells = [(top + y, left + x, c) for y, line in enumerate(lines) for x, c in enumerate(line) if c != " "]
            if all(x < width and rows[y][x] == SKY and supported(rows, y, x) for y, x, _ in cells):
                for y, x, c in cells:
                    rows[y][x] = c


def supported(rows: list[list[str]], y: int, x: int) -> bool:
    """Say whether scenery may be here: in the air, or, from the tenth row on, on ground."""
    return y < 10 or rows[y + 1][x] == GROUND


def tables(number: int, path: Path, known: dict[str, int]) -> tuple[str, int]:
    """Return the assembly of one level and its width."""
    settings, rows = read(path)
    decorate(rows)
    width = len(rows[0])
    enemies: list[int] = []
    for x in range(width):
        for y in range(ROWS):
            if rows[y][x] in ENEMIES:
                enemies += [x, y, ENEMIES[rows[y][x]]]
                rows[y][x] = SKY
            elif rows[y][x] == GROUND and y and rows[y - 1][x] in "#_":
                rows[y][x] = "_"
            if rows[y][x] not in known:
                raise SystemExit(f"{path.name}: {rows[y][x]!r} in column {x} is no block")
    columns: list[tuple[int, ...]] = []
    order: list[int] = []
    for x in range(width):
        column = tuple(known[rows[y][x]] for y in range(ROWS))
        if column not in columns:
            columns.append(column)
        order.append(columns.index(column))
    poles = [x for x in range(width) if rows[10][x] == "|" or rows[9][x] == "|"]
    if len(poles) != 1 or width > 255 or len(columns) > 255:
        raise SystemExit(f"{path.name}: {len(poles)} poles, {width} columns, {len(columns)} different ones")
    lines = [f"order{number}:", bytes_of(order), f"columns{number}:"]
    lines += [bytes_of([*column, 0, 0, 0]) for column in columns]
    lines += [f"enemies{number}:", bytes_of([*enemies, 255]), f"pole{number} = {poles[0]}", f"width{number} = {width}"]
    lines += [f"time{number} = {settings['time'] // 100}", f"theme{number} = {settings['theme']}"]
    return "\n".join(lines) + "\n", width


def bytes_of(values: list[int]) -> str:
    """Write numbers as assembly."""
    return "    .byte " + ", ".join(map(str, values))


def main() -> None:
    """Read the maps, write the tables."""
    levels, art, out = (Path(word) for word in sys.argv[1:])
    known = characters(art)
    paths = sorted(levels.glob("*.txt"))
    source = ["; Made by tools/levels.py.", '.segment "RODATA"']
    for number, path in enumerate(paths):
        source.append(tables(number, path, known)[0])
    count = range(len(paths))
    for label, kind in (("order", ".addr"), ("columns", ".addr"), ("enemies", ".addr")):
        source += [
            f".export _level_{label}",
            f"_level_{label}:",
            f"    {kind} " + ", ".join(f"{label}{n}" for n in count),
        ]
    for label in ("pole", "width", "time", "theme"):
        source += [
            f".export _level_{label}",
            f"_level_{label}:",
            "    .byte " + ", ".join(f"{label}{n}" for n in count),
        ]
    (out / "levels.s").write_text("\n".join(source) + "\n")
    (out / "levels.h").write_text(f"/* Made by tools/levels.py. */\n#define LEVELS {len(paths)}\n")


if __name__ == "__main__":
    main()
