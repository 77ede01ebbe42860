"""Turn the drawings in art/ into the pattern tables and the tables that the program reads.

Usage: art.py ART_DIR OUT_DIR. Writes tiles.chr (8 KiB), art.s and art.h. Only the standard library is needed, and the
output depends on nothing but the drawings.
"""

from __future__ import annotations

import sys
from pathlib import Path

TABLE = 256
COLOURS = {".": 0, "#": 3, "1": 1, "2": 2, "3": 3}
Tile = tuple[str, ...]


class Bank:
    """One pattern table: tiles by number, each kept once."""

    def __init__(self) -> None:
        """Begin with the empty tile."""
        self.tiles: dict[int, Tile] = {0: ("." * 8,) * 8}
        self.numbers: dict[Tile, int] = {self.tiles[0]: 0}

    def put(self, number: int, tile: Tile) -> None:
        """Place a tile at a number of its own."""
        self.tiles[number] = tile
        self.numbers.setdefault(tile, number)

    def add(self, tile: Tile) -> int:
        """Return the number of a tile, giving it the next free one if it is new."""
        if tile not in self.numbers:
            number = next((n for n in range(4, TABLE) if n not in self.tiles), None)
            if number is None:
                raise SystemExit("art.py: more than 256 different tiles")
            self.put(number, tile)
        return self.numbers[tile]

    def bytes(self) -> bytes:
        """The table as the console reads it: eight bytes of low bits, then eight of high bits, for each tile."""
        out = bytearray()
        for number in range(TABLE):
            tile = self.tiles.get(number, self.tiles[0])
            for bit in (0, 1):
                for row in tile:
                    out.append(sum((COLOURS[c] >> bit & 1) << (7 - x) for x, c in enumerate(row)))
        return bytes(out)


def sections(path: Path, words: tuple[str, ...]) -> list[tuple[list[str], list[str]]]:
    """Split a drawing file into (heading words, rows)."""
    found: list[tuple[list[str], list[str]]] = []
    for line in path.read_text().splitlines():
        first = line.split(" ", 1)[0]
        if first in words:
            found.append((line.split(), []))
        elif line and not line.startswith("# "):
            found[-1][1].append(line)
    return found


def quarters(name: str, rows: list[str]) -> list[Tile]:
    """Cut a drawing of 16x16 into four tiles: top left, top right, bottom left, bottom right."""
    if len(rows) != 16 or any(len(row) != 16 for row in rows):
        raise SystemExit(f"art.py: {name} is not 16x16")
    return [tuple(row[x : x + 8] for row in rows[y : y + 8]) for y in (0, 8) for x in (0, 8)]


def table(label: str, values: list[int]) -> str:
    """One table in assembly."""
    return f".export _{label}\n_{label}:\n    .byte " + ", ".join(map(str, values)) + "\n"


def main() -> None:
    """Read the drawings, write the tables."""
    art, out = Path(sys.argv[1]), Path(sys.argv[2])
    background, foreground = Bank(), Bank()
    header = ["/* Made by tools/art.py. */"]
    source = ["; Made by tools/art.py.", '.segment "RODATA"']

    for words, rows in sections(art / "font.txt", ("glyphs",)):
        for i, letter in enumerate(words[1:]):
            glyph = tuple("." + row.split(" ")[i] + "." for row in rows)
            background.put(ord(letter), (*glyph, "." * 8))
    for words, rows in sections(art / "tiles.txt", ("tile",)):
        background.put(int(words[2]), tuple(rows))
        header.append(f"#define TILE_{words[1].upper()} {words[2]}")

    blocks: list[list[int]] = []
    palettes: list[int] = []
    for words, rows in sections(art / "blocks.txt", ("block", "solid")):
        if words[0] == "solid":
            header.append(f"#define FIRST_SOLID {len(blocks)}")
            continue
        header.append(f"#define BLOCK_{words[1].upper()} {len(blocks)}")
        blocks.append([background.add(tile) for tile in quarters(words[1], rows)])
        palettes.append(int(words[3]))
    for i, corner in enumerate(("tl", "tr", "bl", "br")):
        source.append(table(f"block_{corner}", [block[i] for block in blocks]))
    source.append(table("block_palette", palettes))

    # A single pixel under the mark in the status bar: where the beam meets both, the bar ends.
    foreground.put(1, ("." * 8,) * 6 + ("..1.....",) + ("." * 8,))
    sprites: list[list[int]] = []
    for words, rows in sections(art / "sprites.txt", ("sprite",)):
        header.append(f"#define SPRITE_{words[1].upper()} {len(sprites)}")
        sprites.append([foreground.add(tile) for tile in quarters(words[1], rows)])
    for i, corner in enumerate(("tl", "tr", "bl", "br")):
        source.append(table(f"sprite_{corner}", [sprite[i] for sprite in sprites]))

    (out / "tiles.chr").write_bytes(background.bytes() + foreground.bytes())
    (out / "art.h").write_text("\n".join(header) + "\n")
    (out / "art.s").write_text("\n".join(source))


if __name__ == "__main__":
    main()
