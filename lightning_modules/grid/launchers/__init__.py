"""Who makes the runs of a grid."""
