"""Self-play at tic-tac-toe on four by four fields, by Monte Carlo tree search and a table of values. Plain Python."""

import math
import random

from progress import tick

SIZE, SIMULATIONS, C = 4, 30, 1.4


def lines():
    """Three in a row, in all directions."""
    for x in range(SIZE):
        for y in range(SIZE):
            for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
                cells = [(x + i * dx, y + i * dy) for i in range(3)]
                if all(0 <= a < SIZE and 0 <= b < SIZE for a, b in cells):
                    yield tuple(a + SIZE * b for a, b in cells)


LINES = list(lines())


def winner(board):
    for a, b, c in LINES:
        if board[a] != "." and board[a] == board[b] == board[c]:
            return board[a]
    return None


def moves(board):
    return [i for i, cell in enumerate(board) if cell == "."]


def put(board, move, player):
    return board[:move] + player + board[move + 1 :]


def other(player):
    return "O" if player == "X" else "X"


class Node:
    def __init__(self, board, player, parent=None):
        self.board, self.player, self.parent = board, player, parent
        self.children, self.visits, self.wins = {}, 0, 0.0
        self.untried = [] if winner(board) else moves(board)

    def select(self):
        log = math.log(self.visits)
        return max(self.children.values(), key=lambda n: n.wins / n.visits + C * math.sqrt(log / n.visits))

    def expand(self):
        move = self.untried.pop(random.randrange(len(self.untried)))
        child = Node(put(self.board, move, self.player), other(self.player), self)
        self.children[move] = child
        return child


def rollout(board, player):
    while winner(board) is None and "." in board:
        board = put(board, random.choice(moves(board)), player)
        player = other(player)
    return winner(board)


def search(board, player):
    root = Node(board, player)
    for _ in range(SIMULATIONS):
        node = root
        while not node.untried and node.children:
            node = node.select()
        if node.untried:
            node = node.expand()
        won = rollout(node.board, node.player)
        while node is not None:
            node.visits += 1
            node.wins += 0.5 if won is None else float(won != node.player)
            node = node.parent
        tick()
    return max(root.children, key=lambda move: root.children[move].visits)


def main():
    random.seed(11)
    values = {}
    while True:
        board, player, seen = "." * SIZE**2, "X", []
        while winner(board) is None and "." in board:
            board = put(board, search(board, player), player)
            player = other(player)
            seen.append(board)
        result = {"X": 1.0, "O": -1.0, None: 0.0}[winner(board)]
        for each in seen:
            values[each] = values.get(each, 0.0) + 0.1 * (result - values.get(each, 0.0))


main()
