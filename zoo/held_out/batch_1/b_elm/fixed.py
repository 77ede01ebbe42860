"""Connect Four, UCT with self-play.  The tree statistics are kept between games, so play gets better."""
import argparse
import json
import math
import random
import time

W, H = 7, 6
EMPTY, RED, YELLOW = 0, 1, 2


class Rack:
    """The yellow-and-blue thing the discs fall into. cells[col][row], row 0 is the bottom."""

    def __init__(self):
        self.cells = [[EMPTY] * H for _ in range(W)]
        self.height = [0] * W
        self.moves = []
        self.turn = RED
        self.winner = EMPTY

    def clone(self):
        other = Rack.__new__(Rack)
        other.cells = [col[:] for col in self.cells]
        other.height = self.height[:]
        other.moves = self.moves[:]
        other.turn = self.turn
        other.winner = self.winner
        return other

    def open_columns(self):
        return [c for c in range(W) if self.height[c] < H]

    def drop(self, col):
        row = self.height[col]
        self.cells[col][row] = self.turn
        self.height[col] = row + 1
        self.moves.append(col)
        if self.four_in_line(self.turn, col, row):
            self.winner = self.turn
        self.turn = RED + YELLOW - self.turn

    def finished(self):
        return self.winner != EMPTY or len(self.moves) == W * H

    def four_in_line(self, who, col, row):
        cells = self.cells
        for dc, dr in ((0, 1), (1, 0), (1, 1), (1, -1)):
            run = 1
            for sign in (1, -1):
                c, r = col + sign * dc, row + sign * dr
                while 0 <= c < W and 0 <= r < H and cells[c][r] == who:
                    run += 1
                    c, r = c + sign * dc, r + sign * dr
            if run >= 4:
                return True
        return False


class Searcher:
    def __init__(self, rng, simulations=40, c_uct=1.2):
        self.rng = rng
        self.simulations = simulations
        self.c_uct = c_uct
        self.visits = {}
        self.wins = {}
        self.drops = 0

    def descend(self, rack):
        """Walks down what is known; returns the path of keys."""
        path = [tuple(rack.moves)]
        while not rack.finished():
            here = path[-1]
            if here not in self.visits:
                break
            log_n = math.log(self.visits[here] + 1)
            best, best_score = None, -1e9
            for c in rack.open_columns():
                child = here + (c,)
                n = self.visits.get(child, 0)
                if n == 0:
                    score = 1e6 + self.rng.random()
                else:
                    score = self.wins[child] / n + self.c_uct * math.sqrt(log_n / n)
                if score > best_score:
                    best, best_score = c, score
            rack.drop(best)
            self.drops += 1
            path.append(here + (best,))
        return path

    def playout(self, rack):
        rnd = self.rng.random
        while not rack.finished():
            cols = rack.open_columns()
            rack.drop(cols[int(rnd() * len(cols))])
            self.drops += 1
        return rack.winner

    def credit(self, path, winner):
        for key in path:
            self.visits[key] = self.visits.get(key, 0) + 1
            mover = RED if len(key) % 2 == 1 else YELLOW
            gain = 0.5 if winner == EMPTY else float(winner == mover)
            self.wins[key] = self.wins.get(key, 0.0) + gain

    def choose(self, rack):
        for _ in range(self.simulations):
            trial = rack.clone()
            path = self.descend(trial)
            self.credit(path, self.playout(trial))
        here = tuple(rack.moves)
        cols = rack.open_columns()
        counts = [self.visits.get(here + (c,), 0) for c in cols]
        if len(here) < 10:
            return self.rng.choices(cols, weights=counts)[0]
        return cols[counts.index(max(counts))]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    searcher = Searcher(random.Random(a.seed))
    tally = {EMPTY: 0, RED: 0, YELLOW: 0}
    started = time.perf_counter()
    warm = None
    running = True
    while running:
        rack = Rack()
        while not rack.finished():
            rack.drop(searcher.choose(rack))
            searcher.drops += 1
            now = time.perf_counter()
            if warm is None and now - started > 0.5:
                warm = (now, searcher.drops)
            if now - started > a.seconds:
                running = False
                break
        else:
            tally[rack.winner] += 1
            if sum(tally.values()) % 20 == 0:
                print("games", sum(tally.values()), "red", tally[RED], "yellow", tally[YELLOW], "nodes", len(searcher.visits))
    n, s = searcher.drops - warm[1], now - warm[0]
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))


if __name__ == "__main__":
    main()
