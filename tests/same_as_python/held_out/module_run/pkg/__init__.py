import sys, os
print("init sees argv0", os.path.basename(sys.argv[0]), sys.argv[1:], "__main__ file" , hasattr(sys.modules["__main__"], "__file__"))
