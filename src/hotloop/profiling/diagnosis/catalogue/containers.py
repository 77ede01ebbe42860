"""Lists, deques, sets and random choices among their elements, and copies of whole objects."""

from __future__ import annotations

from hotloop.profiling.diagnosis.catalogue.entry import SEQUENCES, Entry, Needs

CONTAINERS: tuple[Entry, ...] = (
    Entry(
        "A long list is searched element by element.",
        "Keep a set or a dict of what is searched for beside the list, or a boolean array for cells of a grid:\n"
        "    seen = set(); seen.add(cell); cell in seen     # the same time for ten elements and a million",
        operations=("CONTAINS_OP",),
        needs=(Needs(1, container=SEQUENCES, length=24),),
        remains=(0.05, 0.01, 0.2),
    ),
    Entry(
        "A long list is searched element by element.",
        "Keep the place of each element in a dict, or use a set: `index`, `count` and `remove` look at all before it.",
        calls=("list.index", "list.count", "list.remove", "collections.deque.index", "collections.deque.remove"),
        needs=(Needs(0, container=SEQUENCES, length=24),),
        remains=(0.05, 0.01, 0.2),
    ),
    Entry(
        "Elements are taken from the front of a long list, which moves all others.",
        "Use collections.deque with popleft(), or a ring: an array and the place of the oldest element.",
        calls=("list.pop", "list.insert"),
        needs=(Needs(0, container=("list",), length=500), Needs(1, text=("int",))),
        remains=(0.02, 0.0, 0.1),
    ),
    Entry(
        "Random elements of a long deque are read: each read walks through it from one end.",
        "Keep experience in a list used as a ring, or in preallocated arrays: reading an index then costs the same "
        "everywhere.",
        operations=("BINARY_SUBSCR",),
        needs=(Needs(0, container=("deque",), length=300),),
        remains=(0.08, 0.02, 0.25),
    ),
    Entry(
        "A sample is drawn from a long deque or set: it is copied or walked through each time.",
        "Keep experience in a list used as a ring, or in preallocated arrays, and draw indices.",
        calls=("random.Random.sample", "random.Random.choice", "random.Random.choices", "random.sample"),
        needs=(Needs(container=("deque", "set"), length=300),),
        remains=(0.15, 0.03, 0.4),
    ),
    Entry(
        "A whole container is copied to use little of it.",
        "Index it directly, or keep it in a form that can be indexed: an array or a list used as a ring.",
        calls=("list", "tuple", "set", "sorted", "list.copy", "dict.copy", "random.Random.shuffle"),
        needs=(Needs(container=("list", "tuple", "deque", "set"), length=300),),
        sure=False,
        remains=(0.1, 0.0, 0.4),
    ),
    Entry(
        "Whole objects are copied deeply.",
        "Copy only what changes, by hand: arrays with .copy(), and the rest shared. A simulator is quicker to restore "
        "from a few numbers than from a deep copy.",
        calls=("copy.deepcopy",),
        through=("copy",),
        remains=(0.08, 0.01, 0.3),
    ),
    Entry(
        "A choice among many elements is prepared anew each time.",
        "Draw indices with rng.integers(n, size=k). With weights keep a sum tree, or search the cumulative sum once "
        "for the whole batch.",
        calls=(
            "numpy.random.choice",
            "numpy.random.mtrand.RandomState.choice",
            "numpy.random._generator.Generator.choice",
            "numpy.random.mtrand.RandomState.permutation",
            "numpy.random.mtrand.RandomState.shuffle",
            "numpy.random._generator.Generator.permutation",
            "random.Random.choices",
            "torch.multinomial",
            "torch.randperm",
        ),
        sure=False,
        remains=(0.1, 0.02, 0.35),
    ),
    Entry(
        "pandas is used for single rows.",
        "Turn the columns into NumPy arrays once and index those: a row of a DataFrame is a new object of its own.",
        calls=("pandas.",),
        through=("pandas",),
        remains=(0.04, 0.0, 0.2),
    ),
    Entry(
        "All of a long history is added up, sorted or searched again and again.",
        "Keep a running value: add what comes, subtract what goes.",
        calls=(
            "sum",
            "min",
            "max",
            "sorted",
            "list.sort",
            "numpy.mean",
            "numpy.sum",
            "numpy.std",
            "numpy.var",
            "numpy.max",
            "numpy.min",
            "numpy.cumsum",
            "numpy.argsort",
            "numpy.sort",
            "numpy.median",
            "numpy.percentile",
            "statistics.",
            "numpy.quantile",
            "any",
            "all",
            "numpy.argmax",
            "numpy.argmin",
            "numpy.where",
            "numpy.ndarray.sum",
            "numpy.ndarray.mean",
            "numpy.ndarray.max",
            "numpy.ndarray.min",
            "numpy.ndarray.cumsum",
            "math.fsum",
        ),
        needs=(Needs(0, container=SEQUENCES, length=100),),
        remains=(0.05, 0.0, 0.25),
    ),
)
