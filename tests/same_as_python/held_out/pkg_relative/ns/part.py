V = "namespace part"
