#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path moonshotai/Kimi-K2-Instruct-0905 \
  --tp 16 \
  --nnodes 2 \
  --node-rank 1 \
  --dist-init-addr 10.0.0.1:5000 \
  --trust-remote-code \
  --tool-call-parser kimi_k2 \
  --host 127.0.0.1
