"""Names of functions in other libraries, and what stands for them here."""

from __future__ import annotations

# functions of one variable by their names elsewhere, in lower case without underscores
ONE = {
    "square": "x**2", "swish": "silu(x)", "heaviside": "step(x)", "ln": "log(x)", "log1p": "log(1 + x)",
    "expm1": "exp(x) - 1", "rsqrt": "1 / sqrt(x)", "reciprocal": "1 / x",
    "logistic": "sigmoid(x)", "expit": "sigmoid(x)",
    "fabs": "abs(x)", "absolute": "abs(x)", "hardtanh": "clip(x, -1, 1)",
    "relu6": "clip(x, 0, 6)", "logsigmoid": "-softplus(-x)", "erfc": "1 - erf(x)",
    "sinh": "(exp(x) - exp(-x)) / 2", "cosh": "(exp(x) + exp(-x)) / 2", "tanhshrink": "x - tanh(x)",
    "hardsigmoid": "clip(x / 6 + 1 / 2, 0, 1)", "quickgelu": "x * sigmoid(1.702 * x)", "neg": "-x", "sgn": "sign(x)",
    "tan": "sin(x) / cos(x)", "ndtr": "(1 + erf(x / sqrt(2))) / 2", "identity": "x", "float": "x", "exp2": "2**x",
    "gelunew": "gelu_tanh(x)", "atan": "arctan(x)",
}  # fmt: skip
NOT_HERE = {  # what has no function, and what to do
    "dropout": "networks at initialisation have no dropout: leave it out",
    "norm": "the norm of a vector grows like sqrt(n); its square over n is an average, m = Dot(x, x, scale=1/n)",
    "batchnorm": "a mean over an index of vectors, mean[j](x[j]), as in the shipped program batchnorm_mlp",
    "conv1d": "a sum over shifts of an index, as in the shipped program cnn",
    "conv2d": "a sum over shifts of an index, as in the shipped program cnn",
    "attention": "scores by Dot and a sum of softmax times values, as in the shipped program attention",
    "scaleddotproductattention": "scores by Dot and a sum of softmax times values, as in the shipped program attention",
    "multiheadattention": "scores by Dot and a sum of softmax times values, as in the shipped program attention",
    "linear": "u[i] = MatMul(W, x[i]) in a statement of its own, with `W: 1` under `weights:`",
    "dense": "u[i] = MatMul(W, x[i]) in a statement of its own, with `W: 1` under `weights:`",
    "embedding": "initial vectors, `e[i]: {cov: 1}` under `initial:`",
    "einsum": "sum[j](...) over indices, Dot for inner products and MatMul for products with weights",
    "concat": "a family over one more index holds several vectors: x[a,i]",
    "cat": "a family over one more index holds several vectors: x[a,i]",
    "reshape": "families have indices instead of shapes: x[a,i]",
    "randn": "random vectors are declared under `initial:`, random matrices under `weights:`",
    "rand": "random vectors are declared under `initial:`, random matrices under `weights:`",
    "zeros": "the number 0",
    "ones": "the number 1",
}


def not_here(name: str) -> str:
    """What to do where a function of this name would stand in other libraries; '' if nothing is known."""
    plain = name.replace("_", "").lower()
    return NOT_HERE.get(plain) or ONE.get(plain, "")
