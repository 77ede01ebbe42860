# A future statement of the script holds for the script.
from __future__ import annotations

x: undefined_name = 1
print(__annotations__)
