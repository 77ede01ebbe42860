# Checks: locale at start (LC_CTYPE set, others C), setlocale by the script, number formatting, float parsing unaffected.
import locale, sys, time
print([locale.setlocale(c) for c in (locale.LC_CTYPE, locale.LC_NUMERIC, locale.LC_TIME, locale.LC_COLLATE)], locale.getlocale())
locale.setlocale(locale.LC_ALL, "C.UTF-8")
print(locale.localeconv()["decimal_point"], f"{1234.5:n}", time.strftime("%A", (2024, 1, 1, 0, 0, 0, 0, 1, 0)), float("1.5"))
