from torch import lib
