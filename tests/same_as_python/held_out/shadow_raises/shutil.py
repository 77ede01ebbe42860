print("shutil imported")
raise RuntimeError("shadowed shutil")
