"""What the recursion reads of a program: families and their definitions, vectors as sums of functions of Gaussians."""
