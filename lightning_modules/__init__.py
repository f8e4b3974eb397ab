"""Everything that knows Lightning: data module, training module, callbacks, command line."""
