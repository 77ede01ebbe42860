print("init", __name__, __package__)
__all__ = ["exported"]
exported = 5
