# Chained errors, notes and groups are printed alike, also through hooked methods.
import time


class Env:
    def reset(self):
        raise KeyError("first")

    def step(self, action):
        try:
            self.reset()
        except KeyError as error:
            error.add_note("a note")
            raise ExceptionGroup("several", [ValueError("second"), error]) from error


def __str__():
    pass


time.sleep(0.01)
Env().step(0)
