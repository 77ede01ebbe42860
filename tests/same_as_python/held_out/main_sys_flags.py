# Checks: sys.flags, warnoptions, _xoptions, dont_write_bytecode, prefix, executable are unchanged.
import sys, os
print(sys.flags)
print(sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.pycache_prefix)
print(sys.executable, sys.prefix, sys.base_prefix, sys._base_executable, sys.platlibdir)
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding(), sys.stdin.encoding)
print(sys.ps1 if hasattr(sys, "ps1") else "no ps1", hasattr(sys, "last_type"), sys.getdlopenflags(), sys.hash_info.width, hash("abc"))
