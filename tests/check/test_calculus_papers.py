"""Activations, gates, norms and weights of attention, as papers and people write them: each gets the right verdict."""

from __future__ import annotations

import pytest
from calculus_expressions import BASE, LAST, parsed, profile
from calculus_hunter import violation
from test_calculus_witness import refutes

from tensorprog.language.facts import FAILS, HOLDS

BOUNDED = {  # bounded and pseudo-Lipschitz
    "hardsigmoid": "clip(g[i]/6+0.5,0,1)",
    "hardtanh": "clip(g[i],-1,1)",
    "hardtanh by min max": "max(-1,min(1,g[i]))",
    "relu6": "min(relu(g[i]),6)",
    "softsign": "g[i]/(1+abs(g[i]))",
    "elliott": "0.5*g[i]/(1+abs(g[i]))+0.5",
    "isru": "g[i]/sqrt(1+g[i]**2)",
    "arctan like": "g[i]/(1+0.28*g[i]**2)",
    "siren": "sin(30*g[i])",
    "sqnl": "where(g[i]>2,1,where(g[i]<-2,-1,where(g[i]<0,g[i]+g[i]**2/4,g[i]-g[i]**2/4)))",
    "rbf": "exp(-(g[i]-e)**2)",
    "cosrbf": "cos(g[i])*exp(-e**2)",
    "gaussian sqrt": "exp(-abs(g[i]))",
    "cloglog": "1-exp(-exp(g[i]))",
    "gumbel": "exp(-exp(-g[i]))",
    "tanh gate": "tanh(g[i])*sigmoid(e)",
    "softmax of two": "exp(g[i])/(exp(g[i])+exp(e))",
    "softmin": "exp(-g[i])/(exp(-g[i])+exp(-e))",
    "norm two": "g[i]/sqrt(1e-6+g[i]**2+e**2)",
    "one weight lse": "exp(p[i,0]-logsumexp[j](p[i,j]))",
    "lse mean weight": "exp(p[i,0])/mean[j](exp(p[i,j]))",
    "softmax1 weight": "exp(p[i,0])/(1+sum[j](exp(p[i,j])))",
    "max shift": "exp(p[i,0]-max[j](p[i,j]))",
    "batch norm": "(v[0]-mean[j](v[j]))/sqrt(1e-5+mean[j]((v[j]-mean[l](v[l]))**2))",
    "batch norm two moments": "(v[0]-mean[j](v[j]))/sqrt(1e-5+mean[j](v[j]**2)-mean[j](v[j])**2)",
    "layernorm index": "v[0]/sqrt(1e-5+mean[j](v[j]**2))",
    "gumbel gate": "sigmoid((g[i]+e)/0.1)",
    "cube clip": "clip(g[i],-3,3)**3",
    "dy tanh": "tanh(0.5*g[i])*2+1",
    "rootsig": "g[i]/(1+sqrt(1+g[i]**2))",
    "hexpo": "where(g[i]>=0,1-exp(-g[i]),exp(g[i])-1)",
}
UNBOUNDED = {  # pseudo-Lipschitz, and a witness shows that they are not bounded
    "mish": "g[i]*tanh(softplus(g[i]))",
    "mish by hand": "g[i]*tanh(log(1+exp(g[i])))",
    "hardswish": "g[i]*clip(g[i]+3,0,6)/6",
    "hardswish relu6": "g[i]*min(max(g[i]+3,0),6)/6",
    "quick gelu": "g[i]*sigmoid(1.702*g[i])",
    "gelu tanh": "0.5*g[i]*(1+tanh(sqrt(2/pi)*(g[i]+0.044715*g[i]**3)))",
    "swish beta": "g[i]*sigmoid(2*g[i])",
    "swish by hand": "g[i]/(1+exp(-2*g[i]))",
    "celu": "max(0,g[i])+min(0,2*(exp(g[i]/2)-1))",
    "elu by where": "where(g[i]>0,g[i],exp(g[i])-1)",
    "elu min": "max(g[i],0)+min(exp(g[i])-1,0)",
    "selu by hand": "1.0507*where(g[i]>0,g[i],1.6733*(exp(g[i])-1))",
    "prelu": "where(g[i]>0,g[i],0.25*g[i])",
    "prelu max": "max(g[i],0)+0.25*min(g[i],0)",
    "leaky max": "max(g[i],0.1*g[i])",
    "isrlu": "where(g[i]<0,g[i]/sqrt(1+g[i]**2),g[i])",
    "squareplus": "(g[i]+sqrt(g[i]**2+4))/2",
    "logcosh": "log((exp(g[i])+exp(-g[i]))/2)",
    "logcosh stable": "abs(g[i])+log(1+exp(-2*abs(g[i])))-log(2)",
    "log cosh softplus": "g[i]+softplus(-2*g[i])-log(2)",
    "softplus beta": "log(1+exp(3*g[i]))/3",
    "softplus stable": "max(g[i],0)+log(1+exp(-abs(g[i])))",
    "tanhshrink": "g[i]-tanh(g[i])",
    "softshrink": "relu(g[i]-0.5)-relu(-g[i]-0.5)",
    "softshrink sign": "sign(g[i])*relu(abs(g[i])-0.5)",
    "threshold glued": "where(g[i]>1,g[i],1)",
    "snake": "g[i]+sin(2*g[i])**2/2",
    "gcu": "g[i]*cos(g[i])",
    "serf": "g[i]*erf(softplus(g[i]))",
    "serf by hand": "g[i]*erf(log(1+exp(g[i])))",
    "phish": "g[i]*tanh(gelu(g[i]))",
    "tanhexp": "g[i]*tanh(exp(g[i]))",
    "logish": "g[i]*log(1+sigmoid(g[i]))",
    "smish": "g[i]*tanh(log(1+sigmoid(g[i])))",
    "erfrelu": "where(g[i]>0,g[i],erf(g[i]))",
    "bent identity": "(sqrt(g[i]**2+1)-1)/2+g[i]",
    "relu squared": "relu(g[i])**2",
    "squared relu max": "max(g[i],0)**2",
    "star relu": "0.9*relu(g[i])**2-0.4",
    "symlog": "sign(g[i])*log(1+abs(g[i]))",
    "huber": "where(abs(g[i])<1,g[i]**2/2,abs(g[i])-0.5)",
    "cauchy": "log(1+g[i]**2)",
    "rational act": "(g[i]**3+g[i]+1)/(1+g[i]**2)",
    "pade": "(0.02+0.5*g[i]+1.5*g[i]**2+1.2*g[i]**3)/(1+abs(2.3*g[i]**2))",
    "lisht": "g[i]*tanh(g[i])",
    "glu": "g[i]*sigmoid(e)",
    "bilinear": "g[i]*e",
    "reglu": "relu(g[i])*e",
    "geglu": "gelu(g[i])*e",
    "swiglu": "silu(g[i])*e",
    "swiglu by hand": "g[i]/(1+exp(-g[i]))*e",
    "highway": "sigmoid(e)*g[i]+(1-sigmoid(e))*tanh(g[i])",
    "maxout": "max(g[i],e)",
    "where min": "where(g[i]<e,g[i],e)",
    "where max": "where(g[i]>e,g[i],e)",
    "where scores": "where(p[i,0]<p[i,1],p[i,0],p[i,1])",
    "smooth max": "log(exp(g[i])+exp(e))",
    "smooth max t": "log(exp(5*g[i])+exp(5*e))/5",
    "hypot": "sqrt(1e-6+g[i]**2+e**2)",
    "softmax": "sum[j](softmax[j](p[i,j])*v[j])",
    "softmax hand": "sum[j](exp(p[i,j])*v[j])/sum[j](exp(p[i,j]))",
    "softmax lse": "sum[j](exp(p[i,j]-logsumexp[l](p[i,l]))*v[j])",
    "softmax temp": "sum[j](softmax[j](p[i,j]/0.5)*v[j])",
    "softmax temp const": "sum[j](softmax[j](p[i,j]*abs(cos(j)))*v[j])",
    "softcap": "sum[j](softmax[j](50*tanh(p[i,j]/50))*v[j])",
    "alibi": "sum[j](softmax[j](p[i,j]-0.5*abs(i-j))*v[j])",
    "causal": "sum[j](softmax[j](where(j<=i,p[i,j],-inf))*v[j])",
    "causal large": "sum[j](softmax[j](where(j<=i,p[i,j],-1e9))*v[j])",
    "causal add": "sum[j](softmax[j](p[i,j]-where(j>i,1e9,0))*v[j])",
    "causal lse": "sum[j](exp(where(j<=i,p[i,j],-inf)-logsumexp[l](where(l<=i,p[i,l],-inf)))*v[j])",
    "causal hand": "sum[j](where(j<=i,exp(p[i,j]),0)*v[j])/sum[j](where(j<=i,exp(p[i,j]),0))",
    "elu+1 attention": "sum[j]((elu(p[i,j])+1)*v[j])/sum[j](elu(p[i,j])+1)",
    "elu+1 eps": "sum[j]((elu(p[i,j])+1)*v[j])/(1e-6+sum[j](elu(p[i,j])+1))",
    "sigmoid attention": "sum[j](sigmoid(p[i,j]-log(3))*v[j])",
    "relu att mean": "mean[j](relu(p[i,j])*v[j])",
    "relu att norm": "sum[j](relu(p[i,j])*v[j])/(1e-6+sum[j](relu(p[i,j])))",
    "relu2 att": "mean[j](relu(p[i,j])**2*v[j])",
    "square att norm": "sum[j](p[i,j]**2*v[j])/(1e-6+sum[j](p[i,j]**2))",
    "softmax plus one": "sum[j](exp(p[i,j])*v[j])/(1+sum[j](exp(p[i,j])))",
    "sink": "sum[j](exp(p[i,j])*v[j])/(exp(e)+sum[j](exp(p[i,j])))",
    "sparsemax like": "sum[j](relu(p[i,j]-mean[l](p[i,l]))*v[j])",
    "entmax like": "sum[j](relu(0.5*p[i,j]-mean[l](p[i,l]))**2*v[j])",
    "normalised softplus": "sum[j](softplus(p[i,j])*v[j])/sum[j](softplus(p[i,j]))",
    "sigmoid norm": "sum[j](sigmoid(p[i,j])*v[j])/sum[j](sigmoid(p[i,j]))",
    "lse pool": "logsumexp[j](v[j])",
    "lse pool mean": "log(mean[j](exp(v[j])))",
    "lse pool temp": "log(sum[j](exp(4*v[j])))/4",
    "attention pool": "sum[j](softmax[j](v[j])*v[j])",
    "shifted softmax": "sum[j](exp(p[i,j]-max[l](p[i,l]))*v[j])/sum[j](exp(p[i,j]-max[l](p[i,l])))",
    "centre": "v[0]-mean[j](v[j])",
    "batch var": "mean[j]((v[j]-mean[l](v[l]))**2)",
    "log softmax": "p[i,0]-logsumexp[j](p[i,j])",
    "gated attention": "sigmoid(e)*sum[j](softmax[j](p[i,j])*v[j])",
    "talking": "sum[j](softmax[j](cos(j)*p[i,j])*v[j])",
    "differential": "sum[j]((softmax[j](p[i,j])-0.8*softmax[j](2*p[i,j]))*v[j])",
    "cosformer": "sum[j](relu(p[i,j])*cos(pi*(i-j)/6)*v[j])/(1e-6+sum[j](relu(p[i,j])*cos(pi*(i-j)/6)))",
    "pow5": "g[i]**5",
    "abs pow": "abs(g[i])**1.5",
    "sqrt smooth": "sqrt(relu(g[i])+1)",
    "aria": "(1+exp(-g[i]))**-2*g[i]",
    "nlrelu": "log(1+relu(g[i]))",
    "slaf": "1+g[i]+g[i]**2+g[i]**3",
    "apalu": "where(g[i]>=0,g[i]+g[i]*sigmoid(1.702*g[i]),0.5*(exp(g[i])-1))",
    "smelu": "where(g[i]>=1,g[i],where(g[i]<=-1,0,(g[i]+1)**2/4))",
    "hard mish": "g[i]*min(2,max(0,g[i]+2))/2",
    "power tanh": "tanh(g[i])**3*e",
}
ROUGH = {  # not pseudo-Lipschitz: jumps, poles, infinite slopes, exponential growth
    "hardshrink": "where(abs(g[i])>0.5,g[i],0)",
    "threshold": "where(g[i]>1,g[i],0)",
    "sinc-like": "sin(g[i])/g[i]",
    "highway where": "where(e>0,g[i],tanh(g[i]))",
    "relu att norm0": "sum[j](relu(p[i,j])*v[j])/sum[j](relu(p[i,j]))",
    "top1 gate": "sum[j](where(p[i,j]>=max[l](p[i,l]),1,0)*v[j])",
    "sqrt relu": "sqrt(relu(g[i]))",
    "signed sqrt": "sign(g[i])*sqrt(abs(g[i]))",
    "exp act": "exp(g[i])",
    "soft exponential": "(exp(0.5*g[i])-1)/0.5+0.5",
    "batch norm 0": "(v[0]-mean[j](v[j]))/sqrt(mean[j]((v[j]-mean[l](v[l]))**2))",
}
OPEN = {  # pseudo-Lipschitz; of their being bounded nothing is said
    "l2 norm": "v[0]/max(sqrt(sum[j](v[j]**2)),1e-6)",
    "l2 norm eps": "v[0]/(1e-6+sqrt(sum[j](v[j]**2)))",
    "l1 norm": "v[0]/(1e-6+sum[j](abs(v[j])))",
    "mish rational": "g[i]*((1+exp(g[i]))**2-1)/((1+exp(g[i]))**2+1)",
    "softclip": "log((1+exp(g[i]))/(1+exp(g[i]-1)))",
    "gd softclip": "softplus(g[i])-softplus(g[i]-1)",
    "boltzmann": "(g[i]*exp(g[i])+e*exp(e))/(exp(g[i])+exp(e))",
    "rmsnorm": "g[i]/sqrt(m+1e-6)",
    "rmsnorm0": "g[i]/sqrt(m)",
    "rmsnorm power": "g[i]*(m+1e-6)**-0.5",
    "rms relu": "relu(g[i]/sqrt(m+1e-6))",
    "squash": "g[i]*sqrt(g[i]**2+e**2)/(1+g[i]**2+e**2)",
    "qk norm": "sum[j](softmax[j](p[i,j]/sqrt(m+1e-6))*v[j])",
    "cosine att": "sum[j](softmax[j](10*p[i,j]/m)*v[j])",
    "entropy": "-sum[j](softmax[j](p[i,j])*log(softmax[j](p[i,j])))",
    "entropy log sm": "-sum[j](softmax[j](p[i,j])*(p[i,j]-logsumexp[l](p[i,l])))",
}
CERTIFIED = BOUNDED | UNBOUNDED | OPEN


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", CERTIFIED | ROUGH)
def test_what_papers_use_gets_its_verdict(name: str) -> None:
    calculus, facts = profile(parsed((CERTIFIED | ROUGH)[name]))
    bounded, regular = (calculus.fact(claim, LAST) for claim in ("bounded", "pseudo-Lipschitz"))
    assert regular.verdict is (HOLDS if name in CERTIFIED else FAILS), facts
    if name in BOUNDED:
        assert bounded.verdict is HOLDS, facts
    if name in UNBOUNDED:
        assert bounded.verdict is FAILS, facts
    for fact in (bounded, regular):
        witness = calculus.witness(fact.name, LAST) if fact.verdict is FAILS else None
        assert witness is None or refutes(BASE, fact.name, witness), witness


@pytest.mark.slow
@pytest.mark.turns(6)
@pytest.mark.parametrize("name", CERTIFIED)
def test_certificates_of_what_papers_use_survive_the_hunt(name: str) -> None:
    expr = parsed(CERTIFIED[name])
    assert violation(expr, profile(expr)[1]) == ""
