"""What data sets of binary images share: archives, bits and batches."""
