"""What can be found out about CUDA without a GPU: whether kernels compile, their possible speed, a step's memory."""
