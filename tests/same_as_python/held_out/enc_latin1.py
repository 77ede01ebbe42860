# -*- coding: latin-1 -*-  Checks: Latin-1 coding cookie: literals decode right, traceback shows the line, source lines too.
import inspect
s = 'Größe äöü'
def fä():
    return 'ß' + 1  # ÄÖÜ
print(s, len(s), s.encode('utf-8'))
print(inspect.getsource(fä))
fä()
