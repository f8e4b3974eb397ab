"""What several estimators share; an estimator imports parts, never another estimator."""
