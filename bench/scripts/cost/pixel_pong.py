"""Pong against a wall, drawn into an array of pixels without a display; a NumPy policy learns from the pixels."""

import numpy as np
from progress import tick

WIDTH, HEIGHT, PADDLE = 48, 48, 8
BLACK, GREY, WHITE = (0, 0, 0), (90, 90, 90), (255, 255, 255)
rng = np.random.RandomState(5)


class Game:
    """A ball, a paddle and three walls."""

    def __init__(self):
        self.screen = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
        self.new_ball()

    def new_ball(self):
        self.ball = [WIDTH // 2, rng.randint(6, HEIGHT - 6)]
        self.velocity = [1, rng.choice([-1, 1])]
        self.paddle_y = HEIGHT // 2
        self.score = 0

    def fill(self, color, x, y, w, h):
        self.screen[max(y, 0) : y + h, max(x, 0) : x + w] = color

    def draw(self):
        self.screen[:] = BLACK
        self.fill(GREY, 0, 0, WIDTH, 2)
        self.fill(GREY, 0, HEIGHT - 2, WIDTH, 2)
        self.fill(GREY, WIDTH - 2, 0, 2, HEIGHT)
        self.fill(WHITE, 2, self.paddle_y - PADDLE // 2, 2, PADDLE)
        self.fill(WHITE, self.ball[0] - 1, self.ball[1] - 1, 2, 2)
        return self.screen

    def play_frame(self, up):
        self.paddle_y = min(max(self.paddle_y + (-2 if up else 2), PADDLE // 2), HEIGHT - PADDLE // 2)
        self.ball[0] += self.velocity[0]
        self.ball[1] += self.velocity[1]
        if not 3 < self.ball[1] < HEIGHT - 3:
            self.velocity[1] *= -1
        if self.ball[0] > WIDTH - 4:
            self.velocity[0] = -1
        if self.ball[0] <= 4:
            if abs(self.ball[1] - self.paddle_y) > PADDLE // 2 + 1:
                return -1.0, True
            self.velocity[0] = 1
            self.score += 1
            return 1.0, self.score >= 5
        return 0.0, False


def preprocess(frame):
    return (frame[::2, ::2, 0] > 0).astype(np.float64).ravel()


inputs, hidden = WIDTH * HEIGHT // 4, 32
model = {"W1": rng.randn(hidden, inputs) / np.sqrt(inputs), "W2": rng.randn(hidden) / np.sqrt(hidden)}
game, previous, baseline = Game(), np.zeros(inputs), 0.0
xs, hs, dlogps, rewards = [], [], [], []

while True:
    current = preprocess(game.draw())
    x, previous = current - previous, current
    h = np.maximum(model["W1"] @ x, 0)
    p = 1.0 / (1.0 + np.exp(-model["W2"] @ h))
    up = rng.uniform() < p
    reward, done = game.play_frame(up)
    xs.append(x)
    hs.append(h)
    dlogps.append(float(up) - p)
    rewards.append(reward)
    if done:
        gain = sum(rewards) - baseline
        baseline = 0.99 * baseline + 0.01 * sum(rewards)
        error = np.array(dlogps) * gain / len(dlogps)
        H = np.vstack(hs)
        dh = np.outer(error, model["W2"]) * (H > 0)
        model["W2"] += 1e-3 * (error @ H)
        model["W1"] += 1e-3 * (dh.T @ np.vstack(xs))
        xs, hs, dlogps, rewards = [], [], [], []
        game.new_ball()
        previous = np.zeros(inputs)
    tick()
