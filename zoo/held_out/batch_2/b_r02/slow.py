"""Four in a row by self-play: UCT search over a linear value function that learns by TD(lambda)."""
import argparse
import copy
import json
import math
import random
import time

ROWS, COLS = 6, 7


def all_lines():
    out = []
    for c in range(COLS):
        for r in range(ROWS):
            for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1)):
                cells = [(c + k * dc, r + k * dr) for k in range(4)]
                if all(0 <= x < COLS and 0 <= y < ROWS for x, y in cells):
                    out.append(tuple(cells))
    return out


LINES = all_lines()
THROUGH = {(c, r): [ln for ln in LINES if (c, r) in ln] for c in range(COLS) for r in range(ROWS)}


class Connect4:
    """Players are +1 and -1; grid[c][r] holds who owns a cell, r counts from below."""

    def __init__(self):
        self.grid = [[0] * ROWS for _ in range(COLS)]
        self.fill = [0] * COLS
        self.to_move = 1
        self.winner = None
        self.history = []

    def moves(self):
        return [c for c in range(COLS) if self.fill[c] < ROWS]

    def drop(self, col):
        row = self.fill[col]
        me = self.to_move
        self.grid[col][row] = me
        self.fill[col] = row + 1
        self.history.append((col, row))
        for line in THROUGH[col, row]:
            if all(self.grid[c][r] == me for c, r in line):
                self.winner = me
                break
        else:
            if len(self.history) == ROWS * COLS:
                self.winner = 0
        self.to_move = -me

    def over(self):
        return self.winner is not None

    def fork(self):
        return copy.deepcopy(self)


class Evaluator:
    """tanh(w . f), f counts the open pairs/triples of each side plus stones in the centre."""

    def __init__(self, alpha=0.01, lam=0.7):
        self.w = [0.02, 0.1, 0.3, 0.05]
        self.alpha, self.lam = alpha, lam

    def features(self, game):
        f = [0.0, 0.0, 0.0, 0.0]
        grid = game.grid
        for (a, b), (c, d), (e, g), (h, i) in LINES:
            p, q, r, s = grid[a][b], grid[c][d], grid[e][g], grid[h][i]
            total = p + q + r + s
            stones = abs(p) + abs(q) + abs(r) + abs(s)
            if total == stones and stones:
                f[min(stones, 3) - 1] += 1.0
            elif total == -stones and stones:
                f[min(stones, 3) - 1] -= 1.0
        f[3] = float(sum(grid[3]))
        return f

    def value(self, game):
        return math.tanh(sum(w * x for w, x in zip(self.w, self.features(game))))

    def learn(self, visited, result):
        trace = [0.0] * 4
        values = [math.tanh(sum(w * x for w, x in zip(self.w, f))) for f in visited] + [result]
        for t, f in enumerate(visited):
            slope = 1.0 - values[t] ** 2
            trace = [self.lam * e + slope * x for e, x in zip(trace, f)]
            delta = values[t + 1] - values[t]
            self.w = [w + self.alpha * delta * e / 10 for w, e in zip(self.w, trace)]


class Node:
    __slots__ = ("parent", "move", "player", "visits", "total", "children", "untried")

    def __init__(self, game, parent=None, move=None):
        self.parent, self.move = parent, move
        self.player = -game.to_move       # who moved into this node
        self.visits, self.total = 0, 0.0
        self.children = []
        self.untried = [] if game.over() else game.moves()
        random.shuffle(self.untried)

    def best_child(self, c=0.8):
        log_n = math.log(self.visits)
        return max(self.children, key=lambda k: k.total / k.visits + c * math.sqrt(log_n / k.visits))


class Searcher:
    def __init__(self, judge, budget=60):
        self.judge, self.budget = judge, budget

    def plan(self, game):
        root = Node(game)
        for _ in range(self.budget):
            state = game.fork()
            node = root
            while not node.untried and node.children:
                node = node.best_child()
                state.drop(node.move)
            if node.untried:
                move = node.untried.pop()
                state.drop(move)
                child = Node(state, node, move)
                node.children.append(child)
                node = child
            outcome = state.winner if state.over() else self.judge.value(state)
            while node is not None:
                node.visits += 1
                node.total += outcome * node.player
                node = node.parent
        return root

    def choose(self, game, temperature):
        kids = self.plan(game).children
        if temperature:
            return random.choices(kids, [k.visits for k in kids])[0].move
        return max(kids, key=lambda k: k.visits).move


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    random.seed(a.seed)
    judge = Evaluator()
    searcher = Searcher(judge)
    tally = {1: 0, 0: 0, -1: 0}
    plies = counted_from = 0
    began, warm = time.perf_counter(), None
    running = True
    while running:
        game = Connect4()
        seen = []
        while not game.over():
            t = time.perf_counter()
            if warm is None and t - began > 1.0:
                warm, counted_from = t, plies
            if t - began > a.seconds:
                running = False
                break
            game.drop(searcher.choose(game, temperature=len(game.history) < 8))
            seen.append(judge.features(game))
            plies += 1
        if game.over():
            tally[game.winner] += 1
            judge.learn(seen, game.winner)
            if sum(tally.values()) % 10 == 0:
                print("games", sum(tally.values()), tally, [round(w, 3) for w in judge.w])
    n, s = plies - counted_from, t - warm
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2)}))


if __name__ == "__main__":
    main()
