from ..util import helper
def leaf():
    return helper() + " leaf"
