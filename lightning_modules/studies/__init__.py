"""Studies beside Table 1: each file trains or measures something of its own and writes its page."""
