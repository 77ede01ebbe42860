# The filters are those of a fresh interpreter; warnings point at the script.
import warnings


def old():
    warnings.warn("old", DeprecationWarning, stacklevel=2)


class Env:
    def reset(self):
        return 0

    def step(self, action):
        warnings.warn("in a step", stacklevel=2)
        return 0, 0.0, False, {}


old()
env = Env()
env.reset()
for _ in range(3):
    env.step(0)
print([each[0] for each in warnings.filters][-5:])
