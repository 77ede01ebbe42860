# Checks: warnings.warn(stacklevel=2) and logging(stacklevel=2) inside env.step, reset, buffer.push and a print-wrapper name the caller's line in the script, not a hook's.
import warnings, logging, sys
logging.basicConfig(stream=sys.stdout, format="%(filename)s:%(lineno)d %(funcName)s %(message)s")
class Env:
    def reset(self): warnings.warn("deprecated reset", DeprecationWarning, stacklevel=2); return 0
    def step(self, a):
        warnings.warn(f"step called with {a}", stacklevel=2); logging.warning("logged in step", stacklevel=2); return a
class ReplayBuffer:
    def push(self, x): warnings.warn("push", UserWarning, stacklevel=2)
    def sample(self, n): warnings.warn("sample", FutureWarning, stacklevel=3)
def train():
    env = Env(); env.reset()
    env.step(1)
    b = ReplayBuffer(); b.push(1)
    b.sample(2)
train()
import gymnasium as gym
class G(gym.Env):
    def reset(self, *, seed=None, options=None): return 0, {}
    def step(self, a): warnings.warn("gym step", stacklevel=2); return 0, 0.0, False, False, {}
G().step(0)
