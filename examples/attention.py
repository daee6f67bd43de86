import numpy as np

import tensorprog as tp

P = tp.load("programs/attention.yaml", H=2)  # keywords override constants
print(P.check().grade)  # theorem

net = P.run(width=256, samples=5_000, seed=0)  # 5,000 networks of width 256
print(net["y"].shape, net["p"].shape)  # outputs (5000, 4), scores (5000, 2, 4, 4)

law = P.limit()  # Definition 1, compiled
print(law.kurtosis("y[0]", with_error=True))  # 3.1217 and its error
print(P.limit(symbolic=["C"]).cov("x")[0, 0])  # a sympy expression in C
print(law.density("y[0]", np.linspace(-2, 2, 5)))
print(law.cov("p").at([0, 1, 2], [0, 1, 2]))  # one entry of a structured covariance

given = law.given({"p": net["p"]})  # the Gaussian law of the outputs, given these scores
print(given.cov().shape)  # (5000, 4, 4)

print(tp.compare(net, law))  # a table; every number with its error
