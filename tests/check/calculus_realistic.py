"""Activations, gates, losses, normalisations and blocks as people write them, with what is true of them.

Written from papers, each in the spellings that occur, before the calculus was looked at. u, w and z are vectors of a
program (any real number may stand there), p[j] and q[j] scores and v[j] vectors over an index j of three; what is
defined is y[i].
`order` is the least whole order of pseudo-Lipschitz continuity, None where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    name: str
    bounded: bool
    order: int | None
    spellings: tuple[str, ...]


def _read(text: str) -> list[Example]:
    """One example a paragraph: `name: bounded|unbounded, order`, then one spelling a line."""
    examples = []
    for paragraph in text.strip().split("\n\n"):
        title, *spellings = (line.strip() for line in paragraph.splitlines())
        name, facts = title.split(": ")
        bounded, order = facts.split(", ")
        assert bounded in ("bounded", "unbounded")
        examples.append(Example(name, bounded == "bounded", int(order) if order != "none" else None, tuple(spellings)))
    return examples


EXAMPLES = _read("""
sigmoid: bounded, 1
  sigmoid(u)
  1/(1 + exp(-u))
  exp(u)/(1 + exp(u))
  exp(u)/(exp(u) + 1)
  1 - 1/(1 + exp(u))
  0.5*(1 + tanh(u/2))
  exp(-log(1 + exp(-u)))
  exp(-softplus(-u))
  where(u >= 0, 1/(1 + exp(-u)), exp(u)/(1 + exp(u)))

tanh: bounded, 1
  tanh(u)
  (exp(u) - exp(-u))/(exp(u) + exp(-u))
  (exp(2*u) - 1)/(exp(2*u) + 1)
  2/(1 + exp(-2*u)) - 1
  2*sigmoid(2*u) - 1
  1 - 2/(exp(2*u) + 1)

softplus: unbounded, 1
  softplus(u)
  log(1 + exp(u))
  log(exp(u) + 1)
  -log(sigmoid(-u))
  -log(1 - sigmoid(u))
  u + log(1 + exp(-u))
  relu(u) + log(1 + exp(-abs(u)))
  max(u, 0) + log(1 + exp(-abs(u)))

softplus with beta 2: unbounded, 1
  softplus(2*u)/2
  log(1 + exp(2*u))/2
  0.5*log(1 + exp(u)**2)

shifted softplus: unbounded, 1
  softplus(u) - log(2)
  log(0.5*exp(u) + 0.5)
  log((1 + exp(u))/2)

log-sigmoid: unbounded, 1
  log(sigmoid(u))
  -softplus(-u)
  u - log(1 + exp(u))
  -log(1 + exp(-u))
  log(1/(1 + exp(-u)))
  min(u, 0) - log(1 + exp(-abs(u)))

log of 1 - sigmoid: unbounded, 1
  log(1 - sigmoid(u))
  log(sigmoid(-u))
  -log(1 + exp(u))

logit of a sigmoid: unbounded, 1
  log(sigmoid(u)/(1 - sigmoid(u)))
  log(sigmoid(u)) - log(1 - sigmoid(u))

swish: unbounded, 1
  silu(u)
  u*sigmoid(u)
  u/(1 + exp(-u))
  u*exp(u)/(1 + exp(u))
  u*(exp(u)/(1 + exp(u)))
  exp(u)*u/(exp(u) + 1)
  u*(1/(1 + exp(-u)))
  u - u/(1 + exp(u))
  0.5*u*(1 + tanh(0.5*u))

swish with beta 1.702: unbounded, 1
  u*sigmoid(1.702*u)
  u/(1 + exp(-1.702*u))
  u*exp(1.702*u)/(1 + exp(1.702*u))

gelu by tanh: unbounded, 1
  0.5*u*(1 + tanh(0.7978845608*(u + 0.044715*u**3)))
  0.5*u*(1 + tanh(sqrt(2/3.141592653589793)*(u + 0.044715*u*u*u)))
  u*sigmoid(1.5957691216*(u + 0.044715*u**3))
  u/(1 + exp(-1.5957691216*(u + 0.044715*u**3)))

gelu: unbounded, 1
  gelu(u)
  0.5*u*(1 + erf(u/sqrt(2)))
  u/2*(1 + erf(0.7071067811865476*u))

mish: unbounded, 1
  u*tanh(softplus(u))
  u*tanh(log(1 + exp(u)))
  u*((1 + exp(u))**2 - 1)/((1 + exp(u))**2 + 1)
  u*(exp(2*u) + 2*exp(u))/(exp(2*u) + 2*exp(u) + 2)

serf: unbounded, 1
  u*erf(softplus(u))
  u*erf(log(1 + exp(u)))

tanhexp: unbounded, 1
  u*tanh(exp(u))

smish: unbounded, 1
  u*tanh(log(1 + sigmoid(u)))
  u*tanh(log(1 + 1/(1 + exp(-u))))

logish: unbounded, 1
  u*log(1 + sigmoid(u))
  u*log(1 + 1/(1 + exp(-u)))

lisht: unbounded, 1
  u*tanh(u)
  u*(exp(u) - exp(-u))/(exp(u) + exp(-u))

phish: unbounded, 1
  u*tanh(gelu(u))

sech: bounded, 1
  2/(exp(u) + exp(-u))
  1/((exp(u) + exp(-u))/2)
  1/(0.5*exp(u) + 0.5*exp(-u))
  2*exp(u)/(exp(2*u) + 1)
  2*exp(-abs(u))/(1 + exp(-2*abs(u)))
  exp(-log((exp(u) + exp(-u))/2))

sech squared: bounded, 1
  1 - tanh(u)**2
  (1 - tanh(u))*(1 + tanh(u))
  4/(exp(u) + exp(-u))**2
  4*exp(2*u)/(exp(2*u) + 1)**2

logistic density: bounded, 1
  sigmoid(u)*(1 - sigmoid(u))
  sigmoid(u)*sigmoid(-u)
  sigmoid(u) - sigmoid(u)**2
  exp(-u)/(1 + exp(-u))**2
  exp(u)/(1 + exp(u))**2
  1/(exp(u) + 2 + exp(-u))

slope of swish: bounded, 1
  sigmoid(u)*(1 + u*(1 - sigmoid(u)))
  sigmoid(u) + u*sigmoid(u)*(1 - sigmoid(u))
  (1 + exp(-u) + u*exp(-u))/(1 + exp(-u))**2

gated linear unit: unbounded, 2
  u*sigmoid(w)
  u/(1 + exp(-w))
  u*exp(w)/(1 + exp(w))
  exp(w)*u/(exp(w) + 1)

swiglu: unbounded, 2
  silu(w)*u
  u*w*sigmoid(w)
  u*w/(1 + exp(-w))
  w*u*exp(w)/(1 + exp(w))

geglu: unbounded, 2
  gelu(w)*u
  0.5*w*(1 + erf(w/sqrt(2)))*u

reglu: unbounded, 2
  relu(w)*u
  max(w, 0)*u
  where(w > 0, w, 0)*u

highway gate: unbounded, 2
  sigmoid(w)*u + (1 - sigmoid(w))*z
  z + sigmoid(w)*(u - z)
  (exp(w)*u + z)/(1 + exp(w))
  u*exp(w)/(1 + exp(w)) + z/(1 + exp(w))

recurrent gate: bounded, 1
  sigmoid(w)*tanh(u)
  tanh(u)/(1 + exp(-w))
  exp(w)*tanh(u)/(1 + exp(w))

forget gate: bounded, 1
  exp(-softplus(u))
  1/(1 + exp(u))
  1 - sigmoid(u)
  exp(-log(1 + exp(u)))

decay of a state space model: bounded, 1
  exp(-0.5*softplus(u))
  exp(-0.5*log(1 + exp(u)))
  1/sqrt(1 + exp(u))
  (1 + exp(u))**-0.5

gated decay: bounded, 1
  exp(-8*softplus(w)*sigmoid(u))
  exp(-8*log(1 + exp(w))/(1 + exp(-u)))

stabilised exponential gate: bounded, 1
  exp(u - max(u, w))
  exp(u)/max(exp(u), exp(w))
  exp(min(u - w, 0))

softsign: bounded, 1
  u/(1 + abs(u))
  u*(1/(1 + abs(u)))
  u/(abs(u) + 1)

inverse square root unit: bounded, 1
  u/sqrt(1 + u**2)
  u/(1 + u*u)**0.5
  u*(1 + u**2)**-0.5

inverse square root linear unit: unbounded, 1
  where(u < 0, u/sqrt(1 + u**2), u)
  where(u >= 0, u, u*(1 + u**2)**-0.5)
  relu(u) + min(u, 0)/sqrt(1 + min(u, 0)**2)

squareplus: unbounded, 1
  (u + sqrt(u**2 + 4))/2
  0.5*u + 0.5*(u*u + 4)**0.5

bent identity: unbounded, 1
  (sqrt(u**2 + 1) - 1)/2 + u
  u + 0.5*sqrt(1 + u*u) - 0.5

elu: unbounded, 1
  elu(u)
  where(u > 0, u, exp(u) - 1)
  relu(u) + exp(min(u, 0)) - 1
  max(0, u) + min(0, exp(u) - 1)
  relu(u) - relu(1 - exp(u))

celu: unbounded, 1
  max(0, u) + min(0, 1.5*(exp(u/1.5) - 1))
  where(u > 0, u, 1.5*(exp(u/1.5) - 1))
  max(0, u) + 1.5*min(0, exp(u/1.5) - 1)

selu: unbounded, 1
  selu(u)
  1.0507*where(u > 0, u, 1.67326*(exp(u) - 1))
  1.0507*(max(0, u) + min(0, 1.67326*(exp(u) - 1)))

features of linear attention: unbounded, 1
  elu(u) + 1
  where(u > 0, u + 1, exp(u))
  relu(u) + min(1, exp(u))

step of a minimal gru: unbounded, 1
  where(u >= 0, u + 0.5, sigmoid(u))
  where(u >= 0, u + 0.5, 1/(1 + exp(-u)))

hard swish: unbounded, 1
  u*clip(u + 3, 0, 6)/6
  u*min(max(u + 3, 0), 6)/6
  u*(clip(u + 3, 0, 6)/6)

hard sigmoid: bounded, 1
  clip(u/6 + 0.5, 0, 1)
  max(0, min(1, u/6 + 0.5))
  clip(u + 3, 0, 6)/6

tanhshrink: unbounded, 1
  u - tanh(u)
  u - (exp(2*u) - 1)/(exp(2*u) + 1)

softshrink: unbounded, 1
  relu(u - 0.5) - relu(-u - 0.5)
  u - clip(u, -0.5, 0.5)
  where(u > 0.5, u - 0.5, where(u < -0.5, u + 0.5, 0))

leaky relu: unbounded, 1
  leaky_relu(u)
  where(u > 0, u, 0.01*u)
  max(u, 0.01*u)

squared relu: unbounded, 2
  relu(u)**2
  max(u, 0)**2
  relu(u)*relu(u)
  where(u > 0, u**2, 0)

gaussian: bounded, 1
  gaussian(u)
  exp(-u**2)
  exp(-u*u)
  1/exp(u**2)
  exp(-abs(u)**2)

normal density: bounded, 1
  exp(-u**2/2)
  exp(-0.5*u*u)
  exp(-0.5*u**2)/sqrt(2*3.141592653589793)
  gaussian(u/sqrt(2))

hermite function: bounded, 1
  u*exp(-u**2/2)
  u/exp(u**2/2)
  exp(-0.5*u**2)*u

mexican hat: bounded, 1
  (1 - u**2)*exp(-u**2/2)
  exp(-u**2/2) - u**2*exp(-u**2/2)
  (1 - u**2)/exp(u**2/2)

morlet wavelet: bounded, 1
  cos(5*u)*exp(-u**2/2)

laplace kernel: bounded, 1
  exp(-abs(u))
  1/exp(abs(u))
  exp(min(u, -u))

laplace kernel times a line: bounded, 1
  u*exp(-abs(u))
  u/exp(abs(u))

matern kernel: bounded, 1
  (1 + abs(u))*exp(-abs(u))
  exp(-abs(u)) + abs(u)*exp(-abs(u))
  (1 + sqrt(3)*abs(u - w))*exp(-sqrt(3)*abs(u - w))

heat kernel of a difference: bounded, 1
  exp(-(u - w)**2)
  exp(-(u - w)**2/2)
  gaussian(u - w)
  1/exp((u - w)**2)

cauchy kernel: bounded, 1
  1/(1 + u**2)
  (1 + u**2)**-1
  1/(1 + u*u)
  1 - u**2/(1 + u**2)

student kernel: bounded, 1
  (1 + u**2/3)**-2
  1/(1 + u**2/3)**2
  1/(1 + u*u/3)/(1 + u*u/3)

student kernel of a difference: bounded, 1
  1/(1 + (u - w)**2)
  (1 + (u - w)**2)**-1

inverse multiquadric: bounded, 1
  1/sqrt(1 + u**2)
  (1 + u**2)**-0.5

witch of a line: bounded, 1
  u/(1 + u**2)
  u*(1 + u*u)**-1
  u*(1/(1 + u**2))

geman mcclure: bounded, 1
  u**2/(1 + u**2)
  1 - 1/(1 + u**2)
  u*(u/(1 + u**2))

cubic over quadratic: unbounded, 1
  u**3/(1 + u**2)
  u - u/(1 + u**2)
  u*u**2/(1 + u*u)

tanh by pade: unbounded, 1
  u*(27 + u**2)/(27 + 9*u**2)
  (27*u + u**3)/(27 + 9*u*u)
  u*((27 + u**2)/(27 + 9*u**2))

safe pade unit: unbounded, 1
  (0.02 + 0.6*u + 1.2*u**2 + 0.5*u**3)/(1 + abs(0.1*u) + abs(0.6*u**2))
  (0.02 + 0.6*u + 1.2*u**2 + 0.5*u**3)/(1 + 0.1*abs(u) + 0.6*u**2)

safe pade unit with one absolute value: unbounded, 1
  (0.02 + 0.6*u + 1.2*u**2 + 0.5*u**3)/(1 + abs(0.1*u + 0.6*u**2))

hill function: bounded, 1
  relu(u)**2/(1 + relu(u)**2)
  max(u, 0)**2/(1 + max(u, 0)**2)

snake: unbounded, 1
  u + sin(u)**2
  u + (1 - cos(2*u))/2

growing cosine: unbounded, 2
  u*cos(u)

damped sine: bounded, 1
  sin(u)/(1 + abs(u))
  sin(u)*(1/(1 + abs(u)))

symlog: unbounded, 1
  where(u > 0, log(1 + u), -log(1 - u))
  log(1 + relu(u)) - log(1 + relu(-u))

log of a square: unbounded, 1
  log(1 + u**2)
  -log(1/(1 + u**2))

log of cosh: unbounded, 1
  log((exp(u) + exp(-u))/2)
  log(exp(u) + exp(-u)) - log(2)
  abs(u) + log(1 + exp(-2*abs(u))) - log(2)
  softplus(2*u) - u - log(2)

huber: unbounded, 1
  where(abs(u) < 1, 0.5*u**2, abs(u) - 0.5)
  where(abs(u) <= 1, u**2/2, abs(u) - 1/2)

pseudo-huber: unbounded, 1
  sqrt(1 + u**2) - 1
  (1 + u*u)**0.5 - 1

welsch: bounded, 1
  1 - exp(-u**2/2)
  1 - 1/exp(u**2/2)

focal weight: bounded, 1
  (1 - sigmoid(u))**2
  sigmoid(-u)**2
  1/(1 + exp(u))**2
  (1 + exp(u))**-2

focal loss: unbounded, 1
  -(1 - sigmoid(u))**2*log(sigmoid(u))
  sigmoid(-u)**2*softplus(-u)
  log(1 + exp(-u))/(1 + exp(u))**2

cross entropy: unbounded, 1
  softplus(u) - 0.3*u
  -0.3*log(sigmoid(u)) - 0.7*log(1 - sigmoid(u))
  max(u, 0) - 0.3*u + log(1 + exp(-abs(u)))

binary entropy: bounded, 1
  -sigmoid(u)*log(sigmoid(u)) - (1 - sigmoid(u))*log(1 - sigmoid(u))
  sigmoid(u)*softplus(-u) + sigmoid(-u)*softplus(u)

hinge by softplus: unbounded, 1
  softplus(1 - u)
  log(1 + exp(1 - u))

soft clipping: bounded, 1
  log((1 + exp(u))/(1 + exp(u - 1)))
  log(1 + exp(u)) - log(1 + exp(u - 1))
  softplus(u) - softplus(u - 1)

gumbel distribution function: bounded, 1
  exp(-exp(-u))
  1/exp(exp(-u))

complementary log-log: bounded, 1
  1 - exp(-exp(u))

logit cap: bounded, 1
  30*tanh(u/30)
  30*(exp(u/15) - 1)/(exp(u/15) + 1)

shifted gaussian: bounded, 1
  exp(u - u**2)
  exp(u)*exp(-u**2)
  exp(u)/exp(u**2)

softmax: bounded, 1
  softmax[i](p[i])
  exp(p[i])/sum[j](exp(p[j]))
  exp(p[i] - logsumexp[j](p[j]))
  exp(p[i] - max[j](p[j]))/sum[j](exp(p[j] - max[k](p[k])))
  exp(log(softmax[i](p[i])))
  1/sum[k](exp(p[k] - p[i]))

attention: unbounded, 2
  sum[j](softmax[j](p[j])*v[j])
  sum[j](exp(p[j])*v[j])/sum[j](exp(p[j]))
  sum[j](exp(p[j])*v[j]/sum[k](exp(p[k])))
  sum[j](exp(p[j] - logsumexp[k](p[k]))*v[j])
  sum[j](exp(p[j] - max[k](p[k]))*v[j])/sum[j](exp(p[j] - max[k](p[k])))

attention of two: unbounded, 2
  (exp(u)*z + exp(w)*v[0])/(exp(u) + exp(w))
  sigmoid(u - w)*z + sigmoid(w - u)*v[0]
  exp(u)*z/(exp(u) + exp(w)) + exp(w)*v[0]/(exp(u) + exp(w))

softmax of two: bounded, 1
  exp(u)/(exp(u) + exp(w))
  sigmoid(u - w)
  1/(1 + exp(w - u))

softmax off by one: bounded, 1
  exp(p[i])/(1 + sum[j](exp(p[j])))
  exp(p[i])/(1 + exp(logsumexp[j](p[j])))

softmax with a sink: bounded, 1
  exp(p[i])/(exp(u) + sum[j](exp(p[j])))
  exp(p[i] - u)/(1 + sum[j](exp(p[j] - u)))

softmax at temperature 1/2: bounded, 1
  softmax[i](p[i]/0.5)
  softmax[i](2*p[i])
  exp(2*p[i])/sum[j](exp(2*p[j]))
  exp(p[i])**2/sum[j](exp(p[j])**2)
  softmax[i](p[i])**2/sum[j](softmax[j](p[j])**2)

softmax of sums: bounded, 1
  softmax[i](p[i] + q[i])
  exp(p[i] + q[i])/sum[j](exp(p[j] + q[j]))
  exp(p[i])*exp(q[i])/sum[j](exp(p[j])*exp(q[j]))
  softmax[i](p[i])*exp(q[i])/sum[j](softmax[j](p[j])*exp(q[j]))

softmax with prior weights: bounded, 1
  (1 + i)*exp(p[i])/sum[j]((1 + j)*exp(p[j]))
  softmax[i](p[i] + log(1 + i))

log-softmax: unbounded, 1
  log(softmax[i](p[i]))
  p[i] - logsumexp[j](p[j])
  p[i] - log(sum[j](exp(p[j])))

entropy of a softmax: bounded, 1
  -sum[j](softmax[j](p[j])*log(softmax[j](p[j])))
  sum[j](softmax[j](p[j])*(logsumexp[k](p[k]) - p[j]))
  -sum[j](softmax[j](p[j])*(p[j] - logsumexp[k](p[k])))

softmax of unit length: bounded, 1
  softmax[i](p[i])/sqrt(sum[j](softmax[j](p[j])**2))
  exp(p[i])/sqrt(sum[j](exp(2*p[j])))
  exp(p[i])/sqrt(sum[j](exp(p[j])**2))

participation ratio: bounded, 1
  1/sum[j](softmax[j](p[j])**2)
  sum[j](exp(p[j]))**2/sum[j](exp(2*p[j]))

norm of a softmax: bounded, 1
  sqrt(sum[j](softmax[j](p[j])**2))
  sum[j](softmax[j](p[j])**2)**0.5

pooling by logsumexp: unbounded, 1
  logsumexp[j](p[j])
  log(sum[j](exp(p[j])))
  max[j](p[j]) + log(sum[j](exp(p[j] - max[k](p[k]))))

pooling at temperature 1/2: unbounded, 1
  log(mean[j](exp(2*p[j])))/2
  0.5*logsumexp[j](2*p[j]) - 0.5*log(3)
  log(sqrt(mean[j](exp(2*p[j]))))

free energy of units: unbounded, 1
  -sum[j](softplus(p[j]))
  -sum[j](log(1 + exp(p[j])))

sigmoid attention: unbounded, 2
  sum[j](sigmoid(p[j])*v[j])
  sum[j](v[j]/(1 + exp(-p[j])))
  sum[j](exp(p[j])*v[j]/(1 + exp(p[j])))

normalised sigmoid attention: unbounded, 2
  sum[j](sigmoid(p[j])*v[j])/sum[j](sigmoid(p[j]))
  sum[j](v[j]/(1 + exp(-p[j])))/sum[j](1/(1 + exp(-p[j])))

normalised softplus attention: unbounded, 2
  sum[j](softplus(p[j])*v[j])/sum[j](softplus(p[j]))

linear attention of elu features: unbounded, 2
  sum[j]((elu(p[j]) + 1)*v[j])/sum[j](elu(p[j]) + 1)

relu attention with epsilon: bounded, 1
  relu(p[i])/(0.001 + sum[j](relu(p[j])))
  max(p[i], 0)/(0.001 + sum[k](max(p[k], 0)))

squared relu attention with epsilon: bounded, 1
  relu(p[i])**2/(0.001 + sum[j](relu(p[j])**2))

squared score attention with epsilon: bounded, 1
  p[i]**2/(0.001 + sum[j](p[j]**2))

heat kernel attention: bounded, 2
  softmax[i](-p[i]**2)
  exp(-p[i]**2)/sum[j](exp(-p[j]**2))
  gaussian(p[i])/sum[j](gaussian(p[j]))

heat kernel attention with epsilon: bounded, 1
  exp(-p[i]**2)/(0.001 + sum[j](exp(-p[j]**2)))
  gaussian(p[i])/(0.001 + sum[j](gaussian(p[j])))

student kernel attention: bounded, 1
  (1/(1 + p[i]**2))/sum[j](1/(1 + p[j]**2))
  (1 + p[i]**2)**-1/sum[j]((1 + p[j]**2)**-1)

smooth maximum: unbounded, 1
  sum[j](p[j]*softmax[j](p[j]))
  sum[j](p[j]*exp(p[j]))/sum[j](exp(p[j]))

softmax linear unit: unbounded, 2
  p[i]*softmax[i](p[i])
  p[i]*exp(p[i])/sum[j](exp(p[j]))

cosine similarity with epsilons inside: bounded, 1
  sum[j](v[j]*p[j])/(sqrt(0.01 + sum[j](v[j]**2))*sqrt(0.01 + sum[j](p[j]**2)))
  sum[j](v[j]/sqrt(0.01 + sum[k](v[k]**2))*p[j]/sqrt(0.01 + sum[k](p[k]**2)))
  sum[j](v[j]*p[j])/sqrt((0.01 + sum[j](v[j]**2))*(0.01 + sum[j](p[j]**2)))

root mean square norm: bounded, 1
  v[i]/sqrt(0.001 + mean[j](v[j]**2))
  v[i]*(mean[j](v[j]**2) + 0.001)**-0.5
  v[i]/sqrt(0.001 + mean[k](v[k]*v[k]))
  v[i]/(0.001 + mean[j](v[j]**2))**0.5

layer norm over tokens: bounded, 1
  (v[i] - mean[j](v[j]))/sqrt(0.001 + mean[j]((v[j] - mean[k](v[k]))**2))

unit vector with epsilon: bounded, 1
  v[i]/(0.001 + sqrt(sum[j](v[j]**2)))
  v[i]/(sum[j](v[j]**2)**0.5 + 0.001)

unit vector with a floor: bounded, 1
  v[i]/max(sqrt(sum[j](v[j]**2)), 0.001)
  v[i]/max(0.001, sum[j](v[j]**2)**0.5)

unit vector of absolute values: bounded, 1
  v[i]/(0.001 + sum[j](abs(v[j])))
  v[i]/(sum[k](abs(v[k])) + 0.001)

unit vector of the largest: bounded, 1
  v[i]/(0.001 + max[j](abs(v[j])))
  v[i]/max(0.001, max[k](abs(v[k])))

squashed capsule: bounded, 1
  sum[j](v[j]**2)/(1 + sum[j](v[j]**2))*v[i]/sqrt(0.001 + sum[j](v[j]**2))

divisive normalisation: bounded, 1
  u/sqrt(1 + 0.1*u**2 + 0.2*w**2)
  u*(1 + 0.1*u*u + 0.2*w*w)**-0.5

energy model: bounded, 1
  u**2/(1 + u**2 + w**2)

length: unbounded, 1
  sqrt(sum[j](v[j]**2))
  sum[j](v[j]**2)**0.5
  sqrt(sum[j](v[j]*v[j]))

maxout: unbounded, 1
  max(u, w, z)
  max(max(u, w), z)

odds: unbounded, none
  exp(u)
  sigmoid(u)/(1 - sigmoid(u))
  exp(u)*1
  1/exp(-u)
  1/(1 - sigmoid(u))
  1/(1 - tanh(u))

hyperbolic cosine: unbounded, none
  (exp(u) + exp(-u))/2
  exp(2*u)/(1 + exp(u))
  exp(u)/(1 + exp(w))
  exp(u)*exp(-abs(w))
  u*exp(u)/(1 + exp(-u))
  exp(u**2 - u)

poles: unbounded, none
  1/u
  1/(1 + u)
  u/(1 - u**2)
  1/(1 + u**3)
  u/(u**2 - w**2)
  1/(u**2 + w**2)
  u/(1 + u*w)
  1/(u**2 - 2*u + 1)
  log(abs(u))
  1/softplus(u)
  1/sum[j](p[j]**2)

roots: unbounded, none
  sqrt(abs(u))
  u/sqrt(abs(u))
  sqrt(relu(u))
  abs(u)**0.5

jumps: bounded, none
  sign(u)
  where(u > 0.5, 1, 0)
  u/abs(u)
  relu(p[i])/sum[j](relu(p[j]))
  v[i]/sqrt(sum[j](v[j]**2))
  u/sqrt(u**2 + w**2)

hardshrink: unbounded, none
  where(abs(u) > 0.5, u, 0)
""")
