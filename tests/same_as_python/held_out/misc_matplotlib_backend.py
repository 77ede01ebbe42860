# Checks: environment switches used by libraries (MPLBACKEND, TERM, COLUMNS, NO_COLOR), shutil.get_terminal_size, rich output into a pipe: width and no colours.
import shutil, os, sys
print(shutil.get_terminal_size(), os.environ.get("MPLBACKEND"), sys.stdout.isatty())
from rich.console import Console
c = Console(); print(c.width, c.is_terminal, c.color_system); c.print("[bold red]hello[/] world", {"a": 1}); c.rule("rule")
from rich.progress import track
for _ in track(range(2), description="work"): pass
