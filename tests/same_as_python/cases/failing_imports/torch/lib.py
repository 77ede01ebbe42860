raise OSError("libcudart.so.12: cannot open shared object file")
