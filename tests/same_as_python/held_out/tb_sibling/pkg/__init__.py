from . import other
