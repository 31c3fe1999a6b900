"""The parts of bench/run: tools and processes, load, and one module per group of figures."""
