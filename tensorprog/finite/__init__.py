"""Programs at finite width: plan, MatMul engines, and the run in blocks of networks."""
