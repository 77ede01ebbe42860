# Checks: autograd: custom Function, no_grad as decorator and context, inference_mode, tensor hooks, double backward, backward twice (error text), grad accumulation, threads.
import torch, threading
class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); calls.append("f"); return x * x
    @staticmethod
    def backward(ctx, g): calls.append("b"); return g * 2 * ctx.saved_tensors[0]
calls = []
x = torch.tensor([3.0], requires_grad=True); h = x.register_hook(lambda g: calls.append(("hook", g.item())))
Sq.apply(x).backward(); print(x.grad, calls); h.remove()
@torch.no_grad()
def act(o): return torch.is_grad_enabled(), (o * x).requires_grad
@torch.inference_mode()
def inf(o): return (o * 2).is_inference()
print(act(torch.ones(1)), inf(torch.ones(1)), torch.is_grad_enabled(), act.__name__)
y = x ** 3; (g,) = torch.autograd.grad(y, x, create_graph=True); g.backward(); print(g.item(), x.grad.item(), g.grad_fn.__class__.__name__)
z = (x * 2).exp(); z.backward()
for f in (lambda: z.backward(), lambda: torch.ones(2, requires_grad=True).backward(), lambda: torch.ones(1).backward(), lambda: (x * torch.ones(2)).backward(torch.ones(3)), lambda: x.backward(nonsense=1)):
    try: f()
    except Exception as e: print(type(e).__name__, str(e).splitlines()[0][:90])
(x * torch.ones(2)).backward(gradient=torch.ones(2), retain_graph=True, inputs=[x]); print(x.grad.item())
out = []
def th(): w = torch.ones(1, requires_grad=True); (w * 3).backward(); out.append((w.grad.item(), torch.is_grad_enabled()))
with torch.no_grad():
    t = threading.Thread(target=th); t.start(); t.join()
print(out)
class Fail(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): raise RuntimeError("in user backward")
Fail.apply(x).backward()
