# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of torch against torch: each family one engine, of fixed sizes and of any number of rows."""

import numpy as np
import pytest

import lathe

torch = pytest.importorskip("torch")
F = torch.nn.functional

# x: [rows, 6] of floats, p: the same above 0, i: [rows, 6] of int64 in 0..5, m: of bool; image: [rows, 4, 8, 8].
# A row is the function's text: it names the output in a failure.
FAMILIES = {
    "unary": """
        torch.relu(x) F.relu6(x) F.gelu(x) F.gelu(x,approximate="tanh") F.silu(x) F.elu(x) F.selu(x) F.celu(x,1.3)
        F.mish(x) F.leaky_relu(x,0.2) F.hardswish(x) F.hardsigmoid(x) F.hardtanh(x,-0.5,0.7) F.softplus(x)
        F.softplus(x,2.0) F.logsigmoid(x) F.glu(x,-1) torch.sigmoid(x) torch.tanh(x) x.exp() torch.exp2(x)
        torch.expm1(x) p.log() p.log2() p.log10() p.log1p() p.sqrt() p.rsqrt() p.reciprocal() x.sin() x.cos() x.tan()
        x.clamp(-0.9,0.9).asin() x.clamp(-0.9,0.9).acos() x.atan() x.sinh() x.cosh() x.asinh() (p+1).acosh()
        x.clamp(-0.9,0.9).atanh() x.erf() x.abs() -x x.sign() x.floor() x.ceil() x.round() x.trunc() i.float().exp()
        i.exp() ~m ~i torch.isnan(x) torch.isinf(x/0) torch.isfinite(x/0) torch.logical_not(i) i.floor()
        F.prelu(x,torch.full((6,),0.1)) F.dropout(x,0.5,False) x.square()""",
    "binary": """
        x+p x-p x*p x/p x+1 1-x 2*x x/3 3/p torch.add(x,p,alpha=2) torch.sub(x,p,alpha=0.5) torch.rsub(x,p) i/2 i//2
        (i-3)//2 x//p torch.div(x,p,rounding_mode="trunc") torch.div(i-3,2,rounding_mode="trunc") x%p (i-3)%4
        torch.fmod(x,p) x**2 x**3 p**0.5 p**-0.5 p**x 2**x p**1.7 x+i i+1.5 i*m m+m m*m torch.maximum(x,p)
        torch.minimum(x,p) torch.max(x,p) torch.atan2(x,p-1) x==p x!=p x<p x<=p x>0 x>=p i==2 m==m m&m m|(x>0) m^(x>0)
        i&3 i|3 i^3 i<<1 i>>1 torch.logical_and(i,x) torch.logical_or(m,x>0) torch.logical_xor(m,x>0)
        torch.where(m,x,p) torch.where(m,x,0.0) torch.where(m,1.0,x) torch.where(m,i,x) x.masked_fill(m,-1e9)
        x.clamp(min=0.1) x.clamp(max=p) x.clamp_min(0.2) x.clamp_max(0.3) x.clamp(-1,1) torch.lerp(x,p,0.3)
        torch.addcmul(x,p,p,value=0.5) torch.addcdiv(x,x,p,value=2) x.to(torch.float16) x.to(torch.int32)
        i.to(torch.bool) x.bool() m.float() x.type_as(i) x*x.shape[0] x+x.shape[0]//2""",
    "fourier": """
        torch.fft.fft(x).real torch.fft.fft(image,dim=1).imag torch.fft.fftn(x,dim=(0,1)).real
        torch.view_as_real(torch.fft.fft(x,norm="ortho"))
        torch.view_as_real(torch.fft.ifft(torch.fft.fft(image,dim=2),dim=1))
        torch.view_as_real(torch.fft.ifft(x.to(torch.complex64),norm="ortho"))
        torch.view_as_real(torch.fft.ifftn(x.to(torch.complex64),dim=(0,1),norm="forward"))
        torch.view_as_real(torch.fft.rfft(x)) torch.view_as_real(torch.fft.rfft(image,dim=1,norm="forward"))
        torch.view_as_real(torch.fft.rfftn(image,dim=(1,2))) torch.view_as_real((x*1e38*1e38).to(torch.complex64))
        torch.fft.fftn(image,dim=(1,2)).real torch.view_as_real(torch.fft.ifftn(image,dim=(1,2)))""",
    "movement": """
        x.view(-1,2,3) x.reshape(-1) x.flatten() x.unflatten(1,(2,3)) x.unsqueeze(1) x.unsqueeze(-1).squeeze(-1) x.t()
        x.transpose(0,1) image.permute(0,2,3,1) image.movedim(1,-1) image.mT x.expand(3,-1,-1) x[0] x[-1] x[:,1]
        x[:,1:4] x[:,-2:] x[1:] x[:-1] x[:,::2] x[...,None] x.split(2,1)[1] x.split([1,5],1)[1] x.chunk(3,1)[2]
        x.unbind(1)[4] torch.cat([x,p],0) torch.cat([x,i],1) torch.stack([x,p],1) x.repeat(2,3) x.repeat(2,1,1)
        x.repeat_interleave(2,1) x.flip(1) x.flip(0,1) x.roll(2,1) x.roll(-1,1) x.roll(1,0) x.tril() x.triu(1)
        x.unfold(1,3,2) image.unfold(2,3,1) image.unfold(0,2,2)[:,1] x.unfold(0,4,1)
        x.tril(-1) F.pad(x,(1,2)) F.pad(x,(1,2),value=3.0) F.pad(image,(1,1,2,2),mode="reflect")
        F.pad(image,(1,2,0,1),mode="replicate") F.pad(image,(1,1,1,1),mode="circular") torch.arange(x.shape[0])
        torch.arange(2,x.shape[0]+5) torch.arange(0,10,3) torch.arange(5.0)*x[:,:5] torch.zeros(x.shape[0],2)
        torch.ones_like(x) torch.full((x.shape[0],3),2.5) torch.zeros_like(i) x.new_zeros(2) torch.full_like(x,7)
        F.pixel_shuffle(image,2) F.pixel_unshuffle(image,2) image.diagonal(0,2,3) image.diagonal(1,2,3)
        image.narrow(1,1,2) image.select(1,2) torch.concat([x,x]) x.clone() x.contiguous() x.detach() F.one_hot(i,6)
        torch.diff(x) torch.diff(m,dim=1,prepend=m[:,:1]) torch.diff(x,2) torch.meshgrid(x[0],p[1,:3],indexing="ij")[1]
        torch.meshgrid(x[0],p[1,:3],indexing="xy")[0] x.T x.new_ones(x.shape) torch.empty_like(x).fill_(2)""",
    "gather": """
        F.embedding(i,p[:1].expand(6,6).cumsum(0)) x.index_select(1,i[0]) x.gather(1,i) x[:,i[0]] image[:,:,i[0],i[1]]
        image[:,i[0,:4]%4] x[torch.arange(x.shape[0]),i[:,0]] image[:,:,i[0][:,None],i[1][None]]
        image[i[:,0]*0,:,i[:,1]] x.scatter(1,i[:,:1],p[:,:1]) x.scatter(1,i[:,:1],9.0) x.scatter_add(1,i,p)
        x.scatter_reduce(1,i,p,"amax") x.index_add(1,i[0],p) x.index_copy(1,torch.tensor([1,0]),p[:,:2])
        x.index_fill(1,torch.tensor([1,3]),2.0) x.index_put((torch.tensor([0,1]),),p[:2])
        x.index_put((torch.tensor([0,1]),torch.tensor([2,3])),p[0,:2],accumulate=True) x.select_scatter(p[:,0],1,2)
        x.slice_scatter(p[:,:2],1,1,3) torch.where(m,x,p)[:,0]""",
    "reduce": """
        x.sum() x.sum(1) x.sum((0,1)) x.sum(1,keepdim=True) i.sum(1) m.sum(1) x.mean() x.mean(-1) image.mean((2,3))
        x.prod(1) x.amax(1) x.amin((0,1)) x.max() x.min() x.max(1).values x.max(1).indices
        x.min(1,keepdim=True).values x.argmax(1) x.argmax() x.argmin(1,keepdim=True) m.any() m.all(1) i.any(1)
        x.var(1) x.var(1,unbiased=False) x.std(1) image.var((2,3),correction=0) x.norm() x.norm(dim=1)
        torch.linalg.vector_norm(x,1,1) torch.linalg.vector_norm(x,float("inf"),1) torch.linalg.vector_norm(x,3,1)
        x.logsumexp(1) x.cumsum(1) x.cumprod(1) i.cumsum(0) torch.count_nonzero(i,1) x.topk(3,1).values
        x.topk(3,1).indices x.topk(2,1,largest=False).values x.sort(1).values x.sort(1,descending=True).indices
        x.argsort(1) F.normalize(x,dim=1) torch.var_mean(x,1)[1]""",
    "products": """
        x@p.t() torch.mm(x,p.t()) torch.matmul(x,p[0]) image@image torch.bmm(image[:,0],image[:,1])
        torch.addmm(x[:,:1],x,p[:1].t()) torch.addmm(x[:,:1],x,p[:1].t(),beta=0.5,alpha=2)
        torch.baddbmm(image[:,0],image[:,1],image[:,2]) torch.einsum("bchw,bcwk->bhk",image,image)
        torch.einsum("bi,bj->bij",x,p) torch.outer(x[0],p[0]) torch.dot(x[0],p[0]) F.linear(x,p[:1].expand(4,6))
        F.linear(x[0],p[:1].expand(4,6)) F.linear(x,p[:1].expand(4,6),torch.ones(4)) F.cosine_similarity(x,p)
        F.scaled_dot_product_attention(image,image,image)
        F.scaled_dot_product_attention(image,image,image,is_causal=True)
        F.scaled_dot_product_attention(image,image,image,torch.ones(8,8,dtype=torch.bool).tril(),scale=0.3)
        F.scaled_dot_product_attention(image,image,image,attn_mask=image[:,:1])
        F.scaled_dot_product_attention(image[:,0],image[:,1],image[:,2])""",
    "windows": """
        F.conv2d(image,w) F.conv2d(image,w,torch.ones(3),stride=2,padding=1) F.conv2d(image,w,padding="same")
        F.conv2d(image,w[:,:,:1],padding=(0,1),dilation=(1,2)) F.conv2d(image,w.reshape(4,1,3,9)[...,:3],groups=4)
        F.conv1d(image[:,:,0],w[:,:,0]) F.conv_transpose2d(image,w.transpose(0,1),stride=2,padding=1,output_padding=1)
        F.conv2d(image[0],w) F.max_pool2d(image,2) F.max_pool2d(image,3,2,1) F.max_pool2d(image,3,2,ceil_mode=True)
        F.avg_pool2d(image,2) F.avg_pool2d(image,3,2,1) F.avg_pool2d(image,3,2,1,count_include_pad=False)
        F.max_pool1d(image[:,:,0],2) F.avg_pool1d(image[:,:,0],2) F.adaptive_avg_pool2d(image,1)
        F.adaptive_avg_pool2d(image,4) F.adaptive_avg_pool2d(image,(3,5)) F.adaptive_max_pool2d(image,3)
        F.interpolate(image,scale_factor=2) F.interpolate(image,size=(12,11))
        F.interpolate(image,scale_factor=2,mode="bilinear")
        F.interpolate(image,size=(5,12),mode="bilinear",align_corners=True)
        F.interpolate(image,scale_factor=2,mode="bicubic") F.interpolate(image[:,:,0],scale_factor=2,mode="linear")
        F.interpolate(image,scale_factor=2,mode="nearest-exact")
        F.grid_sample(image,image[:,:2].permute(0,2,3,1).tanh(),align_corners=False)
        F.grid_sample(image,image[:,:2].permute(0,2,3,1).tanh(),"nearest","border",align_corners=True)""",
    "norms": """
        F.layer_norm(x,(6,)) F.layer_norm(x,(6,),p[0],x[0]) F.layer_norm(image,(8,8)) F.rms_norm(x,(6,))
        F.rms_norm(x,(6,),p[0],1e-5) F.group_norm(image,2) F.group_norm(image,2,p[0,:4],x[0,:4])
        F.instance_norm(image) F.batch_norm(image,x[0,:4],p[0,:4],p[0,:4],x[0,:4]) F.batch_norm(x,x[0],p[0])
        F.softmax(x,1) F.softmax(image,1) F.log_softmax(x,-1) x.softmax(0) F.softmax(x,1,dtype=torch.float64)
        F.local_response_norm(image,3)
        torch._weight_norm(w,p[:3,:1].reshape(3,1,1,1),0)""",
}


class Family(torch.nn.Module):
    def __init__(self, texts):
        super().__init__()
        self.functions = [eval(f"lambda x, p, i, m, image, w: {text}") for text in texts]
        self.w = torch.nn.Parameter(torch.randn(3, 4, 3, 3, generator=torch.Generator().manual_seed(7)))

    def forward(self, x, p, i, m, image):
        return tuple(f(x, p, i, m, image, self.w) for f in self.functions)


def arguments(rows):
    random = np.random.default_rng(rows)
    x = torch.from_numpy(random.standard_normal((rows, 6)).astype(np.float32))
    return (x, x.abs() + 0.1, torch.from_numpy(random.integers(0, 6, (rows, 6))), x > 0.3,
            torch.from_numpy(random.standard_normal((rows, 4, 8, 8)).astype(np.float32)))


def check(engine, module, texts, given):
    names = [port.name for port in engine.inputs()]
    order = ["x", "p", "i", "m", "image"]
    got = engine.run({name: given[order.index(name)].contiguous() for name in names})
    wrong = []
    for text, mine, true in zip(texts, got.values(), module(*given)):
        mine, true = mine.numpy(), true.detach().numpy()
        loose = true.dtype == np.float16
        same = mine.shape == true.shape and mine.dtype == true.dtype and np.allclose(
            mine, true, rtol=2e-3 if loose else 1e-4, atol=1e-3 if loose else 2e-5, equal_nan=True)
        if not same:
            wrong.append(f"{text}: {mine.dtype}{mine.shape} {mine.ravel()[:4]}, not "
                         f"{true.dtype}{true.shape} {true.ravel()[:4]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    texts = FAMILIES[family].split()
    module = Family(texts).eval()
    with torch.no_grad():
        rows = {0: torch.export.Dim("rows", min=4, max=64)}
        engine = lathe.compile(module, args=arguments(8), dynamic_shapes=(rows,) * 5)
        for count in (8, 5):
            check(engine, module, texts, arguments(count))
