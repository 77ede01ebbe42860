print("running as", __name__)
