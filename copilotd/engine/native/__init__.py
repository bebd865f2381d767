"""Steps in C: compiled on the machine they run on, where it has a compiler and an x86 processor with AVX2."""
