"""The command line: one subcommand a file, each of which parses, calls and prints.

A subcommand module has `add_arguments(parser)` and `run(arguments) -> exit code`, and imports what is slow to
load inside `run`.
"""
