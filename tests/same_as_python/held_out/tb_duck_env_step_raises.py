# Checks: an exception in step of an environment class without gymnasium: frames and carets unchanged.
class CartEnv:
    def reset(self):
        self.t = 0
        return [0.0]
    def step(self, action):
        self.t += 1
        return [1.0 / (2 - self.t)], 1.0, False, {}
class Wrapper(CartEnv):
    def step(self, action):
        return super().step(action)
env = Wrapper()
env.reset()
for i in range(5):
    obs, r, done, info = env.step(i)
    print(obs)
