"""The releg command's own subcommands, one per file: main(arguments) -> exit code. options.py is what they share.

A mistake is an exception; cli.py answers it.
"""
