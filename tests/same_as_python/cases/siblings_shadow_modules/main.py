# Siblings named like modules that a recorder imports win, as they do under Python.
import decimal
import fractions
import platform
import statistics
import uuid

import cloudpickle
import numpy
import psutil
import pyarrow

for module in (cloudpickle, decimal, fractions, numpy, platform, psutil, pyarrow, statistics, uuid):
    print(module.__name__, getattr(module, "MINE", False))
