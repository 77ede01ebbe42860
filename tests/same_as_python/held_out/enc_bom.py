# Checks: UTF-8 BOM at the start of the script.
print('ok ü', __file__[-6:])
def f():
    raise KeyError('ü')
f()
