print("WRONG: json imported")
raise SystemExit(99)
