"""Industrial simulators in pure JAX, recorded datasets and plant logs."""
