"""The releg command's own subcommands, one per file; each has main(arguments) -> exit code."""
