# Checks: names the recorder might look for used with another meaning: class with train/learn/predict/forward/backward/act/sample/push/get/put/wait/step as attributes of other types, optimizer-like and env-like ints.
class Model:
    forward = 3; backward = None; step = "string"; reset = 0; sample = (1,); push = {}; act = property(lambda s: "act"); learn = type; parameters = []
class Optimizer:
    step = 1; zero_grad = False
class Env: step = None; reset = None; action_space = observation_space = None
class ReplayBuffer: sample = add = push = 0
m = Model(); print(m.forward, m.backward, m.step, m.reset, m.sample, m.push, m.act, m.learn, m.parameters, Optimizer().step, Optimizer.zero_grad, Env().step, ReplayBuffer.sample)
class Env2:
    class step:
        def __init__(self, a): self.a = a
        def __call__(self): return self.a
    class reset: pass
print(Env2().step(3)(), type(Env2.reset()).__name__, isinstance(Env2.step, type))
class Env3:
    def __init__(self): self.step = lambda a: ("instance attribute", a); self.reset = lambda: 0
print(Env3().step(1), Env3().reset())
class VecEnv:
    def step_async(self, a): self.a = a
    def step_wait(self): return self.a
    def step(self, a): self.step_async(a); return self.step_wait()
    def reset(self): return 0
print(VecEnv().step([1, 2]))
