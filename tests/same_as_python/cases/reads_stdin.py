# stdin belongs to the script.
import sys

print(input("name? "), sys.stdin.read().split())
