import tensorprog as tp

P = tp.load("programs/attention.yaml", H=2)  # H: the number of heads
print(P.check().grade)  # theorem

law = P.limit()  # the law of the outputs at infinite width
print(law.kurtosis("y[0]", with_error=True))  # 3.1217 and its error; a Gaussian has 3
print(law.quantile("y[0]", [0.05, 0.5, 0.95]))

net = P.run(width=256, samples=5_000, seed=0)  # 5,000 networks of width 256
print(net["y"].shape)  # (5000, 4): four tokens of each
print(tp.compare(net, law))  # a table; every number with its error
