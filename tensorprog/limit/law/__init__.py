"""What users ask of a limit: `Law`, moments, densities and quantiles of its variables, with errors."""
