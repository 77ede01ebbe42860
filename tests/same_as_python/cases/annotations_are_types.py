# Annotations stay objects: the script inherits no future statement.
import argparse
import dataclasses


@dataclasses.dataclass
class Args:
    steps: int = 5


parser = argparse.ArgumentParser()
for field in dataclasses.fields(Args):
    parser.add_argument(f"--{field.name}", type=field.type, default=field.default)
print(parser.parse_args(), Args.__annotations__)
