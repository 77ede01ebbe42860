"""Goal-reaching in a cave with a curriculum over the length of the way (SARSA, NumPy tables)."""
import argparse
import json
import time
from collections import deque

import numpy as np

STEPS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


class Cave:
    """A cave dug by a random walk.  All ways are known to the cave, not to the learner."""

    def __init__(self, rng, rows=23, cols=23, share=0.5):
        self.rows, self.cols = rows, cols
        rock = np.ones((rows, cols), dtype=bool)
        r, c = rows // 2, cols // 2
        while rock.mean() > share:
            rock[r, c] = False
            dr, dc = STEPS[rng.integers(4)]
            r = min(max(r + dr, 1), rows - 2)
            c = min(max(c + dc, 1), cols - 2)
        self.rock = rock
        self.cells = [tuple(map(int, rc)) for rc in np.argwhere(~rock)]
        self.number = {rc: i for i, rc in enumerate(self.cells)}
        n = len(self.cells)
        self.neighbour = [[self._leads_to(i, k) for k in range(4)] for i in range(n)]
        self.way = np.stack([self._ways_from(i) for i in range(n)])

    def _leads_to(self, i, k):
        r, c = self.cells[i]
        to = (r + int(STEPS[k][0]), c + int(STEPS[k][1]))
        return self.number.get(to, i)

    def _ways_from(self, i):
        dist = np.full(len(self.cells), -1)
        dist[i] = 0
        queue = deque([i])
        while queue:
            j = queue.popleft()
            for k in self.neighbour[j]:
                if dist[k] < 0:
                    dist[k] = dist[j] + 1
                    queue.append(k)
        return dist

    def __len__(self):
        return len(self.cells)


class Teacher:
    """Hands out pairs of start and goal; the way gets longer when the pupil does well."""

    def __init__(self, cave, rng, promote_at=0.85, window=300):
        self.cave, self.rng = cave, rng
        self.stage = 1
        self.last_stage = int(cave.way.max())
        self.promote_at = promote_at
        self.marks = deque(maxlen=window)
        self.tasks = {}

    def next_task(self):
        if self.stage not in self.tasks:
            self.tasks[self.stage] = np.argwhere(self.cave.way == self.stage)
        tasks = self.tasks[self.stage]
        start, goal = tasks[int(self.rng.integers(len(tasks)))]
        return int(start), int(goal)

    def grade(self, success):
        self.marks.append(success)
        full = len(self.marks) == self.marks.maxlen
        if full and np.mean(self.marks) >= self.promote_at and self.stage < self.last_stage:
            self.stage += 1
            self.marks.clear()
            return True
        return False


class Pupil:
    """SARSA with a table over (goal, place, direction)."""

    def __init__(self, n, rng, alpha=0.4, gamma=0.97, eps=0.1):
        self.table = np.zeros((n, n, 4))
        self.rng, self.alpha, self.gamma, self.eps = rng, alpha, gamma, eps

    def direction(self, goal, place):
        if self.rng.random() < self.eps:
            return int(self.rng.integers(4))
        q = self.table[goal, place]
        return int((q + 1e-6 * self.rng.random(4)).argmax())

    def learn(self, goal, place, k, reward, place2, k2):
        target = reward
        if k2 is not None:
            target += self.gamma * self.table[goal, place2, k2]
        self.table[goal, place, k] += self.alpha * (target - self.table[goal, place, k])


def attempt(cave, pupil, start, goal, patience):
    place, steps = start, 0
    k = pupil.direction(goal, place)
    while True:
        place2 = cave.neighbour[place][k]
        steps += 1
        if place2 == goal:
            pupil.learn(goal, place, k, 1.0, place2, None)
            return True, steps
        if steps >= patience:
            pupil.learn(goal, place, k, -0.01, place2, None)
            return False, steps
        k2 = pupil.direction(goal, place2)
        pupil.learn(goal, place, k, -0.01, place2, k2)
        place, k = place2, k2


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    rng = np.random.default_rng(args.seed)
    cave = Cave(rng)
    teacher = Teacher(cave, rng)
    pupil = Pupil(len(cave), rng)
    total = counted = tries = 0
    begin, warm = time.perf_counter(), None
    while True:
        now = time.perf_counter()
        if warm is None and now - begin >= 1.0:
            warm, counted = now, total
        if now - begin >= args.seconds:
            break
        start, goal = teacher.next_task()
        success, n = attempt(cave, pupil, start, goal, patience=4 * teacher.stage + 8)
        total += n
        tries += 1
        if teacher.grade(success):
            print(f"stage {teacher.stage} after {tries} tries and {total} steps")
    k, s = total - counted, now - warm
    print(json.dumps({"env_steps": k, "seconds": round(s, 3), "env_steps_per_s": round(k / s, 2)}))


if __name__ == "__main__":
    main()
