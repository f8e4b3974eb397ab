"""One estimator per file. base.py is the contract."""
