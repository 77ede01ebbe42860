# Two players learn 4x4 tic-tac-toe (four in a row) from each other by Q-learning.
import argparse
import json
import time

import numpy as np

BOARD_ROWS = 4
BOARD_COLS = 4


class State:
    def __init__(self, p1, p2):
        self.board = np.zeros((BOARD_ROWS, BOARD_COLS), dtype=np.int8)
        self.p1 = p1
        self.p2 = p2
        self.isEnd = False
        self.playerSymbol = 1

    def getHash(self):
        return boardHash(self.board)

    def winner(self):
        b = self.board
        sums = np.concatenate([b.sum(axis=0), b.sum(axis=1), [np.trace(b), np.trace(b[:, ::-1])]])
        if sums.max() == BOARD_ROWS:
            self.isEnd = True
            return 1
        if sums.min() == -BOARD_ROWS:
            self.isEnd = True
            return -1
        if np.count_nonzero(b) == b.size:
            self.isEnd = True
            return 0
        return None

    def availablePositions(self):
        rows, cols = np.nonzero(self.board == 0)
        return list(zip(rows.tolist(), cols.tolist()))

    def updateState(self, position):
        self.board[position] = self.playerSymbol
        self.playerSymbol = -self.playerSymbol

    def giveReward(self, result):
        if result == 1:
            self.p1.feedReward(1.0)
            self.p2.feedReward(0.0)
        elif result == -1:
            self.p1.feedReward(0.0)
            self.p2.feedReward(1.0)
        else:
            self.p1.feedReward(0.2)
            self.p2.feedReward(0.5)

    def reset(self):
        self.board.fill(0)
        self.isEnd = False
        self.playerSymbol = 1
        self.p1.reset()
        self.p2.reset()

    def playOneGame(self):
        """Plays to the end, returns (result, number of moves)."""
        moves = 0
        while not self.isEnd:
            player = self.p1 if self.playerSymbol == 1 else self.p2
            position = player.chooseAction(self.availablePositions(), self.getHash())
            self.updateState(position)
            moves += 1
            win = self.winner()
            if win is not None:
                self.giveReward(win)
        return win, moves


def boardHash(board):
    return board.tobytes()


class Player:
    def __init__(self, name, rng, exp_rate=0.2):
        self.name = name
        self.rng = rng
        self.lr = 0.2
        self.exp_rate = exp_rate
        self.decay_gamma = 0.95
        self.q_table = {}
        self.reset()

    def chooseAction(self, positions, key):
        q = self.q_table.setdefault(key, {})
        if self.last is not None:
            best_next = max([q.get(p, 0.0) for p in positions])
            self.learn(self.decay_gamma * best_next)
        if self.rng.random() <= self.exp_rate:
            action = positions[int(self.rng.random() * len(positions))]
        else:
            action = max(positions, key=lambda p: q.get(p, 0.0))
        self.last = (q, action)
        return action

    def learn(self, target):
        q, action = self.last
        old = q.get(action, 0.0)
        q[action] = old + self.lr * (target - old)

    def feedReward(self, reward):
        self.learn(reward)

    def reset(self):
        self.last = None


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    p1 = Player("p1", rng)
    p2 = Player("p2", rng)
    st = State(p1, p2)
    results = {1: 0, -1: 0, 0: 0}
    games = steps = 0
    warmSteps, warmTime = 0, None
    t0 = time.perf_counter()
    while True:
        win, moves = st.playOneGame()
        results[win] += 1
        games += 1
        steps += moves
        st.reset()
        if games % 1000 == 0:
            print("Rounds {}: wins {} losses {} ties {}, known states {}".format(
                games, results[1], results[-1], results[0], len(p1.q_table)))
        t = time.perf_counter()
        if warmTime is None and t - t0 >= 0.5:
            warmTime, warmSteps = t, steps
        if t - t0 >= args.seconds:
            break
    span = t - warmTime
    print(json.dumps({"env_steps": steps - warmSteps, "seconds": round(span, 3),
                      "env_steps_per_s": round((steps - warmSteps) / span, 1)}))
