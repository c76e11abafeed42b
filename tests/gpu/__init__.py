"""Tests of the package on CUDA: on a GPU, or on the stand-in for one."""
