#!/usr/bin/env python3
"""Times cuBLAS and PyTorch's attention on a GPU, for comparison with run_cases.py.

usage: time_libraries.py

Needs PyTorch; prints a line per call, of the best of five rounds of 20 calls each. f32 is
without tf32, but where it is named.
"""
import torch

ROUNDS, REPEAT = 5, 20


def seconds(work):
    times = []
    for _ in range(ROUNDS + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPEAT):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / REPEAT)
    return min(times[1:])


def products():
    kinds = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
             "f16": torch.float16}
    for name, kind in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048),
                        (1024, 1024, 1024), (4096, 1024, 4096)):
            if name == "f32" and m == 8192:
                continue
            a, b = (torch.randn(s, device="cuda", dtype=kind) for s in ((m, k), (k, n)))
            took = seconds(lambda: torch.matmul(a, b))
            print(f"cuBLAS {name} {m}x{n}x{k}: {took * 1e6:.1f} us, "
                  f"{2e-12 * m * n * k / took:.1f} TFLOP/s", flush=True)


def attentions():
    for name, kind in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        for heads, tokens, width in ((16, 2048, 64), (16, 4096, 128), (16, 2048, 128)):
            for causal in (False, True):
                q, k, v = (torch.randn(4, heads, tokens, width, device="cuda", dtype=kind)
                           for _ in range(3))
                took = seconds(lambda: torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal))
                flops = 4e-12 * 4 * heads * tokens * tokens * width / (2 if causal else 1)
                print(f"PyTorch attention {name} 4x{heads}x{tokens}x{width} causal "
                      f"{causal}: {took * 1e6:.1f} us, {flops / took:.1f} TFLOP/s",
                      flush=True)


def copies():
    x = torch.empty(1 << 26, device="cuda")
    y = torch.empty_like(x)
    took = seconds(lambda: y.copy_(x))
    print(f"copy of 256 MiB: {2 * x.nbytes / took * 1e-9:.0f} GB/s")


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), torch.__version__)
    copies()
    products()
    attentions()
