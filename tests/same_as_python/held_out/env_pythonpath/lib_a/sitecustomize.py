import sys
sys.from_sitecustomize = "user's sitecustomize"
