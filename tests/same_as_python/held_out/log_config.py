# Checks: logging: root has no handlers and level WARNING at start, lastResort prints to stderr, basicConfig takes effect, captureWarnings, no foreign loggers.
import logging, sys, warnings
root = logging.getLogger()
print(root.handlers, root.level, logging.root.manager.disable, sorted(logging.root.manager.loggerDict), logging.raiseExceptions, type(logging.getLoggerClass()).__name__, logging.getLogRecordFactory().__name__)
logging.getLogger("a.b").warning("by lastResort"); logging.getLogger("a").info("not shown")
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(funcName)s:%(lineno)d %(processName)s %(threadName)s %(message)s", level=logging.DEBUG)
def train(): logging.info("in train"); logging.getLogger("x").debug("%d items", 3)
train()
print(len(root.handlers), logging._handlers is not None)
logging.captureWarnings(True); warnings.warn("captured")
logging.info("%d", "not a number")
try: 1 / 0
except ZeroDivisionError: logging.exception("with traceback")
