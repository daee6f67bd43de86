"""Random scores: draws of (Z, p-ring), and of what stands behind them, layer after layer."""
