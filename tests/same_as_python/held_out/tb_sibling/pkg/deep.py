from .other import VALUE
def check():
    raise LookupError("at import of deep")
check()
