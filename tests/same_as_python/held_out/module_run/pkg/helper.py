V = "helper"
