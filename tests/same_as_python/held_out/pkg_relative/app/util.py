def helper():
    return "helper"
