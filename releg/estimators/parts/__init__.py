"""What several estimators share. An estimator imports parts, never another estimator."""
