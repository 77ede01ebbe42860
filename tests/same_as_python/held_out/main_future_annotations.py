# Checks: "from __future__ import annotations" with dataclasses, get_type_hints and argparse; and __future__ flags do NOT leak in from the launcher.
from __future__ import annotations
import argparse, dataclasses, typing, sys
@dataclasses.dataclass(order=True, slots=True)
class Config:
    lr: float = 1e-3
    steps: int = 10
    names: typing.List[str] = dataclasses.field(default_factory=list)
    other: Config | None = None
    const: typing.ClassVar[int] = 3
print(Config.__annotations__, typing.get_type_hints(Config, globals()).keys())
p = argparse.ArgumentParser(description="train")
for f in dataclasses.fields(Config):
    if f.name in ("lr", "steps"):
        p.add_argument("--" + f.name, type={"float": float, "int": int}[f.type], default=f.default)
a = p.parse_args()
print(p.prog, Config(**vars(a)), dataclasses.asdict(Config(1, 2)))
